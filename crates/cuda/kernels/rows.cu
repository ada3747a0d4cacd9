// Operations on single rows: embeddings, norms, element-wise operations, moves, recurrent cells.
//
// Kernels that must see whole rows use one warp a row, eight rows a block; the others one warp for
// every 256 columns of a row, eight a lane, so that a wide row takes no longer than a narrow one. `count`
// is read from memory, since a captured graph serves every number of rows up to its grid.

#define ROW_WARPS 8
#define ROW_OF_WARP (blockIdx.x * ROW_WARPS + threadIdx.x / 32)
#define LANE (threadIdx.x % 32)
#define COLUMN (8 * (LANE + 32 * blockIdx.y))
#define FOLLOWS 0x80000000u

// Eight activations of a row that has `rest` left; those beyond are zero. `whole`: the row's width is a
// multiple of eight and its address is aligned, so one load does it.
__device__ __forceinline__ Eight load_part(const act *from, u32 rest, bool whole) {
    if (whole) return load8(from);
    Eight e;
#pragma unroll
    for (int i = 0; i < 8; i++) e.v[i] = i < rest ? up(from[i]) : 0.0f;
    return e;
}

__device__ __forceinline__ void store_part(act *to, const Eight &e, u32 rest, bool whole) {
    if (whole) return store8(to, e);
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < rest) to[i] = down(e.v[i]);
}

#define OF_EIGHT _Pragma("unroll") for (int k = 0; k < 8; k++)

struct Embedding {
    act *out;
    u32 stride;
    const float *table;
    u32 words, width;
    const u32 *ids;
    const u32 *latest; // the words at places
    const float *positions;
    const u32 *at;
    float scale;
    const u32 *count;
};

__device__ __forceinline__ void embed_row(const Embedding &e, u32 row) {
    u32 id = e.ids[row], width = e.width, column = COLUMN;
    // A row that goes on from a place reads its word there.
    if (id & FOLLOWS && id != NONE) id = e.latest[id & ~FOLLOWS];
    if (column >= width) return;
    const float *from = e.table + (u64)id * width + column, *positions = e.positions;
    const float *position = positions + (u64)(positions ? e.at[row] : 0) * width + column;
    bool known = id < e.words;
    float scale = e.scale;
    act *out = e.out + (u64)row * e.stride + column;
    Eight sum;
    if (width % 8 == 0) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float4 v = known ? ((const float4 *)from)[i] : none;
            float4 p = positions ? ((const float4 *)position)[i] : none;
            sum.v[4 * i] = v.x * scale + p.x, sum.v[4 * i + 1] = v.y * scale + p.y;
            sum.v[4 * i + 2] = v.z * scale + p.z, sum.v[4 * i + 3] = v.w * scale + p.w;
        }
    } else {
        for (u32 i = 0; i < min(8, width - column); i++)
            sum.v[i] = (known ? from[i] * scale : 0.0f) + (positions ? position[i] : 0.0f);
    }
    store_part(out, sum, width - column, width % 8 == 0);
}

extern "C" __global__ void embed(Embedding e) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row < *e.count) embed_row(e, row);
}

struct Norm {
    const float *scale;
    const float *bias; // may be missing
    float epsilon;
    u32 centred;
};

// A lane's part of a norm's parameters, for up to 256·KEPT columns. They do not depend on the previous
// kernel.
template <int KEPT> struct NormPart {
    float4 scale[2 * KEPT], bias[2 * KEPT];
};

template <int KEPT> __device__ __forceinline__ NormPart<KEPT> norm_part(const Norm &norm, u32 width) {
    NormPart<KEPT> part;
#pragma unroll
    for (int j = 0; j < 2 * KEPT; j++) {
        u32 i = 8 * (LANE + 32 * (j / 2)) + 4 * (j % 2);
        bool there = i < width;
        float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        part.scale[j] = there ? *(const float4 *)(norm.scale + i) : none;
        part.bias[j] = there && norm.bias ? *(const float4 *)(norm.bias + i) : none;
    }
    return part;
}

