// Products on tensor cores: out[r][n] = Σ x[r][k] · w[n][k], one loop for every precision.
//
// PRODUCT is the precision: 1 float16, 2 bfloat16, 3 tf32, 4 int8, 5 fp8 (e4m3). In each of them an mma
// instruction takes 32 bytes of k, in the order of memory, whatever the tile: a row's result does not
// depend on the number of rows. Within the 32 bytes the order does not matter (the hardware adds them
// at once), so four lanes load eight bytes each. 64 bytes, which feed two instructions, are a *chunk*.
//
// 0 is float32 on CUDA cores (no tensor cores), each sum in the order of k.

#if PRODUCT == 4
typedef int sum_t;
#else
typedef float sum_t;
#endif

#if PRODUCT == 0 || PRODUCT == 3
#define SIZE 4
#elif PRODUCT == 1 || PRODUCT == 2
#define SIZE 2
#else
#define SIZE 1
#endif

#define CHUNK 64

// Padding of the rows of a tile in shared memory, against bank conflicts.
#define PAD 8

// A product's operands and epilogue. Rows of w are padded with zeros to whole chunks, rows of x to 16 columns.
struct Product {
    const u8 *x;       // activations, or their quantised form
    const u8 *w;
    const float *x_scale; // quantisation scales of rows of x and of rows of w, in quantised precisions
    const float *w_scale;
    const float *bias;
    const act *input;  // the residual, added at the end; rows as wide as out
    void *out;
    const u32 *words;  // the row of w of each column (a shortlist), or 0
    const u32 *count;
    u32 x_stride;      // bytes
    u32 w_stride;      // bytes
    u32 bytes;         // of a row of x, a multiple of 16
    u32 columns;
    u32 out_stride;    // elements
    u32 activation;
    u32 exact_out;     // write float32, whatever rows are stored in
};

// Dequantises a sum. With fused multiply-adds of the compiler some kernels would round once less.
__device__ __forceinline__ float scaled(float sum, float x_scale, float w_scale) {
    return __fmul_rn(sum, __fmul_rn(x_scale, w_scale));
}

__device__ __forceinline__ float finish(const Product &p, u32 row, u32 column, float v) {
#if PRODUCT >= 4
    v = scaled(v, p.x_scale[row], p.w_scale[p.words ? p.words[column] : column]);
#endif
    if (p.bias) v += p.bias[p.words ? p.words[column] : column];
    v = activate(p.activation, v);
    if (p.input) v += up(p.input[(u64)row * p.out_stride + column]);
    return v;
}

__device__ __forceinline__ void put(const Product &p, u32 row, u32 column, float v) {
    u64 at = (u64)row * p.out_stride + column;
    if (p.exact_out)
        ((float *)p.out)[at] = v;
    else
        ((act *)p.out)[at] = down(v);
}

// The epilogue of a tile of `rows` by COLUMNS: eight adjacent columns a thread if rows are aligned for
// that, else one.
template <int COLUMNS>
__device__ __forceinline__ void finish_tile(const Product &p, const float *tile, u32 stride, u32 first_row, u32 rows,
                                            u32 first_column) {
    const u32 EIGHTS = COLUMNS / 8;
    if (p.columns % 8 || p.exact_out) {
        for (u32 i = threadIdx.x; i < rows * COLUMNS; i += blockDim.x) {
            u32 r = i / COLUMNS, c = i % COLUMNS;
            if (first_column + c < p.columns) {
                float v = finish(p, first_row + r, first_column + c, tile[r * stride + c]);
                put(p, first_row + r, first_column + c, v);
            }
        }
        return;
    }
    for (u32 i = threadIdx.x; i < rows * EIGHTS; i += blockDim.x) {
        u32 row = i / EIGHTS, c = i % EIGHTS * 8, column = first_column + c;
        if (column >= p.columns) continue;
        const float *from = tile + row * stride + c;
        row += first_row;
        float4 left = ((const float4 *)from)[0], right = ((const float4 *)from)[1];
        Eight e = {left.x, left.y, left.z, left.w, right.x, right.y, right.z, right.w};
#if PRODUCT >= 4
#pragma unroll
        for (int k = 0; k < 8; k++) e.v[k] = scaled(e.v[k], p.x_scale[row], p.w_scale[column + k]);
#endif
        if (p.bias) {
#pragma unroll
            for (int k = 0; k < 8; k++) e.v[k] += p.bias[column + k];
        }
        if (p.activation) {
#pragma unroll
            for (int k = 0; k < 8; k++) e.v[k] = activate(p.activation, e.v[k]);
        }
        u64 at = (u64)row * p.out_stride + column;
        if (p.input) {
            Eight add = load8(p.input + at);
#pragma unroll
            for (int k = 0; k < 8; k++) e.v[k] += add.v[k];
        }
        store8((act *)p.out + at, e);
    }
}

