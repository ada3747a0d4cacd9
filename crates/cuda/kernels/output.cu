// The output layer: the top k words of every row, in the epilogue of the product. Logits stay in a tile of
// shared memory and are never written to global memory. A block searches TILE words; for each row it leaves
// their top k, and for the log-sum-exp their maximum and sum of exponentials; `merge` merges the blocks.

#define TILE 128

struct Asked {
    const u32 *counts;       // the k of each row
    const u32 *forced;       // NONE, or the word whose score is the answer
    const u32 *banned_spans; // into `banned`, two a row
    const u32 *banned;
    const u32 *probabilities; // scores of each row: 0 logits, 1 log-probabilities, 2 the same without banned words
    u32 most;                 // room for the top k of a row and tile
};

// What a tile found for each row: the scores and words of its top k, and maximum and sum of exponentials
// if the row asks for log-probabilities.
struct Found {
    float *scores;
    u32 *words;
    float *maxima;
    float *sums;
    float *forced; // the logit of each row's forced word
    u32 tiles;     // room for tiles of a row
};

__device__ __forceinline__ bool better(float a, u32 a_word, float b, u32 b_word) {
    return a > b || (a == b && a_word < b_word);
}

// The best word of a group of WIDTH lanes; all of them get it.
template <int WIDTH> __device__ __forceinline__ void group_best(float &score, u32 &word) {
#pragma unroll
    for (int d = WIDTH / 2; d > 0; d >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, score, d);
        u32 other_word = __shfl_xor_sync(0xffffffffu, word, d);
        if (better(other, other_word, score, word)) score = other, word = other_word;
    }
}

// What is asked of a row. Most ban no word or one, `banned`.
struct RowAsked {
    u32 forced, wanted, probabilities, banned_start, banned_end, banned;

    __device__ __forceinline__ RowAsked(const Asked &asked, u32 row)
        : forced(asked.forced[row]), wanted(min(asked.counts[row], asked.most)), probabilities(asked.probabilities[row]),
          banned_start(asked.banned_spans[2 * row]), banned_end(asked.banned_spans[2 * row + 1]) {
        banned = banned_start < banned_end ? asked.banned[banned_start] : NONE;
    }

    // What another lane has loaded.
    __device__ __forceinline__ RowAsked from(u32 lane) const {
        RowAsked of = *this;
        of.forced = __shfl_sync(0xffffffffu, forced, lane);
        of.wanted = __shfl_sync(0xffffffffu, wanted, lane);
        of.probabilities = __shfl_sync(0xffffffffu, probabilities, lane);
        of.banned_start = __shfl_sync(0xffffffffu, banned_start, lane);
        of.banned_end = __shfl_sync(0xffffffffu, banned_end, lane);
        of.banned = __shfl_sync(0xffffffffu, banned, lane);
        return of;
    }
};

// The word of a column of a tile.
__device__ __forceinline__ u32 word_of(const Product &p, u32 first_column, u32 c) {
    return p.words ? p.words[first_column + c] : first_column + c;
}

// The scores of a row of a tile, in four or eight LANES. The lane's columns are those that it has of a row in the
// fragments of `mma`: two adjacent ones of every eight, of the first or second half of them with eight lanes.
// Columns stand for words until the end; words are in ascending order, so of equals the first column is right.
template <int LANES> struct RowScores {
    static const int EACH = TILE / LANES;
    float score[EACH];

    __device__ __forceinline__ static u32 column(int i) {
        u32 half = LANES == 8 ? LANE / 4 % 2 * (TILE / 2) : 0;
        return half + 8 * (i / 2) + LANE % 4 * 2 + i % 2;
    }

    __device__ __forceinline__ float most() const {
        float most = -INFINITE;
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, score[i]);
#pragma unroll
        for (int d = LANES / 2; d > 0; d >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
        return most;
    }

    // The sum of exponentials, in an order that does not depend on the number of lanes: each half of four lanes' columns,
    // both halves, then the lanes.
    __device__ __forceinline__ float sum(float most) const {
        if (most == -INFINITE) most = 0.0f;
        const int HALF = TILE / 8;
        float sums[EACH / HALF];
#pragma unroll
        for (int h = 0; h < EACH / HALF; h++) {
            sums[h] = 0.0f;
#pragma unroll
            for (int i = 0; i < HALF; i++) sums[h] += quick_exp(score[h * HALF + i] - most);
        }
        float sum = LANES == 8 ? sums[0] + __shfl_xor_sync(0xffffffffu, sums[0], 4) : sums[0] + sums[EACH / HALF - 1];
#pragma unroll
        for (int d = 2; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        return sum;
    }

    // Calls `then(score)` if the tile has a word and the lane has its column.
    template <typename Then>
    __device__ __forceinline__ void find(const Product &p, u32 first_column, u32 columns, u32 word, Then then) {
        if (!p.words && word - first_column >= columns) return;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            u32 c = column(i);
            if (c < columns && word_of(p, first_column, c) == word) then(score[i]);
        }
    }

    __device__ __forceinline__ void ban(u32 banned) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (column(i) == banned) score[i] = -INFINITE;
    }

    // The best score and its column; all lanes of the row get them.
    __device__ __forceinline__ void best(float &best, u32 &best_column) const {
        best = -INFINITE;
        int found = -1;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (score[i] > best) best = score[i], found = i;
        best_column = found < 0 ? NONE : column(found);
        group_best<LANES>(best, best_column);
    }
};

