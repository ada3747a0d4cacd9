// Attention: a KV cache by position, and the lists of positions that rows read.
//
// A cache holds keys and values as activations, or in fp8 (e4m3), whose rows are half as long. What a row reads of
// its own key and value is rounded as the cache is, so that it does not matter whence they are read.
//
// A warp's lanes form teams, one position a team, eight columns a lane, so that a key is read at
// once. Which position goes to which team depends on the row's own list alone: a row's result
// is the same in any batch.

#define ATTEND_WARPS 4

// Eight adjacent numbers of a cache of activations.
struct InRows {
    typedef Packed Kept;
    static const bool FP8 = false;
    __device__ __forceinline__ static const act *place(const act *cache, u32 position, u32 stride, u32 column) {
        return cache + (u64)position * stride + column;
    }
    __device__ __forceinline__ static Kept load(const act *cache, u32 position, u32 stride, u32 column) {
        return load_packed(place(cache, position, stride, column));
    }
    __device__ __forceinline__ static void save(act *cache, u32 position, u32 stride, u32 column, const Kept &kept) {
        *(Kept *)(cache + (u64)position * stride + column) = kept;
    }
    __device__ __forceinline__ static Kept keep(const Packed &rows) { return rows; }
    __device__ __forceinline__ static Eight eight(const Kept &kept) { return unpacked(kept); }
};

#if ROWS != 0
// Pairs of numbers in fp8. Devices before 8.9 have none, and no such cache.
__device__ __forceinline__ u16 to_fp8(float low, float high) {
    u16 pair = 0;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
#endif
    return pair;
}

// As two activations.
__device__ __forceinline__ u32 from_fp8(u16 pair) {
    u32 halves = 0;
#if __CUDA_ARCH__ >= 890
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
#endif
#if ROWS == 1
    return halves;
#else
    return pair_of(from_float16((u16)(halves & 0xffffu)), from_float16((u16)(halves >> 16)));
#endif
}

// Eight adjacent numbers of a cache in fp8.
struct InFp8 {
    typedef uint2 Kept;
    static const bool FP8 = true;
    __device__ __forceinline__ static const u8 *place(const act *cache, u32 position, u32 stride, u32 column) {
        return (const u8 *)(cache + (u64)position * stride) + column;
    }
    __device__ __forceinline__ static Kept load(const act *cache, u32 position, u32 stride, u32 column) {
        return *(const Kept *)place(cache, position, stride, column);
    }
    __device__ __forceinline__ static void save(act *cache, u32 position, u32 stride, u32 column, const Kept &kept) {
        *(Kept *)place(cache, position, stride, column) = kept;
    }
    __device__ __forceinline__ static Kept keep(const Packed &rows) {
        Eight e = unpacked(rows);
        u32 w[2];
#pragma unroll
        for (int i = 0; i < 2; i++) w[i] = to_fp8(e.v[4 * i], e.v[4 * i + 1]) | (u32)to_fp8(e.v[4 * i + 2], e.v[4 * i + 3]) << 16;
        return make_uint2(w[0], w[1]);
    }
    __device__ __forceinline__ static Eight eight(const Kept &kept) {
        return unpacked(make_uint4(from_fp8((u16)(kept.x & 0xffffu)), from_fp8((u16)(kept.x >> 16)),
                                   from_fp8((u16)(kept.y & 0xffffu)), from_fp8((u16)(kept.y >> 16))));
    }
};

extern "C" __global__ void store_fp8(const act *x, u32 x_stride, u32 key_column, const u32 *at, act *keys,
                                     act *values, u32 stride, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    const act *key = x + (u64)row * x_stride + key_column;
    for (u32 i = LANE * 8; i < width; i += 256) {
        InFp8::save(keys, at[row], stride, i, InFp8::keep(load_packed(key + i)));
        InFp8::save(values, at[row], stride, i, InFp8::keep(load_packed(key + width + i)));
    }
}
#endif

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