__device__ __forceinline__ float of_four(const float4 &v, int k) { return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w; }

// `out = norm(x + input)` of one row by one warp; `input` and a second `out` may be missing. The
// variance is that of differences from the mean, as on the CPU. The row, whose width is a
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

// `norm(x + input)` of any width, and of some of a row's columns.
extern "C" __global__ void add_norm_any(const act *x, const act *input, act *out, u32 stride, Norm norm, u32 width,
                                        const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *count) return;
    x += (u64)row * stride;
    if (input) input += (u64)row * stride;
    out += (u64)row * stride;
    float sum = 0.0f, square = 0.0f, mean = 0.0f;
#define AT(i) (up(x[i]) + (input ? up(input[i]) : 0.0f))
    for (u32 i = LANE; i < width; i += 32) sum += AT(i);
    if (norm.centred) mean = warp_sum(sum) / (float)width;
    for (u32 i = LANE; i < width; i += 32) square = fmaf(AT(i) - mean, AT(i) - mean, square);
    float factor = 1.0f / sqrtf(warp_sum(square) / (float)width + norm.epsilon);
    for (u32 i = LANE; i < width; i += 32)
        out[i] = down((AT(i) - mean) * factor * norm.scale[i] + (norm.bias ? norm.bias[i] : 0.0f));
#undef AT
}

// out = x, or x + input.
extern "C" __global__ void add_rows(const act *x, const act *input, act *out, u32 stride, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= width) return;
    u64 at = (u64)row * stride + column;
    u32 rest = width - column;
    bool whole = width % 8 == 0;
    Eight sum = load_part(x + at, rest, whole);
    if (input) {
        Eight e = load_part(input + at, rest, whole);
        OF_EIGHT sum.v[k] += e.v[k];
    }
    store_part(out + at, sum, rest, whole);
}

// Element-wise, in place. `kind`: 0 tanh, 1 clamp to [a, b], 2 highway with gate `p` and input `q`, 3 the mix p∘q + r∘y.
extern "C" __global__ void element(u32 kind, act *y, const act *p, const act *q, const act *r, float a,
                                   float b, u32 stride, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= width) return;
    u64 at = (u64)row * stride + column;
    u32 rest = width - column;
    bool whole = width % 8 == 0;
    Eight v = load_part(y + at, rest, whole), ps, qs, rs;
    if (kind >= 2) ps = load_part(p + at, rest, whole), qs = load_part(q + at, rest, whole);
    if (kind == 3) rs = load_part(r + at, rest, whole);
    switch (kind) {
    case 0: OF_EIGHT v.v[k] = tanhf(v.v[k]); break;
    case 1: OF_EIGHT v.v[k] = fminf(fmaxf(v.v[k], a), b); break;
    case 2: OF_EIGHT v.v[k] = fmaf(ps.v[k], v.v[k] - qs.v[k], qs.v[k]); break;
    case 3: OF_EIGHT v.v[k] = fmaf(ps.v[k], qs.v[k], rs.v[k] * v.v[k]); break;
    }
    store_part(y + at, v, rest, whole);
}

// Where recurrent states are read from: a row of the states, NONE, or a place. At a place the state is
// the one its row (`parents`) had `before`; without `parents` the row has the place's number.
struct Sources {
    const u32 *from, *before, *parents;
};

__device__ __forceinline__ u32 source(const Sources &s, u32 row) {
    u32 from = s.from[row], place = from & ~FOLLOWS;
    return from == place || from == NONE ? from : s.before[s.parents ? s.parents[place] : place];
}

// A recurrent layer's previous state; a missing one is zero.
__device__ __forceinline__ Eight old_state(const act *state, u32 from, u32 stride, u32 column, u32 width) {
    Eight none = {};
    if (from == NONE) return none;
    return load_part(state + (u64)from * stride + column, width - column, width % 8 == 0);
}

