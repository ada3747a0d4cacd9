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

// Up to eight rows, where latency from kernel to kernel is all that counts. A block has eight columns. Their weights,
// which do not depend on the previous kernel, are on their way to shared memory before that ends, and the bias is in
// registers. Then all warps load the rows of x, and one multiplies. In the epilogue a lane has the eight columns of a row.
#define FEW_WARPS 4
#define FEW_COLUMNS 8
extern __shared__ __align__(16) u8 few_rows[];

// `cp.async` copies sixteen bytes to shared memory. `bytes` is 0 for what does not exist and becomes zero.
__device__ __forceinline__ void copy_async(u8 *to, const u8 *from, u32 bytes) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes));
}

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

// A chunk of rows of x against one of w, both in shared memory.
__device__ __forceinline__ void multiply_shared(sum_t *sums, const u8 *x, const u8 *w, u32 chunk) {
    const u8 *x_at = x + chunk * CHUNK, *w_at = w + chunk * CHUNK;
    uint2 a = *(const uint2 *)x_at, b = *(const uint2 *)(x_at + CHUNK / 2);
    uint2 c = *(const uint2 *)w_at, d = *(const uint2 *)(w_at + CHUNK / 2);
    multiply_chunk(sums, rounded4(make_uint4(a.x, a.y, b.x, b.y)), make_uint4(0, 0, 0, 0), make_uint4(c.x, c.y, d.x, d.y));
}

// `fill` waits for the previous kernel and leaves rows in shared memory.
template <typename Fill> __device__ __forceinline__ void few(const Product &p, u8 *rows, Fill fill) {
    u32 lane = LANE, column = blockIdx.x * FEW_COLUMNS, chunks = (p.bytes + CHUNK - 1) / CHUNK, stride = few_stride(p);
    u8 *weights = rows + 8 * stride;
    for (u32 i = threadIdx.x; i < FEW_COLUMNS * chunks * (CHUNK / 16); i += 32 * FEW_WARPS) {
        u32 n = i / (chunks * (CHUNK / 16)), at = i % (chunks * (CHUNK / 16)) * 16;
        copy_async(weights + n * stride + at, p.w + (u64)min(column + n, p.columns - 1) * p.w_stride + at, 16);
    }
    bool whole = column + FEW_COLUMNS <= p.columns && p.columns % 8 == 0 && !p.exact_out, first = threadIdx.x < 32;
    Eight bias, input;
#pragma unroll
    for (int k = 0; k < 8; k++) bias.v[k] = first && whole && p.bias ? p.bias[column + k] : 0.0f, input.v[k] = 0.0f;
    fill();
    // Eight rows can always be read, whatever is in them.
    if (first && whole && p.input) input = load8(p.input + (u64)(lane % 8) * p.out_stride + column);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    if (!first) return;
    const u8 *x = rows + lane / 4 * stride + (lane % 4) * 8, *w = weights + lane / 4 * stride + (lane % 4) * 8;
    sum_t sums[1][4] = {{0, 0, 0, 0}};
    // Without a branch between chunks, the next one is read during the mma instructions.
    const u32 STEP = 8;
    u32 chunk = 0;
    for (; chunk + STEP <= chunks; chunk += STEP)
#pragma unroll
        for (u32 i = 0; i < STEP; i++) multiply_shared(sums[0], x, w, chunk + i);
    for (; chunk < chunks; chunk++) multiply_shared(sums[0], x, w, chunk);
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