// Scaled scores of a head, which begins at `column`, over a row's list, into `scores`; all threads get the largest.
template <typename Cache>
__device__ float head_scores(const act *query, const act *keys, u32 column, u32 stride, const u32 *list, u32 length,
                             u32 size, u32 team, float *scores, float *shared_most) {
    u32 warp = threadIdx.x / 32, lane = LANE;
    u32 member = lane % team, teams = 32 / team;
    bool whole = size % 8 == 0;
    Eight q;
    bool has = 8 * member < size;
    if (has) q = head_part(query + column, member, size, whole);
    float scale = 1.0f / sqrtf((float)size);
    float most = -INFINITE;
    for (u32 base = warp * teams; base < length; base += ATTEND_WARPS * teams) {
        u32 j = base + lane / team;
        float dot = 0.0f;
        if (j < length && has) {
            Eight k = Cache::FP8 ? Cache::eight(Cache::load(keys, list[j], stride, column + 8 * member))
                                 : head_part(InRows::place(keys, list[j], stride, column), member, size, whole);
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

// Positions a warp reads together.
#define ATTEND_BATCH 2

template <int PIECES, typename Cache> struct Cached {
    typename Cache::Kept k[ATTEND_BATCH][PIECES], v[ATTEND_BATCH][PIECES];
    u32 from[ATTEND_BATCH];

    // Beyond the end the last position again, with weight 0.
    __device__ __forceinline__ void read(const Attend &a, const u32 *list, u32 base, u32 length, u32 column, u32 apart) {
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) from[b] = list[min(base + b * ATTEND_WARPS, length - 1)];
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++)
#pragma unroll
            for (int p = 0; p < PIECES; p++) k[b][p] = Cache::load(a.keys, from[b], a.stride, column + p * apart);
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++)
#pragma unroll
            for (int p = 0; p < PIECES; p++) v[b][p] = Cache::load(a.values, from[b], a.stride, column + p * apart);
    }

    // The row's own key and value, after its query. Beyond the end too: what the cache has there may be infinite or
    // no number, and times a weight of 0 that is no number.
    __device__ __forceinline__ void read_own(const Attend &a, const act *query, u32 base, u32 length, u32 apart) {
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++)
            if (base + b * ATTEND_WARPS >= length - 1)
#pragma unroll
                for (int p = 0; p < PIECES; p++) {
                    k[b][p] = Cache::keep(load_packed(query + a.width + p * apart));
                    v[b][p] = Cache::keep(load_packed(query + 2 * a.width + p * apart));
                }
    }

    __device__ __forceinline__ void store(const Attend &a, int b, u32 column, u32 apart) const {
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            Cache::save(a.keys, from[b], a.stride, column + p * apart, k[b][p]);
            Cache::save(a.values, from[b], a.stride, column + p * apart, v[b][p]);
        }
    }
};

// A row and the heads that a warp attends to; a lane has PIECES times eight columns of one of them.
template <int PIECES> struct AttendedRow {
    static const int EACH = 8 * PIECES;
    const u32 *list;
    const act *query;
    u32 row, length, column, apart;
    bool has;
    float scale, q[EACH];

    __device__ __forceinline__ AttendedRow(const Attend &a, u32 row_) : row(row_) {
        u32 start = a.spans[2 * row];
        length = a.spans[2 * row + 1] - start;
        list = a.lists + start;
        u32 head = blockIdx.y * (32 / a.team) + LANE / a.team;
        has = head < a.heads;
        apart = 8 * a.team, column = min(head, a.heads - 1) * a.size + 8 * (LANE % a.team);
        query = a.queries + (u64)row * a.query_stride + column;
        scale = 1.0f / sqrtf((float)a.size);
    }

    __device__ __forceinline__ void read_query() {
        Part<PIECES> packed = read_part<PIECES>(query, apart);
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            Eight e = unpacked(packed.piece[p]);
#pragma unroll
            for (int i = 0; i < 8; i++) q[8 * p + i] = e.v[i];
        }
    }
};

// An online softmax over the scores of some positions: the largest of them, and the sum of weights. With fused
// multiply-adds of the compiler some kernels would round once less.
struct OnlineSoftmax {
    float most, weights;

    __device__ __forceinline__ void clear() { most = -INFINITE, weights = 0.0f; }

    // Turns scores into weights. Returns by what the sums so far are to be multiplied.
    __device__ __forceinline__ float take(float (&scores)[ATTEND_BATCH]) {
        float larger = most;
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) larger = fmaxf(larger, scores[b]);
        float shrink = expf(__fsub_rn(most, larger));
        most = larger;
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) {
            scores[b] = expf(__fsub_rn(scores[b], larger));
            weights = b == 0 ? __fmaf_rn(weights, shrink, scores[b]) : __fadd_rn(weights, scores[b]);
        }
        return shrink;
    }
};

