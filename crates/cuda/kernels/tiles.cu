// Products of many rows on tensor cores, in tiles: by `mma` on all devices, by `wgmma` on Hopper, and on Hopper very many
// rows by persistent kernels. All give the same sums.

#if PRODUCT != 0

// Many rows: `cp.async` copies tiles of x and w to shared memory, some stages ahead.
template <int ROWS_, int COLUMNS_, int WARPS_M, int WARPS_N, int STAGES> struct Wide {
    typedef sum_t Sums[ROWS_ / WARPS_M / 16][COLUMNS_ / WARPS_N / 8][4];
    struct Operands {};
    static const int THREADS = 32 * WARPS_M * WARPS_N;
    static const int TALL = ROWS_ / WARPS_M / 16;
    static const int WIDE = COLUMNS_ / WARPS_N / 8;
    // Chunks of a stage, and their bytes.
    static const int PAIR = 2;
    static const int HALF_STAGE = (ROWS_ + COLUMNS_) * CHUNK;
    static const int STAGE = PAIR * HALF_STAGE;

    // The swizzled place of byte `at` of a chunk: every other pair of rows has its two 32 bytes exchanged,
    // so that the rows a warp reads at once have no bank conflicts.
    __device__ __forceinline__ static u32 swizzled(u32 row, u32 at) { return at ^ (row / 2 % 2 * (CHUNK / 2)); }

    __device__ __forceinline__ static uint4 read(const u8 *row, u32 first) {
        uint2 a = *(const uint2 *)(row + first), b = *(const uint2 *)(row + (first ^ (CHUNK / 2)));
        return make_uint4(a.x, a.y, b.x, b.y);
    }

    __device__ __forceinline__ static void fetch(const Product &p, u8 *stage, u32 first_row, u32 rows,
                                                 u32 first_column, u32 pair) {
#pragma unroll
        for (u32 half = 0; half < PAIR; half++) {
            u32 start = (PAIR * pair + half) * CHUNK + (threadIdx.x % 4) * 16;
            u8 *to = stage + half * HALF_STAGE + (threadIdx.x / 4) * CHUNK + swizzled(threadIdx.x / 4, (threadIdx.x % 4) * 16);
            bool there = start < p.bytes;
#pragma unroll
            for (u32 i = 0; i < ROWS_ * 4; i += THREADS) {
                u32 row = min(first_row + (threadIdx.x + i) / 4, rows - 1);
                copy_async(to + i * 16, there ? p.x + (u64)row * p.x_stride + start : p.x, there ? 16 : 0);
            }
            to += ROWS_ * CHUNK;
            bool weights = start < p.w_stride;
#pragma unroll
            for (u32 i = 0; i < COLUMNS_ * 4; i += THREADS) {
                if (COLUMNS_ * 4 < THREADS && threadIdx.x >= COLUMNS_ * 4) break;
                u32 column = min(first_column + (threadIdx.x + i) / 4, p.columns - 1);
                copy_async(to + i * 16, weights ? p.w + (u64)column * p.w_stride + start : p.w, weights ? 16 : 0);
            }
        }
    }

    __device__ __forceinline__ static void sums(const Product &p, const Operands &, u8 *shared, u32 first_row, u32 rows,
                                                u32 first_column, Sums &sums) {
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        u32 x_at = (warp / WARPS_N * 16 * TALL + lane / 4) * CHUNK;
        u32 w_at = ROWS_ * CHUNK + (warp % WARPS_N * 8 * WIDE + lane / 4) * CHUNK;
        u32 first = swizzled(lane / 4, (lane % 4) * 8);
        u32 pairs = (p.bytes + PAIR * CHUNK - 1) / (PAIR * CHUNK);
        after_previous();
#pragma unroll
        for (int m = 0; m < TALL; m++)
#pragma unroll
            for (int n = 0; n < WIDE; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) sums[m][n][i] = 0;
#pragma unroll
        for (u32 i = 0; i < STAGES - 1; i++) {
            if (i < pairs) fetch(p, shared + i * STAGE, first_row, rows, first_column, i);
            asm volatile("cp.async.commit_group;");
        }
        for (u32 pair = 0; pair < pairs; pair++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
            __syncthreads();
            u32 next = pair + STAGES - 1;
            if (next < pairs) fetch(p, shared + next % STAGES * STAGE, first_row, rows, first_column, next);
            asm volatile("cp.async.commit_group;");
#pragma unroll
            for (int half = 0; half < PAIR; half++) {
                const u8 *stage = shared + pair % STAGES * STAGE + half * HALF_STAGE;
                uint4 w[WIDE];
#pragma unroll
                for (int n = 0; n < WIDE; n++) w[n] = read(stage + w_at + 8 * n * CHUNK, first);
#pragma unroll
                for (int m = 0; m < TALL; m++) {
                    uint4 top = rounded4(read(stage + x_at + 16 * m * CHUNK, first));
                    uint4 bottom = rounded4(read(stage + x_at + (16 * m + 8) * CHUNK, first));
#pragma unroll
                    for (int n = 0; n < WIDE; n++) multiply_chunk(sums[m][n], top, bottom, w[n]);
                }
            }
        }
        asm volatile("cp.async.wait_group 0;");
        __syncthreads();
    }

    __device__ __forceinline__ static void lay_out_all(Sums &sums, float *tile) {
        u32 warp = threadIdx.x / 32;
#pragma unroll
        for (int m = 0; m < TALL; m++)
            lay_out<WIDE>(sums[m], warp / WARPS_N * 16 * TALL + 16 * m, warp % WARPS_N * 8 * WIDE, tile, COLUMNS_ + PAD);
    }
};

