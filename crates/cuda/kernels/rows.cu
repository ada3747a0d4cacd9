// What happens to rows one by one: embeddings, norms, element-wise steps, moves, recurrent cells.
//
// Kernels for many rows take one warp a row, eight rows a block; `count` is read from memory,
// since a recorded graph serves every number of rows up to its grid.

#define ROW_WARPS 8
#define ROW_OF_WARP (blockIdx.x * ROW_WARPS + threadIdx.x / 32)
#define LANE (threadIdx.x % 32)
#define FOLLOWS 0x80000000u

extern "C" __global__ void embed(act *out, u32 stride, const float *table, u32 words, u32 width,
                                 const u32 *ids, const u32 *latest, const float *positions, const u32 *at,
                                 float scale, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    u32 id = ids[row];
    // A row that follows another: the word is that row's best.
    if (id & FOLLOWS && id != NONE) id = latest[id & ~FOLLOWS];
    const float *from = table + (u64)id * width;
    const float *position = positions + (u64)(positions ? at[row] : 0) * width;
    bool known = id < words;
    if (!known) from = table;
    out += (u64)row * stride;
    if (width % 4 == 0) {
        float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
        for (u32 i = 4 * LANE; i < width; i += 128) {
            float4 v = *(const float4 *)(from + i), p = positions ? *(const float4 *)(position + i) : none;
            if (!known) v = none;
            out[i] = down(v.x * scale + p.x), out[i + 1] = down(v.y * scale + p.y);
            out[i + 2] = down(v.z * scale + p.z), out[i + 3] = down(v.w * scale + p.w);
        }
        return;
    }
    for (u32 i = LANE; i < width; i += 32)
        out[i] = down((known ? from[i] * scale : 0.0f) + (positions ? position[i] : 0.0f));
}

struct Norm {
    const float *scale; // missing: no norm at all
    const float *bias;
    float epsilon;
    u32 centred;
};

// A lane's part of a norm's parameters, for up to 256·KEPT columns. They do not depend on the kernel
// before.
template <int KEPT> struct NormPart {
    float4 scale[2 * KEPT], bias[2 * KEPT];
};

template <int KEPT> __device__ __forceinline__ NormPart<KEPT> norm_part(const Norm &norm, u32 width) {
    NormPart<KEPT> part;
#pragma unroll
    for (int j = 0; j < 2 * KEPT; j++) {
        u32 i = 8 * (LANE + 32 * (j / 2)) + 4 * (j % 2);
        bool there = i < width && norm.scale;
        float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        part.scale[j] = there ? *(const float4 *)(norm.scale + i) : none;
        part.bias[j] = there && norm.bias ? *(const float4 *)(norm.bias + i) : none;
    }
    return part;
}

__device__ __forceinline__ float of_four(const float4 &v, int k) { return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w; }

// `out = norm(x + input)` of one row by one warp; `input` and a second `out` may be missing. The
// variance is taken of differences from the mean, as the CPU does. The row, whose width is a
// multiple of eight, stays in registers.
template <int KEPT>
__device__ __forceinline__ void norm_row(const act *x, const act *input, act *out, act *second_out, const Norm &norm,
                                         const NormPart<KEPT> &part, u32 width) {
    Eight kept[KEPT];
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        u32 i = 8 * (LANE + 32 * j);
        if (i < width) kept[j] = load8(x + i);
    }
    if (input) {
#pragma unroll
        for (int j = 0; j < KEPT; j++) {
            u32 i = 8 * (LANE + 32 * j);
            if (i < width) {
                Eight e = load8(input + i);
#pragma unroll
                for (int k = 0; k < 8; k++) kept[j].v[k] += e.v[k];
            }
        }
    }
    if (norm.scale) {
        float mean = 0.0f, sum = 0.0f, square = 0.0f;
#pragma unroll
        for (int j = 0; j < KEPT; j++)
            if (8 * (LANE + 32 * j) < width)
#pragma unroll
                for (int k = 0; k < 8; k++) sum += kept[j].v[k];
        if (norm.centred) mean = warp_sum(sum) / (float)width;
#pragma unroll
        for (int j = 0; j < KEPT; j++)
            if (8 * (LANE + 32 * j) < width)
#pragma unroll
                for (int k = 0; k < 8; k++) square = fmaf(kept[j].v[k] - mean, kept[j].v[k] - mean, square);
        float factor = 1.0f / sqrtf(warp_sum(square) / (float)width + norm.epsilon);
#pragma unroll
        for (int j = 0; j < KEPT; j++)
#pragma unroll
            for (int k = 0; k < 8; k++)
                kept[j].v[k] = fmaf(__fmul_rn(kept[j].v[k] - mean, factor), of_four(part.scale[2 * j + k / 4], k % 4),
                                    of_four(part.bias[2 * j + k / 4], k % 4));
    }
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        u32 i = 8 * (LANE + 32 * j);
        if (i < width) {
            store8(out + i, kept[j]);
            if (second_out) store8(second_out + i, kept[j]);
        }
    }
}