// The bias of a lane's columns, and their scales. Columns beyond the last word have a bias that leaves no score.
template <int LANES> struct TileColumns {
    static const int EACH = TILE / LANES;
    float2 bias[EACH / 2];
#if PRODUCT >= 4
    float2 scale[EACH / 2];
#endif

    __device__ __forceinline__ TileColumns(const Product &p, u32 first_column) {
        u32 columns = p.columns - first_column;
#pragma unroll
        for (int i = 0; i < EACH; i += 2) {
            u32 c = RowScores<LANES>::column(i);
            u32 word = word_of(p, first_column, min(c, columns - 1)), next = word_of(p, first_column, min(c + 1, columns - 1));
            bias[i / 2].x = c >= columns ? -INFINITE : p.bias ? p.bias[word] : 0.0f;
            bias[i / 2].y = c + 1 >= columns ? -INFINITE : p.bias ? p.bias[next] : 0.0f;
#if PRODUCT >= 4
            scale[i / 2] = make_float2(p.w_scale[word], p.w_scale[next]);
#endif
        }
    }

    // Makes sums scores.
    __device__ __forceinline__ void finish(const Product &p, RowScores<LANES> &r, u32 row) const {
#pragma unroll
        for (int i = 0; i < EACH; i += 2) {
#if PRODUCT >= 4
            r.score[i] = scaled(r.score[i], p.x_scale[row], scale[i / 2].x);
            r.score[i + 1] = scaled(r.score[i + 1], p.x_scale[row], scale[i / 2].y);
#endif
            r.score[i] += bias[i / 2].x, r.score[i + 1] += bias[i / 2].y;
        }
    }
};

// Searches a row of a tile, whose scores are in `r`. Sums of exponentials do not depend on how rows are spread over warps.
template <int LANES>
__device__ __forceinline__ void search_row(const Product &p, const Asked &asked, const Found &found, RowScores<LANES> &r, u32 row,
                                           bool there, const RowAsked &of, u32 tile_number) {
    u32 first_column = tile_number * TILE, columns = min((u32)TILE, p.columns - first_column);
    u64 at = (u64)row * found.tiles + tile_number;
    bool writes = there && LANE % LANES == 0;
    if (of.forced != NONE && there)
        r.find(p, first_column, columns, of.forced, [&](float score) { found.forced[row] = score; });
    // Exponentials are summed before words are banned (1), or after (2). The rows of a warp may differ in that, and
    // its lanes sum together.
    auto sum = [&](u32 when) {
        if (!__any_sync(0xffffffffu, of.probabilities == when)) return;
        float most = r.most(), sum = r.sum(most);
        if (writes && of.probabilities == when) found.maxima[at] = most, found.sums[at] = sum;
    };
    sum(1);
    for (u32 b = of.banned_start; b < of.banned_end; b++) {
        u32 word = b == of.banned_start ? of.banned : asked.banned[b];
        r.find(p, first_column, columns, word, [](float &score) { score = -INFINITE; });
    }
    sum(2);
    u32 most_wanted = __reduce_max_sync(0xffffffffu, of.wanted);
    for (u32 k = 0; k < most_wanted; k++) {
        float best;
        u32 column;
        r.best(best, column);
        if (k + 1 < most_wanted) r.ban(column);
        if (writes && k < of.wanted) {
            found.scores[at * asked.most + k] = best;
            found.words[at * asked.most + k] = column == NONE ? NONE : word_of(p, first_column, column);
        }
    }
}

// Searches the rows of a tile of sums in shared memory: eight lanes a row, four rows a warp.
__device__ __forceinline__ void search_tile(const Product &p, const Asked &asked, const Found &found, const float *tile,
                                            u32 stride, u32 first_row, u32 rows, u32 tile_number) {
    typedef RowScores<8> Scores;
    TileColumns<8> columns(p, tile_number * TILE);
    for (u32 base = threadIdx.x / 32 * 4; base < rows; base += blockDim.x / 8) {
        u32 r = base + LANE / 8, row = first_row + min(r, rows - 1);
        Scores scores;
        const float *from = tile + (u64)(row - first_row) * stride;
#pragma unroll
        for (int i = 0; i < Scores::EACH; i += 2) {
            float2 pair = *(const float2 *)(from + Scores::column(i));
            scores.score[i] = pair.x, scores.score[i + 1] = pair.y;
        }
        columns.finish(p, scores, row);
        search_row(p, asked, found, scores, row, r < rows, RowAsked(asked, row), tile_number);
    }
}