// Hopper's `wgmma`: a warpgroup reads both operands from shared memory, 64 rows of x against 8·WIDE of
// w. Its sums are those of `multiply`, bit for bit; not so in fp8, where it keeps fewer bits of a sum, nor
// in tf32, where it truncates what `rounded` rounds.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && (PRODUCT == 1 || PRODUCT == 2 || PRODUCT == 4)
#define GROUPS

#if PRODUCT == 1
#define GROUP_PRODUCT(shape) "wgmma.mma_async.sync.aligned." shape "k16.f32.f16.f16 "
#define GROUP_FLAGS ", 1, 1, 1, 0, 0;"
#define GROUP_SUM(s) "+f"(s)
#elif PRODUCT == 2
#define GROUP_PRODUCT(shape) "wgmma.mma_async.sync.aligned." shape "k16.f32.bf16.bf16 "
#define GROUP_FLAGS ", 1, 1, 1, 0, 0;"
#define GROUP_SUM(s) "+f"(s)
#else
#define GROUP_PRODUCT(shape) "wgmma.mma_async.sync.aligned." shape "k32.s32.s8.s8 "
#define GROUP_FLAGS ", 1;"
#define GROUP_SUM(s) "+r"(s)
#endif
#define FOUR_SUMS(n) GROUP_SUM(sums[n][0]), GROUP_SUM(sums[n][1]), GROUP_SUM(sums[n][2]), GROUP_SUM(sums[n][3])

__device__ __forceinline__ void multiply_group(sum_t (&sums)[2][4], u64 x, u64 w) {
    asm volatile(GROUP_PRODUCT("m64n16") "{%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9" GROUP_FLAGS
                 : FOUR_SUMS(0), FOUR_SUMS(1)
                 : "l"(x), "l"(w));
}

__device__ __forceinline__ void multiply_group(sum_t (&sums)[4][4], u64 x, u64 w) {
    asm volatile(GROUP_PRODUCT("m64n32")
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17" GROUP_FLAGS
                 : FOUR_SUMS(0), FOUR_SUMS(1), FOUR_SUMS(2), FOUR_SUMS(3)
                 : "l"(x), "l"(w));
}

