// Attention: keys and values kept by position, and the lists of positions that rows read.
//
// A warp's lanes stand in teams, one position a team, eight columns a lane, so that a key is read in
// one go. Which position goes to which team depends on the row's own list alone: a row's result
// is the same in any company.

#define ATTEND_WARPS 4

extern "C" __global__ void store(const act *x, u32 x_stride, u32 key_column, const u32 *at, act *keys,
                                 act *values, u32 stride, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    const act *key = x + (u64)row * x_stride + key_column;
    bool aligned = key_column % 8 == 0;
    copy_row(key, keys + (u64)at[row] * stride, width, aligned);
    copy_row(key + width, values + (u64)at[row] * stride, width, aligned);
}

// Columns [8l, 8l + 8) of a head of `size` columns; those beyond it are zero.
__device__ __forceinline__ Eight head_part(const act *head, u32 l, u32 size, bool whole) {
    if (whole) return load8(head + 8 * l);
    Eight e;
#pragma unroll
    for (int j = 0; j < 8; j++) e.v[j] = 8 * l + j < size ? up(head[8 * l + j]) : 0.0f;
    return e;
}

// Scores of a head over a row's list, scaled, into `scores`; the largest to all threads.
__device__ float head_scores(const act *query, const act *keys, u32 stride, const u32 *list, u32 length,
                             u32 size, u32 team, float *scores, float *shared_most) {
    u32 warp = threadIdx.x / 32, lane = LANE;
    u32 member = lane % team, teams = 32 / team;
    bool whole = size % 8 == 0;
    Eight q;
    bool has = 8 * member < size;
    if (has) q = head_part(query, member, size, whole);
    float scale = 1.0f / sqrtf((float)size);
    float most = -INFINITE;
    for (u32 base = warp * teams; base < length; base += ATTEND_WARPS * teams) {
        u32 j = base + lane / team;
        float dot = 0.0f;
        if (j < length && has) {
            Eight k = head_part(keys + (u64)list[j] * stride, member, size, whole);
#pragma unroll
            for (int i = 0; i < 8; i++) dot = fmaf(q.v[i], k.v[i], dot);
        }
        for (u32 d = team / 2; d > 0; d >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, d);
        dot *= scale;
        if (j < length) {
            if (member == 0) scores[j] = dot;
            most = fmaxf(most, dot);
        }
    }
    most = warp_max(most);
    if (lane == 0) shared_most[warp] = most;
    __syncthreads();
    most = shared_most[0];
#pragma unroll
    for (int w = 1; w < ATTEND_WARPS; w++) most = fmaxf(most, shared_most[w]);
    return most;
}

// Eight columns of a cached head. WHOLE: teams fill heads exactly, as they do in all usual sizes.
template <bool WHOLE> __device__ __forceinline__ Packed cached_part(const act *head, u32 member, u32 size) {
    union {
        Packed packed;
        act v[8];
    } part;
    if (WHOLE) {
        part.packed = load_packed(head + 8 * member);
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++) part.v[j] = 8 * member + j < size ? head[8 * member + j] : down(0.0f);
    }
    return part.packed;
}

// A warp a head, four heads of a row a block. The warp takes BATCH positions a team at a time: their
// keys and values are asked for together (beyond the end of the list the last again, which then
// counts nothing), and sums are scaled down when a larger score turns up. With `at`, the row's own
// key and value, which stand behind its query, are stored there first.
template <bool WHOLE>
__device__ __forceinline__ void attend_row(const act *queries, u32 query_stride, act *keys, act *values, u32 stride,
                                           const u32 *at, u32 width, const u32 *spans, const u32 *lists, u32 size,
                                           u32 team, u32 heads, act *out, u32 out_stride, u32 row, u32 head) {
    const int BATCH = ROWS == 0 ? 4 : 8;
    u32 start = spans[2 * row], length = spans[2 * row + 1] - start;
    const u32 *list = lists + start;
    u32 lane = LANE, member = lane % team, teams = 32 / team, column = head * size;
    const act *query = queries + (u64)row * query_stride + column;
    if (at) {
        u64 to = (u64)at[row] * stride + column;
        for (u32 i = lane; i < size; i += 32) {
            keys[to + i] = query[width + i];
            values[to + i] = query[2 * width + i];
        }
        __syncwarp();
    }
    Eight q = unpacked(cached_part<WHOLE>(query, member, size));
    float scale = 1.0f / sqrtf((float)size), most = -INFINITE, weights = 0.0f;
    Eight sum;
#pragma unroll
    for (int i = 0; i < 8; i++) sum.v[i] = 0.0f;
    for (u32 base = lane / team; base < length + lane / team; base += BATCH * teams) {
        u64 from[BATCH];
        Packed k[BATCH], v[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) from[b] = (u64)list[min(base + b * teams, length - 1)] * stride + column;
#pragma unroll
        for (int b = 0; b < BATCH; b++) k[b] = cached_part<WHOLE>(keys + from[b], member, size);
#pragma unroll
        for (int b = 0; b < BATCH; b++) v[b] = cached_part<WHOLE>(values + from[b], member, size);
        float score[BATCH], larger = most;
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            Eight key = unpacked(k[b]);
            float dot = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) dot = fmaf(q.v[i], key.v[i], dot);
            for (u32 d = team / 2; d > 0; d >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, d);
            score[b] = base + b * teams < length ? dot * scale : -INFINITE;
            larger = fmaxf(larger, score[b]);
        }
        larger = warp_max(larger);
        float shrink = expf(most - larger);
        most = larger;
        weights *= shrink;
