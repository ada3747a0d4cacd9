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

// Lanes that share a row of a tile, and the columns each has.
#define SHARERS 8
#define EACH (TILE / SHARERS)

// Maximum and sum of exponentials of a row's tile.
__device__ __forceinline__ void sum_tile(const Found &found, const float (&score)[EACH], u64 at, bool write) {
    float most = -INFINITE, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++) most = fmaxf(most, score[i]);
#pragma unroll
    for (int d = SHARERS / 2; d > 0; d >>= 1) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    if (most > -INFINITE)
#pragma unroll
        for (int i = 0; i < EACH; i++) sum += expf(score[i] - most);
#pragma unroll
    for (int d = SHARERS / 2; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (write) found.maxima[at] = most, found.sums[at] = sum;
}

// Searches the rows of a tile of sums: eight lanes a row, four rows a warp, whatever the number of rows, so
// that sums of exponentials do not depend on it. A lane has the same columns in every row, with their bias
// and scale in registers. Columns stand for words until the end; words are in ascending order, so of equals
// the first column is right.

// The word of a column of the tile.
#define WORD(c) (p.words ? p.words[first_column + (c)] : first_column + (c))

__device__ __forceinline__ void search_tile(const Product &p, const Asked &asked, const Found &found, const float *tile,
                                            u32 stride, u32 first_row, u32 rows, u32 tile_number) {
    u32 first_column = tile_number * TILE, columns = min((u32)TILE, p.columns - first_column);
    u32 share = threadIdx.x % SHARERS;
    // Columns of the last tile may be beyond all words.
    float add[EACH];
#if PRODUCT >= 4
    float scale[EACH];
#endif
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 c = min(share + SHARERS * i, columns - 1);
        u32 word = WORD(c);
        add[i] = share + SHARERS * i >= columns ? -INFINITE : p.bias ? p.bias[word] : 0.0f;
#if PRODUCT >= 4
        scale[i] = p.w_scale[word];
#endif
    }
    for (u32 base = threadIdx.x / 32 * 4; base < rows; base += blockDim.x / 8) {
        u32 r = base + LANE / SHARERS;
        bool there = r < rows;
        u32 row = first_row + min(r, rows - 1);
        u32 forced = asked.forced[row], wanted = min(asked.counts[row], asked.most);
        u32 probabilities = asked.probabilities[row];
        u32 banned_start = asked.banned_spans[2 * row], banned_end = asked.banned_spans[2 * row + 1];
        const float *logits = tile + (u64)(row - first_row) * stride + share;
        float score[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            score[i] = share + SHARERS * i < columns ? logits[SHARERS * i] : 0.0f;
#if PRODUCT >= 4
            score[i] = scaled(score[i], p.x_scale[row], scale[i]);
#endif
            score[i] += add[i];
        }
        if (forced != NONE && there) {
#pragma unroll 1
            for (u32 c = share; c < columns; c += SHARERS)
                if (WORD(c) == forced) {
                    float v = 0.0f;
#pragma unroll
                    for (int i = 0; i < EACH; i++)
                        if (share + SHARERS * i == c) v = score[i];
                    found.forced[row] = v;
                }
        }
        u64 at = (u64)row * found.tiles + tile_number;
        // Exponentials are summed before words are banned (1), or after (2). The rows of a warp may differ in that, and
        // its lanes sum together.
        bool writes = share == 0 && there;
        if (__any_sync(0xffffffffu, probabilities == 1)) sum_tile(found, score, at, writes && probabilities == 1);
        for (u32 b = banned_start; b < banned_end; b++) {
            u32 word = asked.banned[b], c = word - first_column;
            if (p.words) {
                c = NONE;
                for (u32 i = share; i < columns; i += SHARERS)
                    if (WORD(i) == word) c = i;
            }
            if (c < columns)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    if (share + SHARERS * i == c) score[i] = -INFINITE;
        }
        if (__any_sync(0xffffffffu, probabilities == 2)) sum_tile(found, score, at, writes && probabilities == 2);
        u32 most_wanted = __reduce_max_sync(0xffffffffu, wanted);
        for (u32 k = 0; k < most_wanted; k++) {
            float best = -INFINITE;
            u32 column = NONE;
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (score[i] > best) best = score[i], column = share + SHARERS * i;
            group_best<SHARERS>(best, column);
            if (k + 1 < most_wanted)
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    if (share + SHARERS * i == column) score[i] = -INFINITE;
            if (writes && k < wanted) {
                found.scores[at * asked.most + k] = best;
                found.words[at * asked.most + k] = column == NONE ? NONE : WORD(column);
            }
        }
    }
}
#undef WORD

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
extern "C" __global__ void __launch_bounds__(256 + PRODUCER) best_large(const __grid_constant__ WideBest b MAPS) {
    wide_best<Large>(b.p, OPERANDS, b.asked, b.found, 128);
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
            for (u32 t = LANE; t < tiles; t += 32) most = fmaxf(most, found.maxima[at + t]);
            most = warp_max(most);
            for (u32 t = LANE; t < tiles; t += 32) sum += found.sums[at + t] * expf(found.maxima[at + t] - most);
            shift = most + logf(warp_sum(sum));
        }
        if (LANE == 0) shared_shift = shift;
    }
    u32 wanted = min(asked.counts[row], asked.most), all = tiles * wanted;
    u32 *words = (u32 *)(candidates + all);
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
        if (threadIdx.x == 0) {
            answer_words[list + k] = best_word;
            answer_scores[list + k] = best - shared_shift;
            if (latest_scores || k == 0) latest[k] = best_word;
            if (latest_scores) latest_scores[k] = best - shared_shift;
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
