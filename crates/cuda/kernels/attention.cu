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

// All that kernels are told.
struct Attend {
    const act *queries;
    act *keys, *values;
    const u32 *at; // where rows store their own key and value, if they do
    const u32 *spans, *lists;
    act *out;
    const u32 *count;
    u32 query_stride, stride, width, size, team, heads, out_stride;
    u32 early; // what is cached was stored long before, but for `at`
};

// A warp a head, four heads of a row a block. The warp takes BATCH positions a team at a time: their
// keys and values are asked for together (beyond the end of the list the last again, which then
// counts nothing), and sums are scaled down when a larger score turns up. With `at`, the row's own
// key and value, which stand behind its query and are the last of its list, are stored there; they are
// read where they stand, so that nobody waits for that.
template <bool WHOLE> __device__ __forceinline__ void attend_row(const Attend &a, u32 row, u32 head) {
    const int BATCH = ROWS == 0 ? 2 : 4;
    u32 start = a.spans[2 * row], length = a.spans[2 * row + 1] - start;
    const u32 *list = a.lists + start;
    u32 lane = LANE, member = lane % a.team, teams = 32 / a.team, column = head * a.size;
    const act *query = a.queries + (u64)row * a.query_stride + column;
    if (a.at) {
        u64 to = (u64)a.at[row] * a.stride + column;
        for (u32 i = lane; i < a.size; i += 32) {
            a.keys[to + i] = query[a.width + i];
            a.values[to + i] = query[2 * a.width + i];
        }
    }
    Eight q = unpacked(cached_part<WHOLE>(query, member, a.size));
    float scale = 1.0f / sqrtf((float)a.size), most = -INFINITE, weights = 0.0f;
    Eight sum;
#pragma unroll
    for (int i = 0; i < 8; i++) sum.v[i] = 0.0f;
    for (u32 base = lane / a.team; base < length + lane / a.team; base += BATCH * teams) {
        u64 from[BATCH];
        bool own[BATCH];
        Packed k[BATCH], v[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            u32 j = min(base + b * teams, length - 1);
            from[b] = (u64)list[j] * a.stride + column;
            own[b] = a.at && j == length - 1;
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) k[b] = cached_part<WHOLE>(own[b] ? query + a.width : a.keys + from[b], member, a.size);
#pragma unroll
        for (int b = 0; b < BATCH; b++) v[b] = cached_part<WHOLE>(own[b] ? query + 2 * a.width : a.values + from[b], member, a.size);
        float score[BATCH], larger = most;
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            Eight key = unpacked(k[b]);
            float dot = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) dot = fmaf(q.v[i], key.v[i], dot);
            for (u32 d = a.team / 2; d > 0; d >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, d);
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
    for (u32 d = 16; d >= a.team; d >>= 1) {
        weights += __shfl_xor_sync(0xffffffffu, weights, d);
#pragma unroll
        for (int i = 0; i < 8; i++) sum.v[i] += __shfl_xor_sync(0xffffffffu, sum.v[i], d);
    }
    if (lane >= a.team) return;
    act *to = a.out + (u64)row * a.out_stride + column + 8 * member;
#pragma unroll
    for (int i = 0; i < 8; i++) sum.v[i] /= weights;
    if (WHOLE) {
        store8(to, sum);
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (8 * member + i < a.size) to[i] = down(sum.v[i]);
    }
}

extern "C" __global__ void __launch_bounds__(128, 5) attend(Attend a) {
    begin();
    u32 row = blockIdx.x, head = blockIdx.y * ATTEND_WARPS + threadIdx.x / 32;
    if (row >= *a.count || head >= a.heads) return;
    if (8 * a.team == a.size)
        attend_row<true>(a, row, head);
    else
        attend_row<false>(a, row, head);
}

// The same for heads of 8·PIECES·team columns, a power of two, as they usually are: a warp reads all of
// a position at once, PIECES times eight columns a lane, as many heads as there is room for. The
// block's warps take positions in turn and put together in the end what they found.
template <int PIECES> struct Part {
    Packed piece[PIECES];
};

