// Attention on tensor cores, for rows of two bytes in parties: a warp a head, for up to 8·HALVES rows that share a
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

    __device__ __forceinline__ u32 word(int i) const { return w[i]; }
};

// The same of a cache in fp8.
template <int WORDS, int APART> struct Fp8Pairs {
    u32 w[WORDS / 2];

    __device__ __forceinline__ void read(const u8 *from) {
        if (WORDS == 2) {
            w[0] = *(const u32 *)from;
        } else {
#pragma unroll
            for (int i = 0; i < WORDS; i += 4) *(uint2 *)(w + i / 2) = *(const uint2 *)(from + i / 4 * APART);
        }
    }

    __device__ __forceinline__ u32 word(int i) const { return from_fp8((u16)(w[i / 2] >> 16 * (i % 2))); }
};

template <typename Cache, int WORDS, int APART> struct PairsOf {
    typedef Pairs<WORDS, APART> Type;
};
template <int WORDS, int APART> struct PairsOf<InFp8, WORDS, APART> {
    typedef Fp8Pairs<WORDS, APART> Type;
};

// Keys and values of the next positions of a list. Beyond its end they are the last again, or zero, with
// weight 0.
template <int HEAD, typename Cache> struct NextPositions {
    static const int POSITIONS = HEAD > 64 ? 16 : 32;
    typename PairsOf<Cache, HEAD / 8, 32>::Type k[POSITIONS / 8];
    typename PairsOf<Cache, HEAD / 16, 8>::Type v[POSITIONS / 4];

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
            u32 from = __shfl_sync(0xffffffffu, mine, key(i));
            k[i].read(Cache::place(a.keys, from, a.stride, column + key_column()));
        }
#pragma unroll
        for (int i = 0; i < POSITIONS / 4; i++) {
            if (i >= 4 && base + 16 * (i / 4) >= length) break;
            u32 from = __shfl_sync(0xffffffffu, mine, value(i));
            v[i].read(Cache::place(a.values, from, a.stride, column + value_column()));
        }
    }
};

template <int HEAD, int HALVES, typename Cache> __device__ __forceinline__ void attend_tile(const Attend &a) {
    typedef NextPositions<HEAD, Cache> Next;
    const int POSITIONS = Next::POSITIONS;
    let_next_begin();
    u32 row = a.parties[2 * blockIdx.x], rows = a.parties[2 * blockIdx.x + 1];
    u32 head = blockIdx.y * ATTEND_WARPS + threadIdx.x / 32;
    if (rows == 0 || head >= a.heads) return;
    u32 lane = LANE, g = lane / 4, t = lane % 4, column = head * HEAD;
    u32 start = a.spans[2 * row], length = a.spans[2 * row + 1] - start;
    const u32 *list = a.lists + start;
    const act *query = a.queries + (u64)row * a.query_stride + column;
    Next now;
    if (a.early) now.read(a, list, 0, length, column);
    after_previous();
    if (!a.early) now.read(a, list, 0, length, column);
    Pairs<HEAD / 8, 32> q[2];
    // Beyond the last row the last again; its results are not written.
#pragma unroll
    for (int half = 0; half < HALVES; half++)
        q[half].read(query + (u64)min(g + 8 * half, rows - 1) * a.query_stride + Next::key_column());
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
                    multiply_tile(score[n], q[0].w[i], q[1].w[i], q[0].w[i + 1], q[1].w[i + 1], now.k[n].word(i), now.k[n].word(i + 1));
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
                u32 b0 = __byte_perm(now.v[4 * k].word(n / 2), now.v[4 * k + 1].word(n / 2), half);
                u32 b1 = __byte_perm(now.v[4 * k + 2].word(n / 2), now.v[4 * k + 3].word(n / 2), half);
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

#define ATTEND_TILES(suffix, Cache)                                                                                              \
    extern "C" __global__ void __launch_bounds__(128) attend_tile_32##suffix(Attend a) { attend_tile<32, 2, Cache>(a); }        \
    extern "C" __global__ void __launch_bounds__(128) attend_tile_64##suffix(Attend a) { attend_tile<64, 2, Cache>(a); }        \
    extern "C" __global__ void __launch_bounds__(128) attend_tile_128##suffix(Attend a) { attend_tile<128, 2, Cache>(a); }      \
    extern "C" __global__ void __launch_bounds__(128, 6) attend_few_32##suffix(Attend a) { attend_tile<32, 1, Cache>(a); }      \
    extern "C" __global__ void __launch_bounds__(128, 4) attend_few_64##suffix(Attend a) { attend_tile<64, 1, Cache>(a); }      \
    extern "C" __global__ void __launch_bounds__(128, 3) attend_few_128##suffix(Attend a) { attend_tile<128, 1, Cache>(a); }
ATTEND_TILES(, InRows)
ATTEND_TILES(_fp8, InFp8)
#endif