__device__ __forceinline__ void multiply_group(sum_t (&sums)[8][4], u64 x, u64 w) {
    asm volatile(GROUP_PRODUCT("m64n64")
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33" GROUP_FLAGS
                 : FOUR_SUMS(0), FOUR_SUMS(1), FOUR_SUMS(2), FOUR_SUMS(3), FOUR_SUMS(4), FOUR_SUMS(5), FOUR_SUMS(6),
                   FOUR_SUMS(7)
                 : "l"(x), "l"(w));
}

__device__ __forceinline__ void multiply_group(sum_t (&sums)[16][4], u64 x, u64 w) {
    asm volatile(GROUP_PRODUCT("m64n128")
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
                 "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
                 "%62, %63}, %64, %65" GROUP_FLAGS
                 : FOUR_SUMS(0), FOUR_SUMS(1), FOUR_SUMS(2), FOUR_SUMS(3), FOUR_SUMS(4), FOUR_SUMS(5), FOUR_SUMS(6),
                   FOUR_SUMS(7), FOUR_SUMS(8), FOUR_SUMS(9), FOUR_SUMS(10), FOUR_SUMS(11), FOUR_SUMS(12),
                   FOUR_SUMS(13), FOUR_SUMS(14), FOUR_SUMS(15)
                 : "l"(x), "l"(w));
}

// `CUtensorMap`: TMA's descriptor of a matrix of bytes, made by the driver.
struct __align__(64) Map {
    u64 words[16];
};

__device__ __forceinline__ u32 shared_place(const void *at) { return (u32)__cvta_generic_to_shared(at); }

// An mbarrier in shared memory: its phase ends when `arrivals` have arrived and all expected bytes have
// been copied.
struct Barrier {
    u64 state;

    __device__ __forceinline__ void init(u32 arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(this)), "r"(arrivals));
    }
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_place(this)) : "memory");
    }
    __device__ __forceinline__ void arrive_expecting(u32 bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(this)), "r"(bytes) : "memory");
    }
    // Waits for the end of the phase of this parity.
    __device__ __forceinline__ void wait(u32 parity) {
        asm volatile("{\n"
                     ".reg .pred done;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                     "@!done bra again;\n"
                     "}" ::"r"(shared_place(this)), "r"(parity) : "memory");
    }
};

// Issues the TMA copy of a box of the matrix, from byte `at` of row `row` on. What lies outside is zero.
__device__ __forceinline__ void tma_copy(u8 *to, const Map &map, u32 at, u32 row, Barrier &barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     shared_place(to)),
                 "l"(&map), "r"(at), "r"(row), "r"(shared_place(&barrier))
                 : "memory");
}

// Transposes four words of four adjacent lanes: lane i gets word i of each.
__device__ __forceinline__ void transpose_lanes(u32 (&v)[4]) {
    bool odd = LANE & 1, upper = LANE & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        u32 got = __shfl_xor_sync(0xffffffffu, odd ? v[i] : v[i + 1], 1);
        v[i] = odd ? got : v[i], v[i + 1] = odd ? v[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 got = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + 2], 2);
        v[i] = upper ? got : v[i], v[i + 2] = upper ? v[i + 2] : got;
    }
}

// Whether a product can have its epilogue in registers. `Linear::tile` asks the same before it takes `product_huge`.
__device__ __forceinline__ bool finishes_in_registers(const Product &p) {
    return p.columns % 8 == 0 && !p.exact_out && p.activation <= 1;
}

// Two adjacent numbers of a list of columns, or zeros.
__device__ __forceinline__ float2 pair_of_columns(const float *list, u32 column, u32 columns) {
    return list && column < columns ? *(const float2 *)(list + column) : make_float2(0.0f, 0.0f);
}