#if PRODUCT != 0

__device__ __forceinline__ u32 rounded(u32 bits) {
#if PRODUCT == 3
    u32 r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(__uint_as_float(bits)));
    return r;
#else
    return bits;
#endif
}

__device__ __forceinline__ void multiply(sum_t *s, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if PRODUCT == 1
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#elif PRODUCT == 2
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#elif PRODUCT == 3
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#elif PRODUCT == 4
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#else
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
#endif
#if PRODUCT == 4
                 : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
#else
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
#endif
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A chunk of two rows of x against one of w, for a lane: two instructions.
__device__ __forceinline__ void multiply_chunk(sum_t *s, uint4 top, uint4 bottom, uint4 w) {
    multiply(s, top.x, bottom.x, top.y, bottom.y, w.x, w.y);
    multiply(s, top.z, bottom.z, top.w, bottom.w, w.z, w.w);
}

__device__ __forceinline__ uint4 rounded4(uint4 v) {
    v.x = rounded(v.x), v.y = rounded(v.y), v.z = rounded(v.z), v.w = rounded(v.w);
    return v;
}

// Prefetches a row of w into the L2 cache from byte `from` on, by the four lanes that share it (`part` is
// a lane's eight bytes).
__device__ __forceinline__ void prefetch_row(const Product &p, const u8 *w, u32 part, u32 from) {
    for (u32 at = from + part / 8 * 128; at < p.w_stride; at += 4 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(w - part + at));
}

// Few rows: one warp computes 16 rows by 8·WIDE columns from registers, without shared memory, STEP
// chunks at a time while the next STEP are loaded (double buffering). Rows beyond the last repeat it and
// are not written; with eight rows or fewer the lower eight rows of the mma fragment are zero (FEW). The
// weights do not depend on the previous kernel: before it ends the first are in registers, and the others
// on their way to the L2 cache.
template <int WIDE, int STEP> struct Chunks {
    uint4 w[STEP][WIDE], top[STEP], bottom[STEP];
};

// A lane's part of a chunk of w: eight bytes of each 32.
__device__ __forceinline__ uint4 read_chunk(const u8 *at) {
    uint2 a = __ldg((const uint2 *)at), b = __ldg((const uint2 *)(at + CHUNK / 2));
    return make_uint4(a.x, a.y, b.x, b.y);
}

template <int WIDE, int STEP>
__device__ __forceinline__ void read_w(Chunks<WIDE, STEP> &c, const u8 *const (&w)[WIDE], u32 chunk, u32 chunks) {
#pragma unroll
    for (int i = 0; i < STEP; i++)
#pragma unroll
        for (int n = 0; n < WIDE; n++) c.w[i][n] = read_chunk(w[n] + min(chunk + i, chunks - 1) * CHUNK);
}

// Eight bytes of a row of x. Beyond its end they meet weights of zero and must not be infinite.
__device__ __forceinline__ uint2 read_eight(const u8 *row, u32 at, u32 bytes) {
    uint2 v = *(const uint2 *)(row + min(at, bytes - 8));
    return at < bytes ? v : make_uint2(0, 0);
}

template <int WIDE, int STEP, bool FEW>
__device__ __forceinline__ void read_x(Chunks<WIDE, STEP> &c, const u8 *top, const u8 *bottom, u32 chunk, u32 bytes) {
#pragma unroll
    for (int i = 0; i < STEP; i++) {
        u32 first = (chunk + i) * CHUNK + (threadIdx.x % 4) * 8, second = first + CHUNK / 2;
        uint2 a = read_eight(top, first, bytes), b = read_eight(top, second, bytes);
        c.top[i] = make_uint4(a.x, a.y, b.x, b.y);
        if (FEW) {
            c.bottom[i] = make_uint4(0, 0, 0, 0);
        } else {
            a = read_eight(bottom, first, bytes), b = read_eight(bottom, second, bytes);
            c.bottom[i] = make_uint4(a.x, a.y, b.x, b.y);
        }
    }
}

template <int WIDE, int STEP>
__device__ __forceinline__ void multiply_chunks(const Chunks<WIDE, STEP> &c, sum_t (&sums)[WIDE][4]) {
#pragma unroll
    for (int i = 0; i < STEP; i++)
#pragma unroll
        for (int n = 0; n < WIDE; n++) multiply_chunk(sums[n], rounded4(c.top[i]), rounded4(c.bottom[i]), c.w[i][n]);
}

template <int WIDE, int STEP, bool FEW>
__device__ __forceinline__ void narrow_sums(const Product &p, u32 first_row, u32 end_row, u32 first_column,
                                            sum_t (&sums)[WIDE][4]) {
    u32 lane = threadIdx.x % 32, part = (lane % 4) * 8;
    u32 chunks = (p.bytes + CHUNK - 1) / CHUNK;
    const u8 *w[WIDE];
#pragma unroll
    for (int n = 0; n < WIDE; n++) {
        u32 column = min(first_column + 8 * n + lane / 4, p.columns - 1);
        w[n] = p.w + (u64)(p.words ? p.words[column] : column) * p.w_stride + part;
    }
    Chunks<WIDE, STEP> now, next;
    read_w<WIDE, STEP>(now, w, 0, chunks);
#pragma unroll
    for (int n = 0; n < WIDE; n++) prefetch_row(p, w[n], part, STEP * CHUNK);
    after_previous();
    const u8 *top = p.x + (u64)min(first_row + lane / 4, end_row - 1) * p.x_stride;
    const u8 *bottom = p.x + (u64)min(first_row + lane / 4 + 8, end_row - 1) * p.x_stride;
    read_x<WIDE, STEP, FEW>(now, top, bottom, 0, p.bytes);
#pragma unroll
    for (int n = 0; n < WIDE; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0;
    for (u32 chunk = STEP; chunk < chunks; chunk += STEP) {
        read_w<WIDE, STEP>(next, w, chunk, chunks);
        read_x<WIDE, STEP, FEW>(next, top, bottom, chunk, p.bytes);
        multiply_chunks<WIDE, STEP>(now, sums);
        now = next;
    }
    multiply_chunks<WIDE, STEP>(now, sums);
}

// Writes a warp's sums (an mma fragment) to a tile of shared memory, from which a loop that is not
// unrolled computes the epilogue. A lane has two adjacent columns of rows lane/4 and lane/4 + 8.
template <int WIDE>
__device__ __forceinline__ void lay_out(const sum_t (&sums)[WIDE][4], u32 first_row, u32 first_column, float *tile, u32 stride) {
    u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < WIDE; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(float2 *)(tile + (first_row + lane / 4 + 8 * i) * stride + first_column + 8 * n + 2 * (lane % 4)) =
                make_float2((float)sums[n][2 * i], (float)sums[n][2 * i + 1]);
}

// Up to eight rows, where latency from kernel to kernel is all that counts. A block has eight columns. Its
// warps load the rows of x into shared memory; one warp multiplies. What does not depend on the previous
// kernel is prefetched before that ends: as many weights as registers hold, the others into the L2 cache,
// and the bias. In the epilogue a lane has the eight columns of a row.
#define FEW_WARPS 4
// Chunks of w in flight.
#define RING 16
extern __shared__ __align__(16) u8 few_rows[];

// Bytes from row to row in shared memory, padded against bank conflicts of the eight rows a warp reads.
__device__ __forceinline__ u32 few_stride(const Product &p) { return (p.bytes + CHUNK - 1) / CHUNK * CHUNK + CHUNK / 2; }

__device__ __forceinline__ void finish_few(const Product &p, sum_t (&sums)[1][4], const Eight &bias, const Eight &input,
                                           bool whole) {
    __shared__ float tile[16 * 10];
    u32 lane = LANE, column = blockIdx.x * 8, rows = *p.count;
    lay_out<1>(sums, 0, 0, tile, 10);
    __syncwarp();
    if (!whole) {
        for (u32 i = lane; i < rows * 8; i += 32)
            if (column + i % 8 < p.columns)
                put(p, i / 8, column + i % 8, finish(p, i / 8, column + i % 8, tile[i / 8 * 10 + i % 8]));
        return;
    }
    if (lane >= rows) return;
    Eight e;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        e.v[k] = tile[lane * 10 + k];
#if PRODUCT >= 4
        e.v[k] = scaled(e.v[k], p.x_scale[lane], p.w_scale[column + k]);
#endif
        e.v[k] = activate(p.activation, e.v[k] + bias.v[k]) + input.v[k];
    }
    store8((act *)p.out + (u64)lane * p.out_stride + column, e);
}

// `fill` waits for the previous kernel and leaves rows in shared memory.
template <typename Fill> __device__ __forceinline__ void few(const Product &p, const u8 *rows, Fill fill) {
    u32 lane = LANE, column = blockIdx.x * 8, chunks = (p.bytes + CHUNK - 1) / CHUNK;
    if (threadIdx.x >= 32) {
        fill();
        __syncthreads();
        return;
    }
    bool whole = column + 8 <= p.columns && p.columns % 8 == 0 && !p.exact_out;
    Eight bias, input;
#pragma unroll
    for (int k = 0; k < 8; k++) bias.v[k] = whole && p.bias ? p.bias[column + k] : 0.0f, input.v[k] = 0.0f;
    const u8 *w = p.w + (u64)min(column + lane / 4, p.columns - 1) * p.w_stride + (lane % 4) * 8;
    uint4 ring[RING];
#pragma unroll
    for (u32 i = 0; i < RING; i++) ring[i] = read_chunk(w + min(i, chunks - 1) * CHUNK);
    prefetch_row(p, w, (lane % 4) * 8, RING * CHUNK);
    fill();
    // Eight rows can always be read, whatever is in them.
    if (whole && p.input) input = load8(p.input + (u64)(lane % 8) * p.out_stride + column);
    __syncthreads();
    const u8 *x = rows + lane / 4 * few_stride(p) + (lane % 4) * 8;
    uint4 nothing = make_uint4(0, 0, 0, 0);
    sum_t sums[1][4] = {{0, 0, 0, 0}};
    for (u32 base = 0; base < chunks; base += RING)
#pragma unroll
        for (u32 i = 0; i < RING; i++) {
            u32 chunk = base + i, next = chunk + RING;
            if (chunk >= chunks) break;
            uint2 a = *(const uint2 *)(x + chunk * CHUNK), b = *(const uint2 *)(x + chunk * CHUNK + CHUNK / 2);
            multiply_chunk(sums[0], rounded4(make_uint4(a.x, a.y, b.x, b.y)), nothing, ring[i]);
            if (next < chunks) ring[i] = read_chunk(w + next * CHUNK);
        }
    finish_few(p, sums, bias, input, whole);
}

extern "C" __global__ void __launch_bounds__(128) product_few(Product p) {
    let_next_begin();
    few(p, few_rows, [&] {
        after_previous();
        u32 stride = few_stride(p), pieces = (stride - CHUNK / 2) / 16;
        for (u32 i = threadIdx.x; i < *p.count * pieces; i += 32 * FEW_WARPS) {
            u32 row = i / pieces, at = i % pieces * 16;
            uint4 v = *(const uint4 *)(p.x + (u64)row * p.x_stride + min(at, p.bytes - 16));
            *(uint4 *)(few_rows + row * stride + at) = at < p.bytes ? v : make_uint4(0, 0, 0, 0);
        }
    });
}

// Up to eight rows that are still to be normalised: every block normalises them itself, a warp a row, which
// saves a kernel; the first block also writes them to x. `raw` has rows like x.
template <int KEPT> __device__ __forceinline__ void few_normed(const Product &p, const act *raw, const Norm &norm, u32 width) {
    let_next_begin();
    NormPart<KEPT> part = norm_part<KEPT>(norm, width);
    few(p, few_rows, [&] {
        after_previous();
        for (u32 row = threadIdx.x / 32; row < *p.count; row += FEW_WARPS) {
            act *out = blockIdx.x == 0 ? (act *)(p.x + (u64)row * p.x_stride) : 0;
            act *here = (act *)(few_rows + row * few_stride(p));
            norm_row<KEPT>(raw + (u64)row * (p.x_stride / sizeof(act)), 0, here, out, norm, part, width);
        }
    });
}

extern "C" __global__ void __launch_bounds__(128) product_normed_512(Product p, const act *raw, Norm norm, u32 width) {
    few_normed<2>(p, raw, norm, width);
}
extern "C" __global__ void __launch_bounds__(128) product_normed_1024(Product p, const act *raw, Norm norm, u32 width) {
    few_normed<4>(p, raw, norm, width);
}

// Many rows: `cp.async` copies tiles of x and w to shared memory, some stages ahead. `bytes` is 0 for what
// does not exist and becomes zero.
__device__ __forceinline__ void copy_async(u8 *to, const u8 *from, u32 bytes) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes));
}

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