template <int PIECES> __device__ __forceinline__ Part<PIECES> read_part(const act *from, u32 apart) {
    Part<PIECES> part;
#pragma unroll
    for (int p = 0; p < PIECES; p++) part.piece[p] = load_packed(from + p * apart);
    return part;
}

template <int PIECES> __device__ __forceinline__ void write_part(act *to, u32 apart, const Part<PIECES> &part) {
#pragma unroll
    for (int p = 0; p < PIECES; p++) *(Packed *)(to + p * apart) = part.piece[p];
}

// Positions a warp reads together.
#define ATTEND_BATCH 2

template <int PIECES> struct Cached {
    Part<PIECES> k[ATTEND_BATCH], v[ATTEND_BATCH];
    u32 from[ATTEND_BATCH];

    // Of the list's last position the rest again, which then counts nothing.
    __device__ __forceinline__ void read(const Attend &a, const u32 *list, u32 base, u32 length, u32 column, u32 apart) {
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) from[b] = list[min(base + b * ATTEND_WARPS, length - 1)];
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) k[b] = read_part<PIECES>(a.keys + (u64)from[b] * a.stride + column, apart);
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) v[b] = read_part<PIECES>(a.values + (u64)from[b] * a.stride + column, apart);
    }

    // The row's own, which stands behind its query.
    __device__ __forceinline__ void read_own(const Attend &a, const act *query, u32 base, u32 length, u32 apart) {
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++)
            if (base + b * ATTEND_WARPS == length - 1) {
                k[b] = read_part<PIECES>(query + a.width, apart);
                v[b] = read_part<PIECES>(query + 2 * a.width, apart);
            }
    }
};

template <int PIECES> __device__ __forceinline__ void attend_positions(const Attend &a) {
    const int BATCH = ATTEND_BATCH;
    const int EACH = 8 * PIECES;
    __shared__ float found[ATTEND_WARPS][EACH + 2][32];
    let_next_begin();
    u32 row = blockIdx.x, warp = threadIdx.x / 32, lane = LANE;
    if (row >= *a.count) return;
    u32 start = a.spans[2 * row], length = a.spans[2 * row + 1] - start;
    const u32 *list = a.lists + start;
    u32 head = blockIdx.y * (32 / a.team) + lane / a.team;
    bool has = head < a.heads;
    u32 apart = 8 * a.team, column = min(head, a.heads - 1) * a.size + 8 * (lane % a.team);
    const act *query = a.queries + (u64)row * a.query_stride + column;
    Cached<PIECES> now;
    if (a.early) now.read(a, list, warp, length, column, apart);
    after_previous();
    if (!a.early) now.read(a, list, warp, length, column, apart);
    Part<PIECES> packed_query = read_part<PIECES>(query, apart);
    float q[EACH], sum[EACH], most = -INFINITE, weights = 0.0f, scale = 1.0f / sqrtf((float)a.size);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        Eight e = unpacked(packed_query.piece[p]);
#pragma unroll
        for (int i = 0; i < 8; i++) q[8 * p + i] = e.v[i], sum[8 * p + i] = 0.0f;
    }
    for (u32 base = warp; base < length; base += ATTEND_WARPS * BATCH) {
        if (base > warp) now.read(a, list, base, length, column, apart);
        if (a.at) now.read_own(a, query, base, length, apart);
        const Part<PIECES>(&k)[BATCH] = now.k, (&v)[BATCH] = now.v;
        const u32(&from)[BATCH] = now.from;
        float score[BATCH], larger = most;
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            float dot = 0.0f;
#pragma unroll
            for (int p = 0; p < PIECES; p++) {
                Eight key = unpacked(k[b].piece[p]);
#pragma unroll
                for (int i = 0; i < 8; i++) dot = fmaf(q[8 * p + i], key.v[i], dot);
            }
            for (u32 d = a.team / 2; d > 0; d >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, d);
            u32 j = base + b * ATTEND_WARPS;
            score[b] = j < length ? dot * scale : -INFINITE;
            larger = fmaxf(larger, score[b]);
            if (a.at && has && j == length - 1) {
                write_part<PIECES>(a.keys + (u64)from[b] * a.stride + column, apart, k[b]);
                write_part<PIECES>(a.values + (u64)from[b] * a.stride + column, apart, v[b]);
            }
        }
        float shrink = expf(most - larger);
        most = larger;
        weights *= shrink;
