// kernels/output.cu and kernels/logits.cu on the processor. The answers of rows that ask for different things are
// compared with a sort of all words, and to the last bit with the answers of single rows.

#include "processor.h"

#define PAD 8
#define PRODUCT 0
#define ROW_OF_WARP (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32)

// Dynamic shared memory.
float candidates[1 << 20];

struct float4 {
    float x, y, z, w;
};
struct float2 {
    float x, y;
};
static float2 make_float2(float x, float y) { return {x, y}; }
static float quick_exp(float x) { return expf(x); }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static u32 atomicAdd(u32 *at, u32 v) { return (*at += v) - v; }
static bool __syncthreads_or(bool v) {
    static bool any;
    any = false;
    __syncthreads();
    any |= v;
    __syncthreads();
    bool heard = any;
    __syncthreads();
    return heard;
}

struct Product {
    const float *bias;
    const u32 *words;
    u32 columns;
};

// What a product would compute: a row for each row of the question, a logit for each of `all_words`.
static const float *all_logits;
static u32 all_words;

template <int TALL> static void plain_sums(const Product &p, u32 first_row, u32 end, u32 first_column, float (&sums)[TALL][4]) {
    for (int m = 0; m < TALL; m++)
        for (int n = 0; n < 4; n++) {
            u32 row = first_row + threadIdx.x / 16 + 16 * m, column = first_column + threadIdx.x % 16 + 16 * n;
            bool there = row < end && column < p.columns;
            sums[m][n] = there ? all_logits[row * all_words + (p.words ? p.words[column] : column)] : 0.0f;
        }
}
template <int TALL> static void lay_out_plain(float (&sums)[TALL][4], u32 first_column, float *tile, u32 stride) {
    for (int m = 0; m < TALL; m++)
        for (int n = 0; n < 4; n++)
            tile[(threadIdx.x / 16 + 16 * m) * stride + first_column + threadIdx.x % 16 + 16 * n] = sums[m][n];
}

#include "output.cu"
#include "logits.cu"

struct Ask {
    u32 count, forced, scoring;
    std::vector<u32> banned;
};

struct Choice {
    u32 word;
    float score;
    bool operator==(const Choice &other) const {
        return word == other.word && __float_as_uint(score) == __float_as_uint(other.score);
    }
};

typedef std::vector<std::vector<Choice>> Choices;

// Rows, a part of the words for each, and what they ask.
struct Question {
    std::vector<float> logits, bias;
    u32 words;
    // Rows that share their words stand together; none are all words.
    std::vector<std::vector<u32>> lists;
    std::vector<Ask> asks;

    u32 rows() const { return asks.size(); }
    u32 words_of(u32 row) const { return lists[row].empty() ? words : lists[row].size(); }
    Question alone(u32 row) const {
        std::vector<float> own(&logits[row * words], &logits[row * words] + words);
        return {own, bias, words, {lists[row]}, {asks[row]}};
    }
};

// What is asked, as kernels take it.
struct Lists {
    std::vector<u32> counts, forced, spans, banned, scorings;
    Asked asked;

    Lists(const Question &question, u32 most) {
        for (const Ask &ask : question.asks) {
            counts.push_back(ask.count), forced.push_back(ask.forced), scorings.push_back(ask.scoring);
            spans.push_back(banned.size());
            banned.insert(banned.end(), ask.banned.begin(), ask.banned.end());
            spans.push_back(banned.size());
        }
        asked = {counts.data(), forced.data(), spans.data(), banned.data(), scorings.data(), most};
    }
};

static u32 most_of(const Question &question) {
    u32 most = 1;
    for (const Ask &ask : question.asks) most = std::max(most, ask.count);
    return most + random_below(3);
}

static Choices read(const Question &question, u32 most, const std::vector<u32> &words, const std::vector<float> &scores) {
    Choices choices(question.rows());
    for (u32 row = 0; row < question.rows(); row++) {
        const Ask &ask = question.asks[row];
        for (u32 k = 0; k < (ask.forced != NONE ? 1 : ask.count); k++)
            if (words[row * most + k] != NONE) choices[row].push_back({words[row * most + k], scores[row * most + k]});
    }
    return choices;
}