// The epilogue of a warp's 16 rows in registers. Of each four fragments of eight columns a lane has two adjacent columns;
// the four lanes of a row exchange them, so that each loads the residual and stores the result of eight. `bias_of(n)`
// is the bias of the lane's columns of fragment n.
template <int WIDE, typename Bias>
__device__ __forceinline__ void finish_in_registers(const Product &p, const sum_t (&sums)[WIDE][4], u32 first_row, u32 rows,
                                            u32 first_column, Bias bias_of) {
    u32 row = first_row + LANE / 4;
    float least = p.activation ? 0.0f : -INFINITE;
#if PRODUCT >= 4
    float row_scale[2] = {p.x_scale[min(row, rows - 1)], p.x_scale[min(row + 8, rows - 1)]};
#endif
    // The residual is loaded four fragments ahead.
    uint4 residual[2][2];
    u64 at[2] = {(u64)row * p.out_stride, (u64)(row + 8) * p.out_stride};
    auto load_residual = [&](int j) {
        u32 column = first_column + 8 * (j + LANE % 4);
#pragma unroll
        for (int half = 0; half < 2; half++)
            if (p.input && row + 8 * half < rows && column < p.columns)
                residual[j / 4 % 2][half] = *(const uint4 *)(p.input + at[half] + column);
    };
    load_residual(0);
#pragma unroll
    for (int j = 0; j < WIDE; j += 4) {
        if (j + 4 < WIDE) load_residual(j + 4);
        u32 column = first_column + 8 * (j + LANE % 4);
        float2 bias[4];
#pragma unroll
        for (int n = 0; n < 4; n++) bias[n] = bias_of(j + n);
#if PRODUCT >= 4
        float2 scale[4];
#pragma unroll
        for (int n = 0; n < 4; n++) scale[n] = pair_of_columns(p.w_scale, first_column + 8 * (j + n) + LANE % 4 * 2, p.columns);
#endif
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 add[4], out[4];
            if (p.input) {
                *(uint4 *)add = residual[j / 4 % 2][half];
                transpose_lanes(add);
            }
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float a = (float)sums[j + n][2 * half], b = (float)sums[j + n][2 * half + 1];
#if PRODUCT >= 4
                a = scaled(a, row_scale[half], scale[n].x), b = scaled(b, row_scale[half], scale[n].y);
#endif
                a = fmaxf(a + bias[n].x, least), b = fmaxf(b + bias[n].y, least);
                if (p.input) a += up((act)(add[n] & 0xffffu)), b += up((act)(add[n] >> 16));
                out[n] = pair_of(a, b);
            }
            transpose_lanes(out);
            if (row + 8 * half < rows && column < p.columns)
                *(uint4 *)((act *)p.out + at[half] + column) = make_uint4(out[0], out[1], out[2], out[3]);
        }
    }
}

// Rows of the boxes of x and of w, as in their tensor maps.
#define X_BOX 64
#define W_BOX (COLUMNS_ < 64 ? 16 : 64)