#pragma unroll
        for (int i = 0; i < EACH; i++) sum[i] *= shrink;
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            float w = expf(score[b] - most);
            weights += w;
#pragma unroll
            for (int p = 0; p < PIECES; p++) {
                Eight value = unpacked(v[b].piece[p]);
#pragma unroll
                for (int i = 0; i < 8; i++) sum[8 * p + i] = fmaf(w, value.v[i], sum[8 * p + i]);
            }
        }
    }
    found[warp][EACH][lane] = most;
    found[warp][EACH + 1][lane] = weights;
#pragma unroll
    for (int i = 0; i < EACH; i++) found[warp][i][lane] = sum[i];
    __syncthreads();
    float all = found[0][EACH][lane], total = 0.0f, factor[ATTEND_WARPS];
#pragma unroll
    for (int w = 1; w < ATTEND_WARPS; w++) all = fmaxf(all, found[w][EACH][lane]);
#pragma unroll
    for (int w = 0; w < ATTEND_WARPS; w++) {
        factor[w] = expf(found[w][EACH][lane] - all);
        total = fmaf(factor[w], found[w][EACH + 1][lane], total);
    }
    // Each warp finishes some of every lane's columns.
    const int SOME = EACH / ATTEND_WARPS;
    act *out = a.out + (u64)row * a.out_stride + column;
    if (!has) return;
#pragma unroll
    for (int i = 0; i < SOME; i++) {
        u32 c = warp * SOME + i;
        float value = 0.0f;
#pragma unroll
        for (int w = 0; w < ATTEND_WARPS; w++) value = fmaf(factor[w], found[w][c][lane], value);
        out[c / 8 * apart + c % 8] = down(value / total);
    }
}

extern "C" __global__ void __launch_bounds__(128) attend_wide_1(Attend a) { attend_positions<1>(a); }
extern "C" __global__ void __launch_bounds__(128) attend_wide_2(Attend a) { attend_positions<2>(a); }

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

#define ALIGN_WARPS 8

// Attention of recurrent networks: the softmax over a row's list of energy · tanh(key + query), or
// of key · query. One block a row, a key a warp; the weights go where the lists stand.
extern "C" __global__ void align(const act *queries, u32 query_stride, const act *keys, u32 stride,
                                 const u32 *spans, const u32 *lists, const act *energy, u32 width,
                                 float *weights, const u32 *count) {
    begin();
    u32 row = blockIdx.x;
    if (row >= *count) return;
    u32 start = spans[2 * row], length = spans[2 * row + 1] - start;
    u32 warp = threadIdx.x / 32;
    bool whole = width % 8 == 0;
    const act *query = queries + (u64)row * query_stride;
    weights += start;
    for (u32 j = warp; j < length; j += ALIGN_WARPS) {
        const act *key = keys + (u64)lists[start + j] * stride;
        float sum = 0.0f;
#pragma unroll 4
        for (u32 i = 8 * LANE; i < width; i += 256) {
            Eight q = load_part(query + i, width - i, whole), v = load_part(key + i, width - i, whole), e;
            if (energy) e = load_part(energy + i, width - i, whole);
            OF_EIGHT sum = energy ? fmaf(e.v[k], tanhf(q.v[k] + v.v[k]), sum) : fmaf(q.v[k], v.v[k], sum);
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
