// kernels/attention.cu and kernels/attention_heads.cu on the processor, in bfloat16: a block a head of a row gives the bits of a
// block a row, and both are near attention in float64.

#include "processor.h"

#define __align__(bytes) alignas(bytes)
#define ROWS 2
#define ROW_OF_WARP (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32)
#define OF_EIGHT for (int k = 0; k < 8; k++)

typedef unsigned short u16;
typedef u16 act;

// Dynamic shared memory.
float shared_scores[1 << 10];

struct uint2 {
    u32 x, y;
};
struct uint4 {
    u32 x, y, z, w;
};
static uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
typedef uint4 Packed;

struct Eight {
    float v[8];
};

static float up(act v) { return __uint_as_float((u32)v << 16); }
static act down(float v) {
    u32 bits = __float_as_uint(v);
    return (act)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float from_float16(u16) { return 0.0f; }
static u32 pair_of(float low, float high) { return down(low) | (u32)down(high) << 16; }
static Packed load_packed(const act *from) {
    Packed packed;
    memcpy(&packed, from, sizeof packed);
    return packed;
}
static Eight unpacked(const Packed &packed) {
    act v[8];
    memcpy(v, &packed, sizeof v);
    Eight e;
    OF_EIGHT e.v[k] = up(v[k]);
    return e;
}
static Eight load8(const act *from) { return unpacked(load_packed(from)); }
static void store8(act *to, const Eight &e) { OF_EIGHT to[k] = down(e.v[k]); }
static Eight load_part(const act *from, u32, bool) { return load8(from); }
static void copy_row(const act *from, act *to, u32 width, bool) { memcpy(to, from, width * sizeof *to); }
static float quick_tanh(float x) { return tanhf(x); }
static float __fsub_rn(float a, float b) { return __fadd_rn(a, -b); }
static float __fmul_rn(float a, float b) {
    volatile float product = a * b;
    return product;
}
static float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static void let_next_begin() {}
static void after_previous() {}

#include "attention.cu"
#include "attention_heads.cu"

static void check(bool right, const char *what) {
    if (!right) puts(what), exit(1);
}

static std::vector<act> numbers(u32 count) {
    std::vector<act> all(count);
    for (act &v : all) v = down((float)random_below(2001) / 1000.0f - 1.0f);
    return all;
}

// Rows that read lists of positions, and perhaps their own key and value last of all.
struct Question {
    u32 size, heads, rows, width, query_stride;
    bool own;
    std::vector<act> queries, keys, values;
    std::vector<u32> spans, lists, at;

    Question(u32 size, u32 heads, u32 rows, u32 longest, bool own) : size(size), heads(heads), rows(rows), own(own) {
        const act NOT_A_NUMBER = 0x7fc0;
        u32 positions = longest + rows;
        width = heads * size, query_stride = own ? 3 * width : width;
        queries = numbers(rows * query_stride);
        keys = numbers(positions * width), values = numbers(positions * width);
        for (u32 row = 0; row < rows; row++) {
            u32 length = row == 0 ? longest : 1 + random_below(longest);
            spans.push_back(lists.size());
            for (u32 i = 0; i < length; i++) lists.push_back(random_below(longest));
            spans.push_back(lists.size());
            if (!own) continue;
            // A place of its own, which nobody has written yet.
            at.push_back(longest + row), lists.back() = at.back();
            std::fill_n(&keys[at.back() * width], width, NOT_A_NUMBER);
            std::fill_n(&values[at.back() * width], width, NOT_A_NUMBER);
        }
    }

    // What a kernel answers, followed by the caches it leaves.
    std::vector<act> ask(void (*kernel)(Attend), u32 heads_of_block, bool early) const {
        std::vector<act> out(rows * width), k = keys, v = values;
        Attend a = {};
        a.queries = queries.data(), a.keys = k.data(), a.values = v.data();
        a.at = own ? at.data() : nullptr;
        a.spans = spans.data(), a.lists = lists.data(), a.out = out.data(), a.count = &rows;
        a.query_stride = query_stride, a.stride = width, a.width = width, a.size = size;
        a.team = size < 64 ? size / 8 : size / 16, a.heads = heads, a.out_stride = width, a.early = early;
        // A block more than there are rows.
        launch({rows + 1, (heads + heads_of_block - 1) / heads_of_block}, 32 * ATTEND_WARPS, [=] { kernel(a); });
        for (const auto &cache : {k, v}) out.insert(out.end(), cache.begin(), cache.end());
        return out;
    }

    void compare_with_float64(const std::vector<act> &out) const {
        for (u32 row = 0; row < rows; row++)
            for (u32 head = 0; head < heads; head++) {
                const act *query = &queries[row * query_stride + head * size];
                std::vector<double> sum(size);
                double total = 0.0;
                for (u32 i = spans[2 * row]; i < spans[2 * row + 1]; i++) {
                    bool mine = own && i + 1 == spans[2 * row + 1];
                    u32 at = lists[i] * width + head * size;
                    const act *key = mine ? query + width : &keys[at], *value = mine ? query + 2 * width : &values[at];
                    double score = 0.0;
                    for (u32 c = 0; c < size; c++) score += (double)up(query[c]) * up(key[c]);
                    double weight = exp(score / sqrt((double)size));
                    total += weight;
                    for (u32 c = 0; c < size; c++) sum[c] += weight * up(value[c]);
                }
                for (u32 c = 0; c < size; c++)
                    check(fabs(up(out[row * width + head * size + c]) - sum[c] / total) < 0.005, "attention is wrong");
            }
    }
};

int main() {
    struct Kind {
        u32 size;
        void (*by_row)(Attend);
        void (*by_head)(Attend);
    };
    const Kind kinds[] = {{32, attend_wide_1, attend_head_32}, {64, attend_wide_2, attend_head_64}, {128, attend_wide_2, attend_head_128}};
    for (const Kind &kind : kinds)
        for (u32 longest : {1, 2, 4, 5, 9, 25, 31, 32, 33, 40, 64, 65, 130})
            for (bool own : {false, true}) {
                Question question(kind.size, 1 + random_below(9), 1 + random_below(4), longest, own);
                u32 heads_of_block = kind.size < 64 ? 256 / kind.size : 512 / kind.size;
                std::vector<act> expected = question.ask(kind.by_row, heads_of_block, false);
                question.compare_with_float64(expected);
                for (bool early : {false, true})
                    check(question.ask(kind.by_head, 1, early) == expected, "a block a head gives other bits");
            }
}