template <int KEPT>
__device__ __forceinline__ void add_norm_row(const act *x, const act *input, act *out, u32 stride, const Norm &norm, u32 width,
                                             const u32 *count) {
    let_next_begin();
    NormPart<KEPT> part = norm_part<KEPT>(norm, width);
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    after_previous();
    u64 at = (u64)row * stride;
    norm_row<KEPT>(x + at, input ? input + at : 0, out + at, 0, norm, part, width);
}

extern "C" __global__ void add_norm_512(const act *x, const act *input, act *out, u32 stride, Norm norm, u32 width,
                                        const u32 *count) {
    add_norm_row<2>(x, input, out, stride, norm, width, count);
}
extern "C" __global__ void add_norm_2048(const act *x, const act *input, act *out, u32 stride, Norm norm, u32 width,
                                         const u32 *count) {
    add_norm_row<8>(x, input, out, stride, norm, width, count);
}

// The same for any width, and for some of a row's columns.
extern "C" __global__ void add_norm_any(const act *x, const act *input, act *out, u32 stride, Norm norm, u32 width,
                                        const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    x += (u64)row * stride;
    if (input) input += (u64)row * stride;
    out += (u64)row * stride;
    float sum = 0.0f, square = 0.0f, mean = 0.0f, factor = 1.0f;
#define AT(i) (up(x[i]) + (input ? up(input[i]) : 0.0f))
    if (norm.scale) {
        for (u32 i = LANE; i < width; i += 32) sum += AT(i);
        if (norm.centred) mean = warp_sum(sum) / (float)width;
        for (u32 i = LANE; i < width; i += 32) square = fmaf(AT(i) - mean, AT(i) - mean, square);
        factor = 1.0f / sqrtf(warp_sum(square) / (float)width + norm.epsilon);
    }
    for (u32 i = LANE; i < width; i += 32) {
        float v = AT(i);
        if (norm.scale) v = (v - mean) * factor * norm.scale[i] + (norm.bias ? norm.bias[i] : 0.0f);
        out[i] = down(v);
    }
#undef AT
}

// One number at a time, in place. `kind`: 0 tanh, 1 clamp to [a, b], 2 highway with gate `p` and
// input `q`, 3 the mix p∘q + r∘y.
extern "C" __global__ void element(u32 kind, act *y, const act *p, const act *q, const act *r, float a,
                                   float b, u32 stride, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    for (u32 i = LANE; i < width; i += 32) {
        u64 at = (u64)row * stride + i;
        float v = up(y[at]);
        switch (kind) {
        case 0: v = tanhf(v); break;
        case 1: v = fminf(fmaxf(v, a), b); break;
        case 2: v = fmaf(up(p[at]), v - up(q[at]), up(q[at])); break;
        case 3: v = fmaf(up(p[at]), up(q[at]), up(r[at]) * v); break;
        }
        y[at] = down(v);
    }
}

// Running mean; a missing state is zero.
extern "C" __global__ void average(const act *x, act *out, u32 stride, act *state, const u32 *from,
                                   const u32 *to, const u32 *before, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    float n = (float)before[row];
    for (u32 i = LANE; i < width; i += 32) {
        float old = from[row] == NONE ? 0.0f : up(state[(u64)from[row] * stride + i]);
        act v = down(fmaf(old, n, up(x[(u64)row * stride + i])) / (n + 1.0f));
        out[(u64)row * stride + i] = v;
        state[(u64)to[row] * stride + i] = v;
    }
}

extern "C" __global__ void ssru(const act *candidate, const act *forget, act *out, u32 stride, act *state,
                                const u32 *from, const u32 *to, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    for (u32 i = LANE; i < width; i += 32) {
        u64 at = (u64)row * stride + i;
        float old = from[row] == NONE ? 0.0f : up(state[(u64)from[row] * stride + i]);
        float x = up(candidate[at]);
        float c = fmaf(sigmoid(up(forget[at])), old - x, x);
        state[(u64)to[row] * stride + i] = down(c);
        out[at] = down(fmaxf(c, 0.0f));
    }
}

// out[i] = rows[at[i]], or out[at[i]][column..] = rows[i]. `at` missing: the row itself.
extern "C" __global__ void move_rows(const act *from, u32 from_stride, const u32 *from_at, act *to,
                                     u32 to_stride, const u32 *to_at, u32 column, u32 width,
                                     const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    from += (u64)(from_at ? from_at[row] : row) * from_stride;
    to += (u64)(to_at ? to_at[row] : row) * to_stride + column;
    copy_row(from, to, width, column % 8 == 0);
}

