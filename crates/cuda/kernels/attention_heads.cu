// Attention of few rows: a block a head of a row.
//
// A block a row (`attend_wide_*`) loads a few positions at a time, one load after the other. With a block a head there are
// enough lanes to load all positions of a sentence at once: before the previous kernel ends, where they are complete. The
// warps of a block have the same shares of positions, in the same order, as the warps of `attend_wide_*`: the bits are the same.

#if ROWS != 0

// What a warp has of one head of PIECES * TEAM * 8 columns: a team of lanes the key of one position, eight adjacent columns a
// lane and piece; each lane COLUMNS adjacent columns of the values of as many positions as there are teams.
template <int PIECES, int COLUMNS> struct HeadPart {
    static const int WIDTH = 32 * COLUMNS;
    static const int TEAM = WIDTH / (8 * PIECES);
    static const int TEAMS = 32 / TEAM;
    struct __align__(2 * COLUMNS) Columns {
        act v[COLUMNS];
    };
    Part<PIECES> key;
    Columns value[TEAMS];

    __device__ __forceinline__ static Part<PIECES> pieces(const act *head) {
        return read_part<PIECES>(head + 8 * (LANE % TEAM), 8 * TEAM);
    }
    __device__ __forceinline__ static Columns columns(const act *head) { return *(const Columns *)(head + LANE * COLUMNS); }

    // `position` is that of the lane's team.
    __device__ __forceinline__ void read(const Attend &a, u32 column, u32 position) {
        key = pieces(a.keys + (u64)position * a.stride + column);
#pragma unroll
        for (int i = 0; i < TEAMS; i++)
            value[i] = columns(a.values + (u64)__shfl_sync(0xffffffffu, position, i * TEAM) * a.stride + column);
    }
};

template <int PIECES, int COLUMNS> __device__ __forceinline__ void attend_by_head(const Attend &a) {
    typedef HeadPart<PIECES, COLUMNS> Head;
    typedef typename Head::Columns Columns;
    __shared__ OnlineSoftmax softmaxes[ATTEND_WARPS];
    __shared__ float sums[ATTEND_WARPS][Head::WIDTH];
    let_next_begin();
    if (blockIdx.x >= *a.count) return;
    u32 row = single_row(a), column = blockIdx.y * Head::WIDTH, warp = threadIdx.x / 32;
    u32 start = a.spans[2 * row], length = a.spans[2 * row + 1] - start, last = length - 1;
    const u32 *list = a.lists + start;
    auto position = [&](u32 first) { return list[min(first + LANE / Head::TEAM * ATTEND_WARPS, last)]; };
    Head now;
    if (a.early) now.read(a, column, position(warp));
    after_previous();
    if (!a.early) now.read(a, column, position(warp));
    // With `at`, the row's own key and value stand after its query, and are the last of its list.
    const act *queries = a.queries + (u64)row * a.query_stride + column;
    Part<PIECES> query = Head::pieces(queries), own_key = query;
    Columns own_value = now.value[0];
    if (a.at) own_key = Head::pieces(queries + a.width), own_value = Head::columns(queries + 2 * a.width);
    OnlineSoftmax softmax;
    softmax.clear();
    float scale = 1.0f / sqrtf((float)a.size), sum[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) sum[c] = 0.0f;
    for (u32 first = warp; first < length; first += ATTEND_WARPS * Head::TEAMS) {
        if (first > warp) now.read(a, column, position(first));
        u32 j = first + LANE / Head::TEAM * ATTEND_WARPS;
        float dot = 0.0f;
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            Eight q = unpacked(query.piece[p]), key = unpacked(a.at && j >= last ? own_key.piece[p] : now.key.piece[p]);
#pragma unroll
            for (int i = 0; i < 8; i++) dot = fmaf(q.v[i], key.v[i], dot);
        }
#pragma unroll
        for (u32 d = Head::TEAM / 2; d > 0; d >>= 1) dot += __shfl_xor_sync(0xffffffffu, dot, d);
        float score = j < length ? __fmul_rn(dot, scale) : -INFINITE;
#pragma unroll
        for (int i = 0; i < Head::TEAMS; i += ATTEND_BATCH) {
            if (first + i * ATTEND_WARPS >= length) break;
            float weights[ATTEND_BATCH];
#pragma unroll
            for (int b = 0; b < ATTEND_BATCH; b++) weights[b] = __shfl_sync(0xffffffffu, score, (i + b) * Head::TEAM);
            float shrink = softmax.take(weights);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) sum[c] = __fmul_rn(sum[c], shrink);
#pragma unroll
            for (int b = 0; b < ATTEND_BATCH; b++) {
                bool own = a.at && first + (i + b) * ATTEND_WARPS >= last;
                Columns value = own ? own_value : now.value[i + b];
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) sum[c] = fmaf(weights[b], up(value.v[c]), sum[c]);
            }
        }
    }
    if (a.at && warp == 0) {
        u64 to = (u64)a.at[row] * a.stride + column + LANE * COLUMNS;
        *(Columns *)(a.keys + to) = Head::columns(queries + a.width);
        *(Columns *)(a.values + to) = own_value;
    }
    if (LANE == 0) softmaxes[warp] = softmax;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) sums[warp][LANE * COLUMNS + c] = sum[c];
    __syncthreads();
    if (warp > 0) return;
    float factor[ATTEND_WARPS], total = merge_factors(softmaxes, factor);
    Columns merged;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < ATTEND_WARPS; w++) v = fmaf(factor[w], sums[w][LANE * COLUMNS + c], v);
        merged.v[c] = down(v / total);
    }
    *(Columns *)(a.out + (u64)row * a.out_stride + column + LANE * COLUMNS) = merged;
}

extern "C" __global__ void __launch_bounds__(128) attend_head_32(Attend a) { attend_by_head<1, 1>(a); }
extern "C" __global__ void __launch_bounds__(128) attend_head_64(Attend a) { attend_by_head<2, 2>(a); }
extern "C" __global__ void __launch_bounds__(128) attend_head_128(Attend a) { attend_by_head<2, 4>(a); }

#endif