// Tiles of ROWS_ by COLUMNS_: a warpgroup for every 64 rows, and one producer warp that issues TMA copies
// some stages ahead. A stage has 128 bytes of every row of x and w, swizzled in pieces of 16 bytes as `wgmma`
// expects them.
template <int ROWS_, int COLUMNS_, int STAGES> struct Grouped {
    static const int MULTIPLIERS = 2 * ROWS_;
    static const int WIDE = COLUMNS_ / 8;
    static const int DEEP = 128;
    static const int STAGE = (ROWS_ + COLUMNS_) * DEEP;
    typedef sum_t Sums[WIDE][4];
    struct Operands {
        const Map &x, &w;
    };

    __device__ __forceinline__ static void copy_x(const Operands &from, u8 *stage, u32 row, u32 step, Barrier &full) {
#pragma unroll
        for (u32 i = 0; i < ROWS_; i += X_BOX) tma_copy(stage + i * DEEP, from.x, step * DEEP, row + i, full);
    }

    __device__ __forceinline__ static void copy_w(const Operands &from, u8 *stage, u32 column, u32 step, Barrier &full) {
        full.arrive_expecting(STAGE);
#pragma unroll
        for (u32 i = 0; i < COLUMNS_; i += W_BOX) tma_copy(stage + (ROWS_ + i) * DEEP, from.w, step * DEEP, column + i, full);
    }

    // Weights do not depend on the previous kernel: the copies of the first are issued before it ends.
    __device__ static void produce(const Operands &from, u8 *shared, u32 row, u32 column, u32 steps, Barrier *full, Barrier *empty) {
        for (u32 i = 0; i < min(STAGES, steps); i++) copy_w(from, shared + i * STAGE, column, i, full[i]);
        after_previous();
        for (u32 i = 0; i < min(STAGES, steps); i++) copy_x(from, shared + i * STAGE, row, i, full[i]);
        for (u32 i = STAGES; i < steps; i++) {
            u32 stage = i % STAGES;
            empty[stage].wait((i / STAGES - 1) % 2);
            copy_w(from, shared + stage * STAGE, column, i, full[stage]);
            copy_x(from, shared + stage * STAGE, row, i, full[stage]);
        }
    }

    // The shared-memory descriptor of `wgmma`: rows of 128 bytes, groups of eight 1024 bytes apart.
    __device__ __forceinline__ static u64 descriptor(u32 at) {
        return (u64)(at >> 4 & 0x3fff) | (u64)1 << 16 | (u64)(8 * DEEP >> 4) << 32 | (u64)1 << 62;
    }

    __device__ __forceinline__ static void consume(u8 *shared, u32 steps, Barrier *full, Barrier *empty, Sums &sums) {
        u32 base = shared_place(shared), group = threadIdx.x / 128;
        for (u32 step = 0; step < steps; step++) {
            u32 stage = step % STAGES, x = base + stage * STAGE + group * 64 * DEEP, w = base + stage * STAGE + ROWS_ * DEEP;
            full[stage].wait(step / STAGES % 2);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (u32 k = 0; k < DEEP; k += 32) multiply_group(sums, descriptor(x + k), descriptor(w + k));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            // While these are in flight the previous stage is free.
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (step > 0 && LANE == 0) empty[(step - 1) % STAGES].arrive();
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        // The compiler does not know that `wgmma` has written the sums only now.
#pragma unroll
        for (int n = 0; n < WIDE; n++) asm volatile("" : FOUR_SUMS(n)::"memory");
    }

    __device__ __forceinline__ static void sums(const Product &p, const Operands &from, u8 *shared, u32 first_row, u32,
                                                u32 first_column, Sums &sums) {
        __shared__ Barrier full[STAGES], empty[STAGES];
        u32 steps = (p.bytes + DEEP - 1) / DEEP;
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 0; i < STAGES; i++) full[i].init(1), empty[i].init(MULTIPLIERS / 32);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
#pragma unroll
        for (int n = 0; n < WIDE; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[n][i] = 0;
        __syncthreads();
        if (threadIdx.x < MULTIPLIERS) {
            after_previous();
            consume(shared, steps, full, empty, sums);
        } else if (LANE == 0) {
            produce(from, shared, first_row, first_column, steps, full, empty);
        }
        __syncthreads();
    }

    __device__ __forceinline__ static void lay_out_all(Sums &sums, float *tile) {
        if (threadIdx.x < MULTIPLIERS) lay_out<WIDE>(sums, threadIdx.x / 32 * 16, 0, tile, COLUMNS_ + PAD);
    }
};

// Very many rows: a persistent kernel, a block a multiprocessor, which computes one tile of 256 by 128 after the other.
// Tiles of this size read the L2 cache three quarters as often as those of 128 by 128, whose speed it limits.
// While a tile is in its epilogue, the first stages of the next are copied. ROWS_FIRST: consecutive tiles are of
// consecutive rows.
template <int STAGES, bool ROWS_FIRST> struct Persistent {
    typedef Grouped<256, 128, STAGES> Tile;
    typedef typename Tile::Operands Operands;
    // A warpgroup has 128 rows, twice 64.
    typedef sum_t Sums[2][Tile::WIDE][4];
    u32 across, down, steps;

    __device__ __forceinline__ Persistent(const Product &p, u32 rows)
        : across((p.columns + 127) / 128), down((rows + 255) / 256), steps((p.bytes + Tile::DEEP - 1) / Tile::DEEP) {}
    __device__ __forceinline__ u32 tiles() const { return across * down; }
    __device__ __forceinline__ u32 row(u32 tile) const { return (ROWS_FIRST ? tile % down : tile / across) * 256; }
    __device__ __forceinline__ u32 column(u32 tile) const { return (ROWS_FIRST ? tile / down : tile % across) * 128; }

    // Weights do not depend on the previous kernel: the copies of the first are issued before it ends.
    __device__ __forceinline__ void produce(const Operands &from, u8 *shared, Barrier *full, Barrier *empty) const {
        u32 ahead = min(STAGES, steps), step = 0;
        for (u32 i = 0; i < ahead; i++) Tile::copy_w(from, shared + i * Tile::STAGE, column(blockIdx.x), i, full[i]);
        after_previous();
        for (u32 tile = blockIdx.x; tile < tiles(); tile += gridDim.x)
            for (u32 k = 0; k < steps; k++, step++) {
                u32 i = step % STAGES;
                if (step >= STAGES) empty[i].wait((step / STAGES - 1) % 2);
                u8 *stage = shared + i * Tile::STAGE;
                if (step >= ahead) Tile::copy_w(from, stage, column(tile), k, full[i]);
                Tile::copy_x(from, stage, row(tile), k, full[i]);
            }
    }

    // A warpgroup's sums of the tile whose first stage is number `step`.
    __device__ __forceinline__ void consume(u8 *shared, u32 step, Barrier *full, Barrier *empty, Sums &sums) const {
        u32 base = shared_place(shared), mine = threadIdx.x / 128 * 128 * Tile::DEEP;
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < Tile::WIDE; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) sums[m][n][i] = 0;
        for (u32 k = 0; k < steps; k++, step++) {
            u32 i = step % STAGES, stage = base + i * Tile::STAGE, x = stage + mine, w = stage + 256 * Tile::DEEP;
            full[i].wait(step / STAGES % 2);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (u32 at = 0; at < Tile::DEEP; at += 32)
#pragma unroll
                for (int m = 0; m < 2; m++)
                    multiply_group(sums[m], Tile::descriptor(x + m * 64 * Tile::DEEP + at), Tile::descriptor(w + at));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            // While these are in flight the previous stage is free.
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (k > 0 && LANE == 0) empty[(step - 1) % STAGES].arrive();
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (LANE == 0) empty[(step - 1) % STAGES].arrive();
        // The compiler does not know that `wgmma` has written the sums only now.
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < Tile::WIDE; n++)
                asm volatile("" : GROUP_SUM(sums[m][n][0]), GROUP_SUM(sums[m][n][1]), GROUP_SUM(sums[m][n][2]),
                             GROUP_SUM(sums[m][n][3])::"memory");
    }

    // `finish(sums, row, column, prepared)` is the epilogue of a warpgroup's 128 rows; `prepare(row, column)` loads what it
    // reads before the sums are there.
    template <typename Prepare, typename Finish>
    __device__ __forceinline__ void run(const Operands &from, u8 *shared, Prepare prepare, Finish finish) const {
        __shared__ Barrier full[STAGES], empty[STAGES];
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 0; i < STAGES; i++) full[i].init(1), empty[i].init(8);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        __syncthreads();
        // The 65,536 registers of a multiprocessor: 128 threads have 40, and 256 have 232 for 128 sums and the epilogue.
        if (threadIdx.x >= 256) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
            if (threadIdx.x == 256) produce(from, shared, full, empty);
        } else {
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
            after_previous();
            Sums sums;
            u32 step = 0;
            for (u32 tile = blockIdx.x; tile < tiles(); tile += gridDim.x, step += steps) {
                u32 first = row(tile) + threadIdx.x / 128 * 128;
                auto prepared = prepare(first, column(tile));
                consume(shared, step, full, empty, sums);
                finish(sums, first, column(tile), prepared);
            }
        }
    }
};