// The epilogue of a warp's 16 rows from registers. Of each four fragments of eight columns a lane has two adjacent
// columns; the four lanes of a row exchange them, so that each loads the residual and stores the result of eight.
__device__ __forceinline__ bool finishes_sums(const Product &p) {
    return p.columns % 8 == 0 && !p.exact_out && p.activation <= 1;
}

// The two numbers of a list of columns that a lane needs of a fragment.
__device__ __forceinline__ float2 of_columns(const float *list, u32 column, u32 columns) {
    return list && column < columns ? *(const float2 *)(list + column) : make_float2(0.0f, 0.0f);
}

// `bias_of(n)` is the bias of the lane's columns of fragment n.
template <int WIDE, typename Bias>
__device__ __forceinline__ void finish_sums(const Product &p, const sum_t (&sums)[WIDE][4], u32 first_row, u32 rows,
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
        for (int n = 0; n < 4; n++) scale[n] = of_columns(p.w_scale, first_column + 8 * (j + n) + LANE % 4 * 2, p.columns);
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
    static const int BYTES = STAGES * Tile::STAGE;
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
        if (finishes_sums(p)) {
            auto bias = [&](int n) { return of_columns(p.bias, first_column + 8 * n + LANE % 4 * 2, p.columns); };
            if (threadIdx.x < Tile::MULTIPLIERS)
                finish_sums(p, sums, first_row + threadIdx.x / 32 * 16, rows, first_column, bias);
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
        for (int n = 0; n < 16; n++) bias.of[n] = of_columns(p.bias, first_column + 8 * n + LANE % 4 * 2, p.columns);
        return bias;
    };
    tiles.run(OPERANDS, stages, prepare, [&](const Tiles::Sums &sums, u32 first_row, u32 first_column, const Bias &bias) {
#pragma unroll
        for (int m = 0; m < 2; m++)
            finish_sums(p, sums[m], first_row + 64 * m + threadIdx.x / 32 % 4 * 16, rows, first_column,
                        [&](int n) { return bias.of[n]; });
    });
#endif
}