// In the epilogue of the product. With `places`, for a device-side beam search.
static Choices epilogue(const Question &question, bool places) {
    u32 most = most_of(question), rows = question.rows(), tiles = 1;
    Lists lists(question, most);
    std::vector<u32> tile_counts;
    for (u32 row = 0; row < rows; row++) {
        tile_counts.push_back((question.words_of(row) + TILE - 1) / TILE);
        tiles = std::max(tiles, tile_counts.back());
    }
    std::vector<float> scores(rows * tiles * most, 77.0f), maxima(rows * tiles, 77.0f), sums(rows * tiles, 77.0f);
    std::vector<float> forced(rows, -3.402823466e38f);
    std::vector<u32> words(rows * tiles * most, 7777);
    Found found = {scores.data(), words.data(), maxima.data(), sums.data(), forced.data(), tiles};
    std::vector<Task> tasks;
    for (u32 row = 0; row < rows;) {
        u32 end = row;
        while (end < rows && end < row + 64 && question.lists[end] == question.lists[row]) end++;
        const u32 *list = question.lists[row].empty() ? nullptr : question.lists[row].data();
        for (u32 tile = 0; tile < tile_counts[row]; tile++)
            tasks.push_back({row, end - row, tile, question.words_of(row), list});
        row = end;
    }
    all_logits = question.logits.data(), all_words = question.words;
    launch({(u32)tasks.size(), 1}, 256, [&] {
        best_narrow(Product{question.bias.data(), nullptr, 0}, lists.asked, found, tasks.data());
    });
    std::vector<u32> answer_words(rows * most, NONE), latest(rows * most, 7777);
    std::vector<float> answer_scores(rows * most), latest_scores(rows * most, 77.0f);
    launch({rows + 2, 1}, 128, [&] {
        merge(lists.asked, found, tile_counts.data(), answer_words.data(), answer_scores.data(), latest.data(),
              places ? latest_scores.data() : nullptr, &rows);
    });
    Choices choices = read(question, most, answer_words, answer_scores);
    for (u32 row = 0; row < rows; row++) {
        if (choices[row].empty()) continue;
        bool same = places || latest[row] == choices[row][0].word;
        if (places) same = read(question, most, latest, latest_scores)[row] == choices[row];
        if (!same) printf("row %u leaves something else for the next step\n", row), choices[row].clear();
    }
    return choices;
}

// The papers' layers, over logits in memory: 0 fused, 1 separate, 2 the best only.
static Choices paper(const Question &question, int layer) {
    u32 most = most_of(question), rows = question.rows(), stride = (question.words + 3) / 4 * 4;
    const u32 slab = 32 * 256, shard = 8 * 256;
    u32 slabs = (question.words + slab - 1) / slab, shards = (question.words + shard - 1) / shard;
    Lists lists(question, most);
    std::vector<float> values(rows * stride, 88.0f), bias(question.bias), probabilities(rows * stride, 77.0f);
    bias.resize(stride, 99.0f);
    for (u32 row = 0; row < rows; row++)
        std::copy_n(&question.logits[row * question.words], question.words, &values[row * stride]);
    Logits logits = {values.data(), bias.data(), stride, question.words, &rows};
    std::vector<u32> words(rows * most, NONE), latest(rows, 7777);
    std::vector<float> scores(rows * most);
    std::vector<u64> best_of(rows * shards);
    if (layer == 0)
        launch({rows + 1, 1}, 256, [&] { fused_best(logits, lists.asked, words.data(), scores.data(), latest.data()); });
    if (layer == 1) {
        launch({rows + 1, slabs}, 256, [&] { add_bias(logits); });
        launch({rows + 1, 1}, 256, [&] { softmax(logits, lists.asked, probabilities.data()); });
        launch({rows + 1, 1}, 256, [&] {
            k_best(logits, lists.asked, probabilities.data(), words.data(), scores.data(), latest.data());
        });
    }
    if (layer == 2) {
        launch({rows + 1, shards}, 256, [&] { shard_best(logits, lists.asked, best_of.data()); });
        launch({rows / 8 + 1, 1}, 256, [&] {
            best_of_shards(logits, lists.asked, best_of.data(), shards, words.data(), scores.data(), latest.data());
        });
    }
    return read(question, most, words, scores);
}