#define MAPS , const __grid_constant__ Map x, const __grid_constant__ Map w
#define OPERANDS {x, w}
// Threads of the producer warp.
#define PRODUCER 32
typedef Grouped<64, 16, 8> Thin;
typedef Grouped<64, 32, 6> Slim;
typedef Grouped<64, 64, 5> Middle;
typedef Grouped<128, 64, 4> Tall;
typedef Grouped<128, 128, 3> Large;
typedef Grouped<64, 128, 3> MiddleBest;
#else
typedef Wide<64, 16, 4, 1, 8> Thin;
typedef Wide<64, 32, 2, 2, 6> Slim;
typedef Wide<64, 64, 2, 2, 5> Middle;
typedef Wide<128, 64, 4, 2, 4> Tall;
typedef Wide<128, 128, 2, 4, 3> Large;
typedef Wide<64, 128, 2, 2, 3> MiddleBest;
#define MAPS
#define OPERANDS {}
#define PRODUCER 0
#endif

template <typename Tile, int ROWS_, int COLUMNS_>
__device__ __forceinline__ void wide(const Product &p, const typename Tile::Operands &from) {
    extern __shared__ __align__(1024) u8 tiles[];
    let_next_begin();
    u32 rows = *p.count;
    u32 first_row = blockIdx.y * ROWS_, first_column = blockIdx.x * COLUMNS_;
    if (first_row >= rows) return;
    typename Tile::Sums sums;
    Tile::sums(p, from, tiles, first_row, rows, first_column, sums);
#ifdef GROUPS
    if constexpr (Tile::WIDE % 4 == 0)
        if (finishes_in_registers(p)) {
            auto bias = [&](int n) { return pair_of_columns(p.bias, first_column + 8 * n + LANE % 4 * 2, p.columns); };
            if (threadIdx.x < Tile::MULTIPLIERS)
                finish_in_registers(p, sums, first_row + threadIdx.x / 32 * 16, rows, first_column, bias);
            return;
        }
#endif
    float *tile = (float *)tiles;
    Tile::lay_out_all(sums, tile);
    __syncthreads();
    finish_tile<COLUMNS_>(p, tile, COLUMNS_ + PAD, first_row, min((u32)ROWS_, rows - first_row), first_column);
}

