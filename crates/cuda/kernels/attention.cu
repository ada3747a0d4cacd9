// Attention: a KV cache by position, and the lists of positions that rows read.
//
// A warp's lanes form teams, one position a team, eight columns a lane, so that a key is read at
// once. Which position goes to which team depends on the row's own list alone: a row's result
// is the same in any batch.

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

// Scaled scores of a head over a row's list, into `scores`; all threads get the largest.
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

// The parameters of attention kernels.
struct Attend {
    const act *queries;
    act *keys, *values;
    const u32 *at; // positions where rows store their own key and value, or 0
    const u32 *spans, *lists;
    act *out;
    const u32 *count;
    u32 query_stride, stride, width, size, team, heads, out_stride;
    u32 early; // the cache was complete before the previous kernel, except for `at`
    const u32 *parties; // the first row and the number of rows of each party, or 0
    const u32 *rows;    // the `count` rows that are in no party, or 0 if all are in none
};

// The row of a block that computes one row.
__device__ __forceinline__ u32 single_row(const Attend &a) { return a.rows ? a.rows[blockIdx.x] : blockIdx.x; }

// A warp a head, four heads of a row a block. The warp takes BATCH positions a team at a time: their
// keys and values are loaded together (beyond the end of the list the last again, with weight 0), and
// sums are scaled down when a larger score is found (online softmax). With `at`, the row's own key and
// value, which stand after its query and are the last of its list, are stored there; they are read
// from the query's row, so that no kernel waits for the store.
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
    u32 head = blockIdx.y * ATTEND_WARPS + threadIdx.x / 32;
    if (blockIdx.x >= *a.count || head >= a.heads) return;
    u32 row = single_row(a);
    if (8 * a.team == a.size)
        attend_row<true>(a, row, head);
    else
        attend_row<false>(a, row, head);
}