// The factors of shares of a row's positions. Returns the sum of all weights.
__device__ __forceinline__ float merge_factors(const OnlineSoftmax (&shares)[ATTEND_WARPS], float (&factor)[ATTEND_WARPS]) {
    float all = shares[0].most, total = 0.0f;
#pragma unroll
    for (int w = 1; w < ATTEND_WARPS; w++) all = fmaxf(all, shares[w].most);
#pragma unroll
    for (int w = 0; w < ATTEND_WARPS; w++) {
        factor[w] = expf(__fsub_rn(shares[w].most, all));
        total = __fmaf_rn(factor[w], shares[w].weights, total);
    }
    return total;
}

// Attention over a share of a row's positions, of which ATTEND_WARPS take turns: the softmax and the sum of weighted
// values.
template <int PIECES> struct Share {
    static const int EACH = 8 * PIECES;
    OnlineSoftmax softmax;
    float sum[EACH];

    __device__ __forceinline__ void clear() {
        softmax.clear();
#pragma unroll
        for (int i = 0; i < EACH; i++) sum[i] = 0.0f;
    }

    // Adds the positions read from `base` on.
    template <typename Cache>
    __device__ __forceinline__ void add(const Attend &a, const AttendedRow<PIECES> &r, Cached<PIECES, Cache> &now, u32 base) {
        if (a.at) now.read_own(a, r.query, base, r.length, r.apart);
        float weights[ATTEND_BATCH];
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++) {
            float dot = 0.0f;
#pragma unroll
            for (int p = 0; p < PIECES; p++) {
                Eight key = Cache::eight(now.k[b][p]);
#pragma unroll
                for (int i = 0; i < 8; i++) dot = fmaf(r.q[8 * p + i], key.v[i], dot);
            }
            for (u32 d = a.team / 2; d > 0; d >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, d);
            u32 j = base + b * ATTEND_WARPS;
            weights[b] = j < r.length ? __fmul_rn(dot, r.scale) : -INFINITE;
            if (a.at && r.has && j == r.length - 1) now.store(a, b, r.column, r.apart);
        }
        float shrink = softmax.take(weights);
#pragma unroll
        for (int i = 0; i < EACH; i++) sum[i] = __fmul_rn(sum[i], shrink);
#pragma unroll
        for (int b = 0; b < ATTEND_BATCH; b++)
#pragma unroll
            for (int p = 0; p < PIECES; p++) {
                Eight value = Cache::eight(now.v[b][p]);
#pragma unroll
                for (int i = 0; i < 8; i++) sum[8 * p + i] = fmaf(weights[b], value.v[i], sum[8 * p + i]);
            }
    }
};

// The shares of a row, in shared memory.
template <int PIECES> struct Shares {
    static const int EACH = 8 * PIECES;
    float most[ATTEND_WARPS][32], weights[ATTEND_WARPS][32], sum[ATTEND_WARPS][EACH][32];

    __device__ __forceinline__ void put(u32 i, const Share<PIECES> &share) {
        most[i][LANE] = share.softmax.most;
        weights[i][LANE] = share.softmax.weights;
#pragma unroll
        for (int c = 0; c < EACH; c++) sum[i][c][LANE] = share.sum[c];
    }

    // Merges all shares and writes COUNT of each lane's columns, from `first` on.
    template <int COUNT> __device__ __forceinline__ void merge(const Attend &a, const AttendedRow<PIECES> &r, u32 first) const {
        OnlineSoftmax softmax[ATTEND_WARPS];
#pragma unroll
        for (int w = 0; w < ATTEND_WARPS; w++) softmax[w].most = most[w][LANE], softmax[w].weights = weights[w][LANE];
        float factor[ATTEND_WARPS], total = merge_factors(softmax, factor);
        if (!r.has) return;
        act *out = a.out + (u64)r.row * a.out_stride + r.column;
        float merged[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            merged[i] = 0.0f;
#pragma unroll
            for (int w = 0; w < ATTEND_WARPS; w++) merged[i] = fmaf(factor[w], sum[w][first + i][LANE], merged[i]);
            merged[i] /= total;
        }
        if (COUNT % 8 == 0) {
#pragma unroll
            for (int i = 0; i < COUNT; i += 8) {
                Eight e;
#pragma unroll
                for (int k = 0; k < 8; k++) e.v[k] = merged[i + k];
                store8(out + (first + i) / 8 * r.apart, e);
            }
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++) out[(first + i) / 8 * r.apart + (first + i) % 8] = down(merged[i]);
        }
    }
};