#define WIDE_PRODUCT(name, threads, blocks, Tile, rows, columns)                                                                \
    extern "C" __global__ void __launch_bounds__(threads + PRODUCER, blocks) product_##name(const __grid_constant__ Product p MAPS) {\
        wide<Tile, rows, columns>(p, OPERANDS);                                                                                 \
    }
WIDE_PRODUCT(thin, 128, 1, Thin, 64, 16)
WIDE_PRODUCT(slim, 128, 1, Slim, 64, 32)
WIDE_PRODUCT(middle, 128, 1, Middle, 64, 64)
WIDE_PRODUCT(tall, 256, 1, Tall, 128, 64)
WIDE_PRODUCT(large, 256, 2, Large, 128, 128)

// Very many rows, on Hopper only.
#define PERSISTENT_THREADS 384
extern "C" __global__ void __launch_bounds__(PERSISTENT_THREADS, 1) product_huge(const __grid_constant__ Product p MAPS) {
#ifdef GROUPS
    extern __shared__ __align__(1024) u8 stages[];
    let_next_begin();
    u32 rows = *p.count;
    typedef Persistent<4, false> Tiles;
    Tiles tiles(p, rows);
    if (blockIdx.x >= tiles.tiles()) return;
    struct Bias {
        float2 of[16];
    };
    auto prepare = [&](u32, u32 first_column) {
        Bias bias;
#pragma unroll
        for (int n = 0; n < 16; n++) bias.of[n] = pair_of_columns(p.bias, first_column + 8 * n + LANE % 4 * 2, p.columns);
        return bias;
    };
    tiles.run(OPERANDS, stages, prepare, [&](const Tiles::Sums &sums, u32 first_row, u32 first_column, const Bias &bias) {
#pragma unroll
        for (int m = 0; m < 2; m++)
            finish_in_registers(p, sums[m], first_row + 64 * m + threadIdx.x / 32 % 4 * 16, rows, first_column,
                        [&](int n) { return bias.of[n]; });
    });
#endif
}

#endif