// Attention with heads of 8·PIECES·team columns, a power of two, as they usually are: a warp reads all of
// a position at once, PIECES times eight columns a lane, as many heads as fit. The block's warps take
// positions in turn and merge their results at the end.
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

    // Beyond the end the last position again, with weight 0.
    __device__ __forceinline__ void read(const Attend &a, const u32 *list, u32 base, u32 length, u32 column, u32 apart) {
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) from[b] = list[min(base + b * ATTEND_WARPS, length - 1)];
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) k[b] = read_part<PIECES>(a.keys + (u64)from[b] * a.stride + column, apart);
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) v[b] = read_part<PIECES>(a.values + (u64)from[b] * a.stride + column, apart);
    }

    // The row's own key and value, after its query. Beyond the end too: what the cache has there may be infinite or
    // no number, and times a weight of 0 that is no number.
    __device__ __forceinline__ void read_own(const Attend &a, const act *query, u32 base, u32 length, u32 apart) {
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++)
            if (base + b * ATTEND_WARPS >= length - 1) {
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
    u32 warp = threadIdx.x / 32, lane = LANE;
    if (blockIdx.x >= *a.count) return;
    u32 row = single_row(a);
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
    // Each warp writes some of every lane's columns.
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

// On tensor cores, for rows of two bytes in parties: a warp a head, for up to 8·HALVES rows that share a
// list, as those of a sentence's encoder and of a beam do. A row's result does not depend on the other
// rows of its tile.
//
// mma fragments: lane 4g + t of a tile has row g (and g + 8). Scores are a product of queries with keys;
// a lane has position g of eight. The order of a head's columns in an instruction does not matter, so a
// lane takes eight adjacent ones of every 32. Sums are a product of weights with values; a lane has
// positions 2t, 2t + 1, 2t + 8 and 2t + 9 of 16, and adjacent columns from (HEAD / 8) · g on.
#if ROWS != 0
__device__ __forceinline__ void multiply_tile(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if ROWS == 1
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The product of a tile with its first eight rows only.
__device__ __forceinline__ void multiply_tile(float (&sum)[2], u32 a0, u32, u32 a2, u32, u32 b0, u32 b1) {
    float whole[4] = {sum[0], sum[1], 0.0f, 0.0f};
    multiply_tile(whole, a0, 0, a2, 0, b0, b1);
    sum[0] = whole[0], sum[1] = whole[1];
}

// Pairs of adjacent activations, four at a time (or two), APART activations from each other.
template <int WORDS, int APART> struct Pairs {
    u32 w[WORDS];

    __device__ __forceinline__ void read(const act *from) {
        if (WORDS == 2) {
            *(uint2 *)w = *(const uint2 *)from;
        } else {
#pragma unroll
            for (int i = 0; i < WORDS; i += 4) *(uint4 *)(w + i) = *(const uint4 *)(from + i / 4 * APART);
        }
    }

    __device__ __forceinline__ void write(act *to) const {
        if (WORDS == 2) {
            *(uint2 *)to = *(const uint2 *)w;
        } else {
#pragma unroll
            for (int i = 0; i < WORDS; i += 4) *(uint4 *)(to + i / 4 * APART) = *(const uint4 *)(w + i);
        }
    }
};

__device__ __forceinline__ u32 pair_of(float low, float high) { return (u32)down(low) | (u32)down(high) << 16; }

// Keys and values of the next positions of a list. Beyond its end they are the last again, or zero, with
// weight 0.
template <int HEAD> struct NextPositions {
    static const int POSITIONS = HEAD > 64 ? 16 : 32;
    Pairs<HEAD / 8, 32> k[POSITIONS / 8];
    Pairs<HEAD / 16, 8> v[POSITIONS / 4];

    // The position of this lane's i-th key, and of its i-th value.
    __device__ __forceinline__ static u32 key(int i) { return 8 * i + LANE / 4; }
    __device__ __forceinline__ static u32 value(int i) { return 16 * (i / 4) + 2 * (LANE % 4) + 8 * (i / 2 % 2) + i % 2; }
    // The first of its columns of a head.
    __device__ __forceinline__ static u32 key_column() { return LANE % 4 * 8; }
    __device__ __forceinline__ static u32 value_column() { return LANE / 4 * (HEAD / 8); }

    __device__ __forceinline__ void read(const Attend &a, const u32 *list, u32 base, u32 length, u32 column) {
        u32 mine = list[min(base + LANE, length - 1)];
#pragma unroll
        for (int i = 0; i < POSITIONS / 8; i++) {
            if (i > 0 && base + 8 * i >= length) break;
            u64 from = __shfl_sync(0xffffffffu, mine, key(i));
            k[i].read(a.keys + from * a.stride + column + key_column());
        }
#pragma unroll
        for (int i = 0; i < POSITIONS / 4; i++) {
            if (i >= 4 && base + 16 * (i / 4) >= length) break;
            u64 from = __shfl_sync(0xffffffffu, mine, value(i));
            v[i].read(a.values + from * a.stride + column + value_column());
        }
    }
};

template <int HEAD, int HALVES> __device__ __forceinline__ void attend_tile(const Attend &a) {
    const int POSITIONS = NextPositions<HEAD>::POSITIONS;
    let_next_begin();
    u32 row = a.parties[2 * blockIdx.x], rows = a.parties[2 * blockIdx.x + 1];
    u32 head = blockIdx.y * ATTEND_WARPS + threadIdx.x / 32;
    if (rows == 0 || head >= a.heads) return;
    u32 lane = LANE, g = lane / 4, t = lane % 4, column = head * HEAD;
    u32 start = a.spans[2 * row], length = a.spans[2 * row + 1] - start;
    const u32 *list = a.lists + start;
    const act *query = a.queries + (u64)row * a.query_stride + column;
    NextPositions<HEAD> now;
    if (a.early) now.read(a, list, 0, length, column);
    after_previous();
    if (!a.early) now.read(a, list, 0, length, column);
    Pairs<HEAD / 8, 32> q[2];
    // Beyond the last row the last again; its results are not written.
#pragma unroll
    for (int half = 0; half < HALVES; half++)
        q[half].read(query + (u64)min(g + 8 * half, rows - 1) * a.query_stride + NextPositions<HEAD>::key_column());
    float sum[HEAD / 8][2 * HALVES] = {}, weights[HALVES] = {}, most[HALVES];
#pragma unroll
    for (int half = 0; half < HALVES; half++) most[half] = -INFINITE;
    // The hardware computes powers of two.
    float scale = 1.44269504f / sqrtf((float)HEAD);
    for (u32 base = 0; base < length; base += POSITIONS) {
        if (base > 0) now.read(a, list, base, length, column);
        float score[POSITIONS / 8][2 * HALVES], larger[HALVES];
#pragma unroll
        for (int half = 0; half < HALVES; half++) larger[half] = most[half];
#pragma unroll
        for (int n = 0; n < POSITIONS / 8; n++) {
#pragma unroll
            for (int i = 0; i < 2 * HALVES; i++) score[n][i] = 0.0f;
            if (base + 8 * n < length)
#pragma unroll
                for (int i = 0; i < HEAD / 8; i += 2)
                    multiply_tile(score[n], q[0].w[i], q[1].w[i], q[0].w[i + 1], q[1].w[i + 1], now.k[n].w[i], now.k[n].w[i + 1]);
#pragma unroll
            for (int i = 0; i < 2 * HALVES; i++) {
                bool there = base + 8 * n + 2 * t + i % 2 < length;
                score[n][i] = there ? __fmul_rn(score[n][i], scale) : -INFINITE;
                larger[i / 2] = fmaxf(larger[i / 2], score[n][i]);
            }
        }
#pragma unroll
        for (int half = 0; half < HALVES; half++) {
            larger[half] = fmaxf(larger[half], __shfl_xor_sync(0xffffffffu, larger[half], 1));
            larger[half] = fmaxf(larger[half], __shfl_xor_sync(0xffffffffu, larger[half], 2));
            float shrink = power_of_two(most[half] - larger[half]);
            most[half] = larger[half];
            weights[half] = __fmul_rn(weights[half], shrink);
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++)
                sum[n][2 * half] = __fmul_rn(sum[n][2 * half], shrink), sum[n][2 * half + 1] = __fmul_rn(sum[n][2 * half + 1], shrink);
        }
#pragma unroll
        for (int n = 0; n < POSITIONS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2 * HALVES; i++) {
                score[n][i] = power_of_two(score[n][i] - most[i / 2]);
                weights[i / 2] = __fadd_rn(weights[i / 2], score[n][i]);
            }
#pragma unroll
        for (int k = 0; k < POSITIONS / 16; k++) {
            if (base + 16 * k >= length) break;
            u32 w[2][2] = {};
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int half = 0; half < HALVES; half++)
                    w[i][half] = pair_of(score[2 * k + i][2 * half], score[2 * k + i][2 * half + 1]);
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                // One column of two adjacent positions.
                u32 half = n % 2 ? 0x7632 : 0x5410;
                u32 b0 = __byte_perm(now.v[4 * k].w[n / 2], now.v[4 * k + 1].w[n / 2], half);
                u32 b1 = __byte_perm(now.v[4 * k + 2].w[n / 2], now.v[4 * k + 3].w[n / 2], half);
                multiply_tile(sum[n], w[0][0], w[0][1], w[1][0], w[1][1], b0, b1);
            }
        }
    }
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
        float all = weights[half];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        if (g + 8 * half >= rows) continue;
        // A lane has the columns of two lanes' values.
        Pairs<HEAD / 16, 8> out[2];