#else

// Float32 on CUDA cores: a block computes 64 columns of TALL·16 rows, a thread 4 columns of TALL rows.
template <int TALL>
__device__ __forceinline__ void plain_sums(const Product &p, u32 first_row, u32 rows, u32 first_column,
                                           float (&sums)[TALL][4]) {
    const int DEEP = 16;
    __shared__ float xs[DEEP][16 * TALL + 1];
    __shared__ float ws[DEEP][64 + 1];
    u32 k_all = p.bytes / 4, t = threadIdx.x;
#pragma unroll
    for (int m = 0; m < TALL; m++)
#pragma unroll
        for (int n = 0; n < 4; n++) sums[m][n] = 0.0f;
    for (u32 base = 0; base < k_all; base += DEEP) {
        for (u32 i = t; i < 16 * TALL * DEEP; i += 256) {
            u32 row = first_row + i / DEEP, k = base + i % DEEP;
            bool there = row < rows && k < k_all;
            xs[i % DEEP][i / DEEP] = there ? ((const float *)(p.x + (u64)row * p.x_stride))[k] : 0.0f;
        }
        for (u32 i = t; i < 64 * DEEP; i += 256) {
            u32 column = first_column + i / DEEP, k = base + i % DEEP;
            bool there = column < p.columns && k < k_all;
            u32 line = there && p.words ? p.words[column] : column;
            ws[i % DEEP][i / DEEP] = there ? ((const float *)(p.w + (u64)line * p.w_stride))[k] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEEP; k++)
#pragma unroll
            for (int m = 0; m < TALL; m++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    sums[m][n] = fmaf(xs[k][t / 16 + 16 * m], ws[k][t % 16 + 16 * n], sums[m][n]);
        __syncthreads();
    }
}

template <int TALL>
__device__ __forceinline__ void lay_out_plain(float (&sums)[TALL][4], u32 first_column, float *tile, u32 stride) {
#pragma unroll
    for (int m = 0; m < TALL; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
            tile[(threadIdx.x / 16 + 16 * m) * stride + first_column + threadIdx.x % 16 + 16 * n] = sums[m][n];
}

template <int TALL> __device__ __forceinline__ void plain(const Product &p) {
    __shared__ float tile[16 * TALL * (64 + PAD)];
    begin();
    u32 rows = *p.count, first_row = blockIdx.y * 16 * TALL, first_column = blockIdx.x * 64;
    if (first_row >= rows) return;
    float sums[TALL][4];
    plain_sums<TALL>(p, first_row, rows, first_column, sums);
    lay_out_plain<TALL>(sums, 0, tile, 64 + PAD);
    __syncthreads();
    finish_tile<64>(p, tile, 64 + PAD, first_row, min(16u * TALL, rows - first_row), first_column);
}

extern "C" __global__ void __launch_bounds__(256) product_16(Product p) { plain<1>(p); }
extern "C" __global__ void __launch_bounds__(256) product_64(Product p) { plain<4>(p); }

#endif

// Packs weights in the precision of products, one warp a row: float32 in, rows of `stride` bytes out.
// Quantised precisions divide a row by its quantisation scale: its largest absolute value over the largest
// that the precision has.
__device__ __forceinline__ float largest_of(const float *row, u32 k) {
    float most = 0.0f;
    for (u32 i = LANE; i < k; i += 32) most = fmaxf(most, fabsf(row[i]));
    return warp_max(most);
}

#if PRODUCT == 4
#define LARGEST 127.0f
__device__ __forceinline__ u8 quantised(float v) { return (u8)(signed char)min(127, max(-127, __float2int_rn(v))); }
#elif PRODUCT == 5
#define LARGEST 448.0f
__device__ __forceinline__ u8 quantised(float v) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(v));
    return (u8)pair;
}
#endif