// The running mean of an AAN (average attention network).
extern "C" __global__ void average(const act *x, act *out, u32 stride, act *state, Sources sources,
                                   const u32 *to, const u32 *before, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= width) return;
    u32 rest = width - column;
    bool whole = width % 8 == 0;
    float n = (float)before[row];
    Eight mean = old_state(state, source(sources, row), stride, column, width);
    Eight v = load_part(x + (u64)row * stride + column, rest, whole);
    OF_EIGHT mean.v[k] = fmaf(mean.v[k], n, v.v[k]) / (n + 1.0f);
    store_part(out + (u64)row * stride + column, mean, rest, whole);
    store_part(state + (u64)to[row] * stride + column, mean, rest, whole);
}

extern "C" __global__ void ssru(const act *candidate, const act *forget, act *out, u32 stride, act *state,
                                Sources sources, const u32 *to, u32 width, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= width) return;
    u32 rest = width - column;
    bool whole = width % 8 == 0;
    u64 at = (u64)row * stride + column;
    Eight c = old_state(state, source(sources, row), stride, column, width);
    Eight x = load_part(candidate + at, rest, whole), f = load_part(forget + at, rest, whole);
    OF_EIGHT c.v[k] = fmaf(sigmoid(f.v[k]), c.v[k] - x.v[k], x.v[k]);
    store_part(state + (u64)to[row] * stride + column, c, rest, whole);
    OF_EIGHT c.v[k] = fmaxf(c.v[k], 0.0f);
    store_part(out + at, c, rest, whole);
}

extern "C" __global__ void load_states(const act *state, u32 stride, Sources sources, act *out, u32 width,
                                       const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= width) return;
    Eight v = old_state(state, source(sources, row), stride, column, width);
    store_part(out + (u64)row * stride + column, v, width - column, width % 8 == 0);
}

// out[i] = rows[at[i]], or out[at[i]][first..] = rows[i]. Without `at` the row is i.
extern "C" __global__ void move_rows(const act *from, u32 from_stride, const u32 *from_at, act *to,
                                     u32 to_stride, const u32 *to_at, u32 first, u32 width,
                                     const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= width) return;
    from += (u64)(from_at ? from_at[row] : row) * from_stride + column;
    to += (u64)(to_at ? to_at[row] : row) * to_stride + first + column;
    bool whole = width % 8 == 0 && first % 8 == 0;
    store_part(to, load_part(from, width - column, whole), width - column, whole);
}

// Zeros from row `first` on, `count` rows.
extern "C" __global__ void clear_rows(act *rows, u32 stride, const u32 *first, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= stride) return;
    Eight none = {};
    store8(rows + (u64)(*first + row) * stride + column, none);
}

// Copies `words` words of four bytes.
extern "C" __global__ void copy_words(const u32 *from, u32 *to, u64 words) {
    begin();
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < words; i += (u64)gridDim.x * blockDim.x)
        to[i] = from[i];
}

// The mean of the rows each row reads, or their weighted sum; weights are in the order of the lists.
extern "C" __global__ void gather_sum(const act *rows, u32 stride, const u32 *spans, const u32 *list,
                                      const float *weights, act *out, u32 out_stride, u32 width,
                                      const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= width) return;
    u32 start = spans[2 * row], end = spans[2 * row + 1];
    bool whole = width % 8 == 0;
    Eight sum = {};
#pragma unroll 4
    for (u32 j = start; j < end; j++) {
        Eight v = load_part(rows + (u64)list[j] * stride + column, width - column, whole);
        float weight = weights ? weights[j] : 1.0f;
        OF_EIGHT sum.v[k] = fmaf(weight, v.v[k], sum.v[k]);
    }
    if (!weights) OF_EIGHT sum.v[k] /= (float)(end - start);
    store_part(out + (u64)row * out_stride + column, sum, width - column, whole);
}