#pragma unroll
        for (int n = 0; n < HEAD / 8; n += 2)
#pragma unroll
            for (int i = 0; i < 2; i++)
                out[i].w[n / 2] = pair_of(sum[n][2 * half + i] / all, sum[n + 1][2 * half + i] / all);
        act *to = a.out + (u64)(row + g + 8 * half) * a.out_stride + column + 2 * t * (HEAD / 8);
        out[0].write(to), out[1].write(to + HEAD / 8);
    }
}

extern "C" __global__ void __launch_bounds__(128) attend_tile_32(Attend a) { attend_tile<32, 2>(a); }
extern "C" __global__ void __launch_bounds__(128) attend_tile_64(Attend a) { attend_tile<64, 2>(a); }
extern "C" __global__ void __launch_bounds__(128) attend_tile_128(Attend a) { attend_tile<128, 2>(a); }
extern "C" __global__ void __launch_bounds__(128, 6) attend_few_32(Attend a) { attend_tile<32, 1>(a); }
extern "C" __global__ void __launch_bounds__(128, 4) attend_few_64(Attend a) { attend_tile<64, 1>(a); }
extern "C" __global__ void __launch_bounds__(128, 3) attend_few_128(Attend a) { attend_tile<128, 1>(a); }
#endif

// The mean of the attention weights of the first `heads` heads, row after row in the order of the lists.
// The scores of a row are in shared memory, or in `scratch` if there is one.
extern "C" __global__ void attention_weights(const act *queries, u32 query_stride, const act *keys,
                                             u32 stride, const u32 *spans, const u32 *lists,
                                             const u32 *starts, u32 size, u32 team, u32 heads,
                                             float *scratch, float *out, const u32 *count) {
    extern __shared__ float shared_scores[];
    __shared__ float shared_most[ATTEND_WARPS];
    begin();
    u32 row = blockIdx.x;
    if (row >= *count) return;
    u32 start = spans[2 * row], length = spans[2 * row + 1] - start;
    const act *query = queries + (u64)row * query_stride;
    float *scores = scratch ? scratch + starts[row] : shared_scores;
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
// of key · query. One block a row, a warp a key; weights are in the order of the lists.
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
            OF_EIGHT sum = energy ? fmaf(e.v[k], quick_tanh(q.v[k] + v.v[k]), sum) : fmaf(q.v[k], v.v[k], sum);
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