// The rows and words of a block: a run of rows that share their shortlist, and a tile of its words.
struct Task {
    u32 first_row, rows, tile, columns;
    const u32 *words;
};

#if PRODUCT != 0
// Up to 16 rows that share their shortlist: four warps, 32 columns each. FEW: up to eight rows.
template <bool FEW>
__device__ __forceinline__ void narrow_best(Product p, const Asked &asked, const Found &found, const Task *tasks) {
    __shared__ float logits[16 * (TILE + PAD)];
    let_next_begin();
    Task task = tasks[blockIdx.x];
    if (task.rows == 0) return;
    p.words = task.words;
    p.columns = task.columns;
    u32 warp = threadIdx.x / 32;
    sum_t sums[4][4];
    narrow_sums<4, 4, FEW>(p, task.first_row, task.first_row + task.rows, task.tile * TILE + 32 * warp, sums);
    lay_out<4>(sums, 0, 32 * warp, logits, TILE + PAD);
    __syncthreads();
    search_tile(p, asked, found, logits, TILE + PAD, task.first_row, task.rows, task.tile);
}

extern "C" __global__ void __launch_bounds__(128) best_few(Product p, Asked asked, Found found, const Task *tasks) {
    narrow_best<true>(p, asked, found, tasks);
}
extern "C" __global__ void __launch_bounds__(128) best_narrow(Product p, Asked asked, Found found, const Task *tasks) {
    narrow_best<false>(p, asked, found, tasks);
}

// Many rows over the whole vocabulary.
template <typename Tile>
__device__ __forceinline__ void wide_best(const Product &p, const typename Tile::Operands &from, const Asked &asked,
                                          const Found &found, u32 tile_rows) {
    extern __shared__ __align__(1024) u8 shared[];
    let_next_begin();
    u32 rows = *p.count;
    u32 first_row = blockIdx.x * tile_rows, first_column = blockIdx.y * TILE;
    if (first_row >= rows) return;
    typename Tile::Sums sums;
    Tile::sums(p, from, shared, first_row, rows, first_column, sums);
    float *logits = (float *)shared;
    Tile::lay_out_all(sums, logits);
    __syncthreads();
    search_tile(p, asked, found, logits, TILE + PAD, first_row, min(tile_rows, rows - first_row), blockIdx.y);
}

struct WideBest {
    Product p;
    Asked asked;
    Found found;
};

extern "C" __global__ void __launch_bounds__(128 + PRODUCER) best_middle(const __grid_constant__ WideBest b MAPS) {
    wide_best<MiddleBest>(b.p, OPERANDS, b.asked, b.found, 64);
}
extern "C" __global__ void __launch_bounds__(256 + PRODUCER, 2) best_large(const __grid_constant__ WideBest b MAPS) {
    wide_best<Large>(b.p, OPERANDS, b.asked, b.found, 128);
}

// Very many rows: rows are searched in registers, where four lanes have a row.
extern "C" __global__ void __launch_bounds__(PERSISTENT_THREADS, 1) best_huge(const __grid_constant__ WideBest b MAPS) {
#ifdef GROUPS
    extern __shared__ __align__(1024) u8 stages[];
    let_next_begin();
    u32 rows = *b.p.count;
    typedef Persistent<4, true> Tiles;
    Tiles tiles(b.p, rows);
    if (blockIdx.x >= tiles.tiles()) return;
    u32 warp_row = threadIdx.x / 32 % 4 * 16;
    struct Prepared {
        RowAsked asked;
        TileColumns<4> columns;
    };
    auto prepare = [&](u32 first_row, u32 first_column) {
        RowAsked asked(b.asked, min(first_row + LANE / 16 * 64 + warp_row + LANE % 16, rows - 1));
        return Prepared{asked, TileColumns<4>(b.p, first_column)};
    };
    tiles.run(OPERANDS, stages, prepare, [&](const Tiles::Sums &sums, u32 first_row, u32 first_column, const Prepared &prepared) {
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 first = first_row + 64 * m + warp_row + 8 * half, row = min(first + LANE / 4, rows - 1);
                if (first >= rows) continue;
                RowScores<4> scores;
#pragma unroll
                for (int i = 0; i < 32; i++) scores.score[i] = (float)sums[m][i / 2][2 * half + i % 2];
                prepared.columns.finish(b.p, scores, row);
                search_row(b.p, b.asked, b.found, scores, row, first + LANE / 4 < rows,
                           prepared.asked.from(16 * m + 8 * half + LANE / 4), first_column / TILE);
            }
    });