// A block a row, a share a warp.
template <int PIECES, typename Cache> __device__ __forceinline__ void attend_by_block(const Attend &a) {
    __shared__ Shares<PIECES> shares;
    let_next_begin();
    if (blockIdx.x >= *a.count) return;
    u32 warp = threadIdx.x / 32;
    AttendedRow<PIECES> r(a, single_row(a));
    Cached<PIECES, Cache> now;
    if (a.early) now.read(a, r.list, warp, r.length, r.column, r.apart);
    after_previous();
    if (!a.early) now.read(a, r.list, warp, r.length, r.column, r.apart);
    r.read_query();
    Share<PIECES> share;
    share.clear();
    for (u32 base = warp; base < r.length; base += ATTEND_WARPS * ATTEND_BATCH) {
        if (base > warp) now.read(a, r.list, base, r.length, r.column, r.apart);
        share.add(a, r, now, base);
    }
    shares.put(warp, share);
    __syncthreads();
    const int SOME = 8 * PIECES / ATTEND_WARPS;
    shares.template merge<SOME>(a, r, warp * SOME);
}

// Many rows: a warp a row, one share after the other. All rows are in flight at once, so that no block waits
// for its slowest warp; the bits are those of a block a row.
template <int PIECES, typename Cache> __device__ __forceinline__ void attend_by_warp(const Attend &a) {
    __shared__ Shares<PIECES> of_warps[ATTEND_WARPS];
    let_next_begin();
    u32 place = blockIdx.x * ATTEND_WARPS + threadIdx.x / 32;
    if (place >= *a.count) return;
    Shares<PIECES> &shares = of_warps[threadIdx.x / 32];
    AttendedRow<PIECES> r(a, a.rows ? a.rows[place] : place);
    Cached<PIECES, Cache> now;
    after_previous();
    r.read_query();
#pragma unroll 1
    for (u32 i = 0; i < ATTEND_WARPS; i++) {
        Share<PIECES> share;
        share.clear();
        for (u32 base = i; base < r.length; base += ATTEND_WARPS * ATTEND_BATCH) {
            now.read(a, r.list, base, r.length, r.column, r.apart);
            share.add(a, r, now, base);
        }
        shares.put(i, share);
    }
    // A lane reads only what it has written.
    shares.template merge<8 * PIECES>(a, r, 0);
}

#define ATTEND_ROWS(suffix, Cache)                                                                                              \
    extern "C" __global__ void __launch_bounds__(128) attend_wide_1##suffix(Attend a) { attend_by_block<1, Cache>(a); }        \
    extern "C" __global__ void __launch_bounds__(128) attend_wide_2##suffix(Attend a) { attend_by_block<2, Cache>(a); }        \
    extern "C" __global__ void __launch_bounds__(128, 4) attend_rows_1##suffix(Attend a) { attend_by_warp<1, Cache>(a); }      \
    extern "C" __global__ void __launch_bounds__(128, 4) attend_rows_2##suffix(Attend a) { attend_by_warp<2, Cache>(a); }
ATTEND_ROWS(, InRows)
#if ROWS != 0
ATTEND_ROWS(_fp8, InFp8)
#endif

// The mean of the attention weights of the first `heads` heads, row after row in the order of the lists.
// The scores of a row are in shared memory, or in `scratch` if there is one.
template <typename Cache>
__device__ __forceinline__ void mean_weights(const act *queries, u32 query_stride, const act *keys, u32 stride,
                                             const u32 *spans, const u32 *lists, const u32 *starts, u32 size, u32 team,
                                             u32 heads, float *scratch, float *out, const u32 *count) {
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
        float most = head_scores<Cache>(query, keys, column, stride, lists + start, length, size, team, scores,
                                        shared_most);
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

extern "C" __global__ void attention_weights(const act *queries, u32 query_stride, const act *keys, u32 stride,
                                             const u32 *spans, const u32 *lists, const u32 *starts, u32 size, u32 team,
                                             u32 heads, float *scratch, float *out, const u32 *count) {
    mean_weights<InRows>(queries, query_stride, keys, stride, spans, lists, starts, size, team, heads, scratch, out, count);
}

#if ROWS != 0
extern "C" __global__ void attention_weights_fp8(const act *queries, u32 query_stride, const act *keys, u32 stride,
                                                 const u32 *spans, const u32 *lists, const u32 *starts, u32 size, u32 team,
                                                 u32 heads, float *scratch, float *out, const u32 *count) {
    mean_weights<InFp8>(queries, query_stride, keys, stride, spans, lists, starts, size, team, heads, scratch, out, count);
}
#endif

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