// The answer of a row, by sorting.
static std::vector<Choice> sorted(const Question &question, u32 row) {
    const Ask &ask = question.asks[row];
    std::vector<Choice> all;
    double sum = 0.0;
    float forced = -3.402823466e38f;
    for (u32 i = 0; i < question.words_of(row); i++) {
        u32 word = question.lists[row].empty() ? i : question.lists[row][i];
        float score = question.logits[row * question.words + word] + question.bias[word];
        bool banned = std::count(ask.banned.begin(), ask.banned.end(), word);
        if (ask.scoring == 1 || (ask.scoring == 2 && !banned)) sum += exp((double)score);
        if (word == ask.forced) forced = score;
        if (!banned && score > -INFINITY) all.push_back({word, score});
    }
    std::stable_sort(all.begin(), all.end(), [](auto &a, auto &b) { return a.score > b.score; });
    all.resize(std::min<size_t>(all.size(), ask.count));
    if (ask.forced != NONE) all = {{ask.forced, forced}};
    if (ask.scoring)
        for (Choice &choice : all) choice.score -= log(sum);
    return all;
}

static bool close(const std::vector<Choice> &found, const std::vector<Choice> &expected) {
    auto alike = [](const Choice &a, const Choice &b) {
        return a.word == b.word && (a.score == b.score || fabsf(a.score - b.score) < 1e-5f * (1.0f + fabsf(b.score)));
    };
    return std::equal(found.begin(), found.end(), expected.begin(), expected.end(), alike);
}

// All rows by some output layers, each in its batch and alone.
static bool right(const Question &question, const char *name, std::function<Choices(const Question &)> answers) {
    Choices found = answers(question);
    for (u32 row = 0; row < question.rows(); row++) {
        bool as_sorted = close(found[row], sorted(question, row));
        bool as_alone = found[row] == answers(question.alone(row))[0];
        if (as_sorted && as_alone) continue;
        const Ask &ask = question.asks[row];
        printf("%s, row %u of %u, %u of %u words, forced %u, scoring %u: %s\n", name, row, question.rows(), ask.count,
               question.words_of(row), ask.forced, ask.scoring, as_sorted ? "other bits than alone" : "wrong words");
        return false;
    }
    return true;
}

// Few scores differ, so that many are equal, and some are minus infinity.
static Question random_question(u32 rows, u32 words, bool lists, u32 most) {
    Question question;
    question.words = words;
    for (u32 word = 0; word < words; word++)
        question.bias.push_back(random_below(30) == 0 ? -INFINITY : random_below(8) / 4.0f);
    std::vector<u32> list;
    for (u32 row = 0; row < rows; row++) {
        for (u32 word = 0; word < words; word++) question.logits.push_back((float)random_below(40) / 8.0f - 3.3f);
        if (lists && random_below(3) == 0) {
            list.clear();
            for (u32 word = 0; word < words && random_below(9); word++)
                if (random_below(2)) list.push_back(word);
        }
        question.lists.push_back(list);
        Ask ask = {random_below(most + 1), random_below(6) ? NONE : random_below(words + 2), random_below(3), {}};
        for (u32 word = 0; word < words; word++)
            if (random_below(words) < 4) ask.banned.push_back(word);
        question.asks.push_back(ask);
    }
    return question;
}

int main() {
    for (u32 round = 0; round < 30; round++) {
        Question question = random_question(1 + random_below(9), 3 + random_below(500), round % 2, 1 + random_below(9));
        for (bool places : {false, true})
            if (!right(question, "epilogue", [=](const Question &q) { return epilogue(q, places); })) return 1;
    }
    // More rows than a block takes.
    if (!right(random_question(70, 150, false, 3), "epilogue", [](const Question &q) { return epilogue(q, true); })) return 1;
    for (u32 words : {5u, 300u, 2049u, 8195u}) {
        Question question = random_question(6, words, false, 5);
        for (Ask &ask : question.asks) ask.count = std::max(ask.count, 1u);
        if (!right(question, "fused", [](const Question &q) { return paper(q, 0); })) return 1;
        if (!right(question, "separate", [](const Question &q) { return paper(q, 1); })) return 1;
        for (Ask &ask : question.asks) ask.count = 1, ask.scoring = 0;
        if (!right(question, "best", [](const Question &q) { return paper(q, 2); })) return 1;
        // Both find the same words.
        if (paper(question, 0) != paper(question, 2)) return printf("fused and best differ\n"), 1;
    }
    return 0;
}