#endif
}
#else
extern "C" __global__ void __launch_bounds__(256) best_narrow(Product p, Asked asked, Found found, const Task *tasks) {
    __shared__ float logits[64][TILE + PAD];
    begin();
    Task task = tasks[blockIdx.x];
    if (task.rows == 0) return;
    p.words = task.words;
    p.columns = task.columns;
    u32 first_row = task.first_row, end = first_row + task.rows, first_column = task.tile * TILE;
    for (u32 half = 0; half < TILE; half += 64) {
        float sums[4][4];
        plain_sums<4>(p, first_row, end, first_column + half, sums);
        lay_out_plain<4>(sums, half, logits[0], TILE + PAD);
    }
    __syncthreads();
    search_tile(p, asked, found, logits[0], TILE + PAD, first_row, task.rows, task.tile);
}
#endif

// One block of four warps a row: the top k of all tiles, written where the host reads them, and again where
// the next step reads them (`latest`): all of a row with their scores for a device-side beam search, else the
// best word of each row.
extern "C" __global__ void __launch_bounds__(128) merge(Asked asked, Found found, const u32 *tile_counts,
                                                        u32 *answer_words, float *answer_scores, u32 *latest,
                                                        float *latest_scores, const u32 *count) {
    extern __shared__ float candidates[];
    __shared__ float warp_scores[4];
    __shared__ u32 warp_words[4];
    __shared__ float shared_shift;
    begin();
    u32 row = blockIdx.x;
    if (row >= *count) return;
    u32 tiles = tile_counts[row], warp = threadIdx.x / 32;
    u64 at = (u64)row * found.tiles;
    if (warp == 0) {
        float shift = 0.0f;
        if (asked.probabilities[row]) {
            float most = -INFINITE, sum = 0.0f;
#pragma unroll 4
            for (u32 t = LANE; t < tiles; t += 32) most = fmaxf(most, found.maxima[at + t]);
            most = warp_max(most);
#pragma unroll 4
            for (u32 t = LANE; t < tiles; t += 32) sum += found.sums[at + t] * expf(found.maxima[at + t] - most);
            shift = most + logf(warp_sum(sum));
        }
        if (LANE == 0) shared_shift = shift;
    }
    u32 wanted = min(asked.counts[row], asked.most), all = tiles * wanted;
    u32 *words = (u32 *)(candidates + all);
#pragma unroll 4
    for (u32 i = threadIdx.x; i < all; i += 128) {
        u64 from = (at + i / wanted) * asked.most + i % wanted;
        candidates[i] = found.scores[from];
        words[i] = found.words[from];
    }
    __syncthreads();
    u32 forced = asked.forced[row];
    u64 list = (u64)row * asked.most;
    if (latest_scores) latest += list, latest_scores += list;
    else latest += row;
    if (forced != NONE) {
        if (threadIdx.x == 0) {
            float score = found.forced[row] - shared_shift;
            answer_words[list] = latest[0] = forced;
            answer_scores[list] = score;
            if (latest_scores) latest_scores[0] = score;
        }
        return;
    }
    // Lane k of the first warp keeps the k-th word of 32, so that they are written together.
    float kept_score = 0.0f;
    u32 kept_word = NONE;
    for (u32 k = 0; k < wanted; k++) {
        float best = -INFINITE;
        u32 best_word = NONE;
        for (u32 i = threadIdx.x; i < all; i += 128)
            if (better(candidates[i], words[i], best, best_word)) best = candidates[i], best_word = words[i];
        group_best<32>(best, best_word);
        if (LANE == 0) warp_scores[warp] = best, warp_words[warp] = best_word;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < 4; w++)
            if (better(warp_scores[w], warp_words[w], best, best_word)) best = warp_scores[w], best_word = warp_words[w];
        for (u32 i = threadIdx.x; i < all; i += 128)
            if (words[i] == best_word) candidates[i] = -INFINITE, words[i] = NONE;
        if (LANE == k % 32) kept_word = best_word, kept_score = best - shared_shift;
        if (threadIdx.x <= k % 32 && (k % 32 == 31 || k + 1 == wanted)) {
            u32 to = k - k % 32 + threadIdx.x;
            answer_words[list + to] = kept_word;
            answer_scores[list + to] = kept_score;
            if (latest_scores || to == 0) latest[to] = kept_word;
            if (latest_scores) latest_scores[to] = kept_score;
        }
        __syncthreads();
    }
}

// The initial score of a forced word, which may not be among a row's words.
extern "C" __global__ void begin_best(float *forced, const u32 *count) {
    begin();
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < *count) forced[row] = -3.402823466e38f;
}