// Zeros from row `first` on, `count` rows.
extern "C" __global__ void clear_rows(act *rows, u32 stride, const u32 *first, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    for (u32 i = LANE; i < stride; i += 32) rows[(u64)(*first + row) * stride + i] = down(0.0f);
}

// Moves memory that grows; `words` of four bytes.
extern "C" __global__ void copy_words(const u32 *from, u32 *to, u64 words) {
    begin();
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < words; i += (u64)gridDim.x * blockDim.x)
        to[i] = from[i];
}

// The mean of the rows each row reads, or their sum with weights, which stand as the lists do.
extern "C" __global__ void gather_sum(const act *rows, u32 stride, const u32 *spans, const u32 *list,
                                      const float *weights, act *out, u32 out_stride, u32 width,
                                      const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    u32 start = spans[2 * row], end = spans[2 * row + 1];
    for (u32 i = LANE; i < width; i += 32) {
        float sum = 0.0f;
        for (u32 j = start; j < end; j++) {
            float v = up(rows[(u64)list[j] * stride + i]);
            sum = weights ? fmaf(weights[j], v, sum) : sum + v;
        }
        out[(u64)row * out_stride + i] = down(weights ? sum : sum / (float)(end - start));
    }
}

// A term of a recurrent cell: its row for row `row` is at[row], 0 if `one`, or `row` itself.
__device__ __forceinline__ const act *term(const act *rows, u32 stride, const u32 *at, u32 one, u32 row) {
    return rows + (u64)(one ? 0 : at ? at[row] : row) * stride;
}

// One step of a recurrent cell. `kind` in the order: 0 gru, 1 lstm, 2 tanh, 3 relu, 4 sru, 5 ssru.
extern "C" __global__ void recur(u32 kind, act *h, act *c, u32 stride, u32 d, const act *x, u32 x_stride,
                                 const u32 *x_at, u32 x_one, const act *s, u32 s_stride, const u32 *s_at,
                                 u32 s_one, const act *raw, u32 raw_stride, const u32 *raw_at,
                                 const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    h += (u64)row * stride;
    if (c) c += (u64)row * stride;
    const act *px = x ? term(x, x_stride, x_at, x_one, row) : 0;
    const act *ps = s ? term(s, s_stride, s_at, s_one, row) : 0;
    const act *pr = raw ? term(raw, raw_stride, raw_at, 0, row) : 0;
    for (u32 i = LANE; i < d; i += 32) {
#define X(g) (px ? up(px[(g) * d + i]) : 0.0f)
#define S(g) (ps ? up(ps[(g) * d + i]) : 0.0f)
        switch (kind) {
        case 0: {
            float r = sigmoid(X(0) + S(0)), z = sigmoid(X(1) + S(1));
            float n = tanhf(fmaf(r, S(2), X(2)));
            h[i] = down(fmaf(z, up(h[i]) - n, n));
            break;
        }
        case 1: {
            float f = sigmoid(X(0) + S(0)), in = sigmoid(X(1) + S(1));
            float g = tanhf(X(2) + S(2)), o = sigmoid(X(3) + S(3));
            float cell = fmaf(f, up(c[i]), in * g);
            c[i] = down(cell);
            h[i] = down(o * tanhf(cell));
            break;
        }
        case 2: h[i] = down(tanhf(X(0) + S(0))); break;
        case 3: h[i] = down(fmaxf(X(0) + S(0), 0.0f)); break;
        case 4: {
            float f = sigmoid(X(1)), r = sigmoid(X(2)), v = X(0);
            float cell = fmaf(f, up(c[i]) - v, v);
            c[i] = down(cell);
            float t = tanhf(cell), p = up(pr[i]);
            h[i] = down(fmaf(r, t - p, p));
            break;
        }
        case 5: {
            float f = sigmoid(X(1)), v = X(0);
            float cell = fmaf(f, up(c[i]) - v, v);
            c[i] = down(cell);
            h[i] = down(fmaxf(cell, 0.0f));
            break;
        }
        }
#undef X
#undef S
    }
}

// h = a∘s.
extern "C" __global__ void modulate(act *h, u32 stride, u32 width, const act *a, u32 a_stride,
                                    const u32 *a_at, const act *s, u32 s_stride, const u32 *s_at,
                                    const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    const act *pa = term(a, a_stride, a_at, 0, row), *ps = term(s, s_stride, s_at, 0, row);
    for (u32 i = LANE; i < width; i += 32) h[(u64)row * stride + i] = down(up(pa[i]) * up(ps[i]));
}