// A term of a recurrent cell: for row `row` its row at[row], 0 if `one`, or `row`.
__device__ __forceinline__ const act *term(const act *rows, u32 stride, const u32 *at, u32 one, u32 row) {
    return rows + (u64)(one ? 0 : at ? at[row] : row) * stride;
}

// One step of a recurrent cell. `kind` in the order: 0 gru, 1 lstm, 2 tanh, 3 relu, 4 sru, 5 ssru.
extern "C" __global__ void recur(u32 kind, act *h, act *c, u32 stride, u32 d, const act *x, u32 x_stride,
                                 const u32 *x_at, u32 x_one, const act *s, u32 s_stride, const u32 *s_at,
                                 u32 s_one, const act *raw, u32 raw_stride, const u32 *raw_at,
                                 const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= d) return;
    u32 rest = d - column;
    bool whole = d % 8 == 0;
    u64 at = (u64)row * stride + column;
    const u32 gates[] = {3, 4, 1, 1, 3, 2};
    Eight xs[4] = {}, ss[4] = {};
#pragma unroll
    for (int g = 0; g < 4; g++) {
        if (g >= gates[kind]) break;
        if (x) xs[g] = load_part(term(x, x_stride, x_at, x_one, row) + g * d + column, rest, whole);
        if (s) ss[g] = load_part(term(s, s_stride, s_at, s_one, row) + g * d + column, rest, whole);
    }
#define X(g) xs[g].v[k]
#define S(g) ss[g].v[k]
    Eight out = load_part(h + at, rest, whole), cell = {};
    if (c) cell = load_part(c + at, rest, whole);
    switch (kind) {
    case 0:
        OF_EIGHT {
            float r = sigmoid(X(0) + S(0)), z = sigmoid(X(1) + S(1));
            float n = tanhf(fmaf(r, S(2), X(2)));
            out.v[k] = fmaf(z, out.v[k] - n, n);
        }
        break;
    case 1:
        OF_EIGHT {
            float f = sigmoid(X(0) + S(0)), in = sigmoid(X(1) + S(1));
            float g = tanhf(X(2) + S(2)), o = sigmoid(X(3) + S(3));
            cell.v[k] = fmaf(f, cell.v[k], in * g);
            out.v[k] = o * tanhf(cell.v[k]);
        }
        break;
    case 2: OF_EIGHT out.v[k] = tanhf(X(0) + S(0)); break;
    case 3: OF_EIGHT out.v[k] = fmaxf(X(0) + S(0), 0.0f); break;
    case 4: {
        Eight p = load_part(term(raw, raw_stride, raw_at, 0, row) + column, rest, whole);
        OF_EIGHT {
            float f = sigmoid(X(1)), r = sigmoid(X(2)), v = X(0);
            cell.v[k] = fmaf(f, cell.v[k] - v, v);
            out.v[k] = fmaf(r, tanhf(cell.v[k]) - p.v[k], p.v[k]);
        }
        break;
    }
    case 5:
        OF_EIGHT {
            float f = sigmoid(X(1)), v = X(0);
            cell.v[k] = fmaf(f, cell.v[k] - v, v);
            out.v[k] = fmaxf(cell.v[k], 0.0f);
        }
        break;
    }
#undef X
#undef S
    if (c) store_part(c + at, cell, rest, whole);
    store_part(h + at, out, rest, whole);
}

// h = a∘s.
extern "C" __global__ void modulate(act *h, u32 stride, u32 width, const act *a, u32 a_stride,
                                    const u32 *a_at, const act *s, u32 s_stride, const u32 *s_at,
                                    const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP, column = COLUMN;
    if (row >= *count || column >= width) return;
    u32 rest = width - column;
    bool whole = width % 8 == 0;
    Eight left = load_part(term(a, a_stride, a_at, 0, row) + column, rest, whole);
    Eight right = load_part(term(s, s_stride, s_at, 0, row) + column, rest, whole);
    OF_EIGHT left.v[k] *= right.v[k];
    store_part(h + (u64)row * stride + column, left, rest, whole);
}