#pragma unroll
        for (int i = 0; i < 8; i++) sum.v[i] *= shrink;
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            Eight value = unpacked(v[b]);
            float w = expf(score[b] - most);
            weights += w;
#pragma unroll
            for (int i = 0; i < 8; i++) sum.v[i] = fmaf(w, value.v[i], sum.v[i]);
        }
    }
    for (u32 d = 16; d >= team; d >>= 1) {
        weights += __shfl_xor_sync(0xffffffffu, weights, d);
#pragma unroll
        for (int i = 0; i < 8; i++) sum.v[i] += __shfl_xor_sync(0xffffffffu, sum.v[i], d);
    }
    if (lane >= team) return;
    act *to = out + (u64)row * out_stride + column + 8 * member;
#pragma unroll
    for (int i = 0; i < 8; i++) sum.v[i] /= weights;
    if (WHOLE) {
        store8(to, sum);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (8 * member + i < size) to[i] = down(sum.v[i]);
    }
}

extern "C" __global__ void __launch_bounds__(128) attend(const act *queries, u32 query_stride, act *keys, act *values,
                                                         u32 stride, const u32 *at, u32 width, const u32 *spans,
                                                         const u32 *lists, u32 size, u32 team, u32 heads, act *out,
                                                         u32 out_stride, const u32 *count) {
    begin();
    u32 row = blockIdx.x, head = blockIdx.y * 4 + threadIdx.x / 32;
    if (row >= *count || head >= heads) return;
#define ARGUMENTS queries, query_stride, keys, values, stride, at, width, spans, lists, size, team, heads, out, out_stride, row, head
    if (8 * team == size)
        attend_row<true>(ARGUMENTS);
    else
        attend_row<false>(ARGUMENTS);
#undef ARGUMENTS
}

// The mean of the weights of the first `heads` heads; they go where the lists stand, row after row.
extern "C" __global__ void attention_weights(const act *queries, u32 query_stride, const act *keys,
                                             u32 stride, const u32 *spans, const u32 *lists,
                                             const u32 *starts, u32 size, u32 team, u32 heads,
                                             float *out, const u32 *count) {
    extern __shared__ float scores[];
    __shared__ float shared_most[ATTEND_WARPS];
    begin();
    u32 row = blockIdx.x;
    if (row >= *count) return;
    u32 start = spans[2 * row], length = spans[2 * row + 1] - start;
    const act *query = queries + (u64)row * query_stride;
    out += starts[row];
    for (u32 head = 0; head < heads; head++) {
        u32 column = head * size;
        float most = head_scores(query + column, keys + column, stride, lists + start, length, size, team,
                                 scores, shared_most);
        float sum = 0.0f;
        for (u32 j = LANE; j < length; j += 32) sum += expf(scores[j] - most);
        sum = warp_sum(sum);
        for (u32 j = threadIdx.x; j < length; j += blockDim.x) {
            float w = expf(scores[j] - most) / sum / (float)heads;
            out[j] = head == 0 ? w : out[j] + w;
        }
        __syncthreads();
    }
}

// Attention of recurrent networks: the softmax over a row's list of energy · tanh(key + query), or
// of key · query. One block of four warps a row, a key a warp; the weights go where the lists stand.
extern "C" __global__ void align(const act *queries, u32 query_stride, const act *keys, u32 stride,
                                 const u32 *spans, const u32 *lists, const act *energy, u32 width,
                                 float *weights, const u32 *count) {
    begin();
    u32 row = blockIdx.x;
    if (row >= *count) return;
    u32 start = spans[2 * row], length = spans[2 * row + 1] - start;
    u32 warp = threadIdx.x / 32;
    const act *query = queries + (u64)row * query_stride;
    weights += start;
    for (u32 j = warp; j < length; j += ATTEND_WARPS) {
        const act *key = keys + (u64)lists[start + j] * stride;
        float sum = 0.0f;
        for (u32 i = LANE; i < width; i += 32) {
            float q = up(query[i]), k = up(key[i]);
            sum = energy ? fmaf(up(energy[i]), tanhf(q + k), sum) : fmaf(q, k, sum);
        }
        sum = warp_sum(sum);
        if (LANE == 0) weights[j] = sum;
    }
    __syncthreads();
    if (warp > 0) return;
    float most = -INFINITE, sum = 0.0f;
    for (u32 j = LANE; j < length; j += 32) most = fmaxf(most, weights[j]);
    most = warp_max(most);
    for (u32 j = LANE; j < length; j += 32) sum += expf(weights[j] - most);
    sum = warp_sum(sum);
    for (u32 j = LANE; j < length; j += 32) weights[j] = expf(weights[j] - most) / sum;
}