extern "C" __global__ void pack(const float *w, u8 *out, u32 stride, float *scales, u32 k, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    w += (u64)row * k;
    out += (u64)row * stride;
#if PRODUCT >= 4
    float scale = largest_of(w, k) / LARGEST, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    if (LANE == 0) scales[row] = scale;
#endif
    for (u32 i = LANE; i < stride / SIZE; i += 32) {
        float v = i < k ? w[i] : 0.0f;
#if PRODUCT == 0
        ((float *)out)[i] = v;
#elif PRODUCT == 3
        ((u32 *)out)[i] = rounded(__float_as_uint(v));
#elif PRODUCT == 1
        ((u16 *)out)[i] = to_float16(v);
#elif PRODUCT == 2
        ((u16 *)out)[i] = to_bfloat16(v);
#else
        out[i] = quantised(v * inverse);
#endif
    }
}

#if PRODUCT >= 4
// Quantises rows of activations, each by its own scale.
extern "C" __global__ void quantise(const act *x, u32 stride, u8 *out, u32 out_stride, float *scales,
                                    u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    x += (u64)row * stride;
    float most = 0.0f;
    for (u32 i = LANE; i < width; i += 32) most = fmaxf(most, fabsf(up(x[i])));
    float scale = warp_max(most) / LARGEST, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    if (LANE == 0) scales[row] = scale;
    for (u32 i = LANE; i < out_stride; i += 32)
        out[(u64)row * out_stride + i] = i < width ? quantised(up(x[i]) * inverse) : (u8)0;
}
#endif
