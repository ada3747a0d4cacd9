// The output layer: the best words of every row. Logits live in a tile of shared memory and are
// never written out. A block looks at TILE words; for each row it leaves the best of them, their
// maximum and the sum of exponentials; `merge` puts the blocks' findings together.

#define TILE 128

struct Asked {
    const u32 *counts;       // how many words each row wants
    const u32 *forced;       // NONE, or the word whose score is the answer
    const u32 *banned_spans; // into `banned`, two a row
    const u32 *banned;
    u32 probabilities; // 0 logits, 1 of all words, 2 of those not banned
    u32 most;          // room for choices a row and tile
};

// What a tile found: `most` scores and words, then maximum and sum, for each row.
struct Found {
    float *scores;
    u32 *words;
    float *maxima;
    float *sums;
    float *forced; // a row
    u32 tiles;     // room a row
};

__device__ __forceinline__ bool better(float a, u32 a_word, float b, u32 b_word) {
    return a > b || (a == b && a_word < b_word);
}

// The best of all lanes, to all lanes.
__device__ __forceinline__ void warp_best(float &score, u32 &word) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        float other = __shfl_xor_sync(0xffffffffu, score, d);
        u32 other_word = __shfl_xor_sync(0xffffffffu, word, d);
        if (better(other, other_word, score, word)) score = other, word = other_word;
    }
}

// One warp looks through one row of a tile: `columns` logits from `logits`.
__device__ __noinline__ void search_row(const Asked &asked, const Found &found, u32 row, u32 tile, const float *logits,
                           u32 columns, u32 first_column, const u32 *words) {
    const int EACH = TILE / 32;
    float score[EACH];
    u32 word[EACH];
    u32 forced = asked.forced[row];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        u32 c = LANE + 32 * i;
        bool there = c < columns;
        word[i] = !there ? NONE : words ? words[first_column + c] : first_column + c;
        score[i] = there ? logits[c] : -INFINITE;
        if (there && word[i] == forced) found.forced[row] = score[i];
    }
    u32 banned_start = asked.banned_spans[2 * row], banned_end = asked.banned_spans[2 * row + 1];
#define BAN                                                                                                    \
    for (u32 b = banned_start; b < banned_end; b++)                                                            \
        _Pragma("unroll") for (int i = 0; i < EACH; i++) if (word[i] == asked.banned[b]) score[i] = -INFINITE;
    if (asked.probabilities == 2) BAN
    u64 at = (u64)row * found.tiles + tile;
    if (asked.probabilities) {
        float most = -INFINITE, sum = 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, score[i]);
        most = warp_max(most);
        if (most > -INFINITE)
#pragma unroll
            for (int i = 0; i < EACH; i++) sum += expf(score[i] - most);
        sum = warp_sum(sum);
        if (LANE == 0) found.maxima[at] = most, found.sums[at] = sum;
    }
    if (asked.probabilities != 2) BAN
#undef BAN
    u32 wanted = min(asked.counts[row], asked.most);
    for (u32 k = 0; k < asked.most; k++) {
        float best = -INFINITE;
        u32 best_word = NONE;
        if (k < wanted) {
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (better(score[i], word[i], best, best_word)) best = score[i], best_word = word[i];
            warp_best(best, best_word);
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (word[i] == best_word) score[i] = -INFINITE, word[i] = NONE;
        }
        if (LANE == 0) found.scores[at * asked.most + k] = best, found.words[at * asked.most + k] = best_word;
    }
}

// The same for all rows of a tile of unfinished sums.
__device__ __forceinline__ void search_tile(const Product &p, const Asked &asked, const Found &found, float *logits,
                                            u32 first_row, u32 rows, u32 tile) {
    u32 first_column = tile * TILE, columns = min((u32)TILE, p.columns - first_column);
    for (u32 i = threadIdx.x; i < rows * TILE; i += blockDim.x) {
        u32 r = i / TILE, c = i % TILE;
        float *logit = logits + r * (TILE + 4) + c;
        if (c < columns) *logit = finish(p, first_row + r, first_column + c, *logit);
    }
    __syncthreads();
    for (u32 r = threadIdx.x / 32; r < rows; r += blockDim.x / 32)
        search_row(asked, found, first_row + r, tile, logits + r * (TILE + 4), columns, first_column, p.words);
}

// Which rows and words a block looks at: a run of rows that share their words, and a tile of those.
struct Task {
    u32 first_row, rows, tile, columns;
    const u32 *words;
};

#if PRODUCT != 0
// Up to 64 rows a block: four warps, 32 columns each.
template <int TALL>
__device__ __forceinline__ void narrow_best(Product p, const Asked &asked, const Found &found, const Task *tasks) {
    __shared__ float logits[16 * TALL][TILE + 4];
    let_next_begin();
    Task task = tasks[blockIdx.x];
    if (task.rows == 0) return;
    p.words = task.words;
    p.columns = task.columns;
    u32 warp = threadIdx.x / 32, first_column = task.tile * TILE;
    u32 first_row = task.first_row, end = task.first_row + task.rows;
    sum_t sums[TALL][4][4];
    narrow_sums<TALL, 4, 4>(p, first_row, end, first_column + 32 * warp, sums);
    lay_out<TALL, 4>(sums, 0, 32 * warp, logits[0], TILE + 4);
    __syncthreads();
    search_tile(p, asked, found, logits[0], first_row, task.rows, task.tile);
}

extern "C" __global__ void __launch_bounds__(128) best_16(Product p, Asked asked, Found found, const Task *tasks) {
    narrow_best<1>(p, asked, found, tasks);
}
extern "C" __global__ void __launch_bounds__(128) best_64(Product p, Asked asked, Found found, const Task *tasks) {
    narrow_best<4>(p, asked, found, tasks);
}

// Many rows that share all words.
extern "C" __global__ void __launch_bounds__(256) best_large(Product p, Asked asked, Found found) {
    extern __shared__ __align__(128) u8 shared[];
    begin();
    u32 rows = *p.count, warp = threadIdx.x / 32;
    u32 first_row = blockIdx.x * 128, first_column = blockIdx.y * TILE;
    if (first_row >= rows) return;
    sum_t sums[Large::TALL][Large::WIDE][4];
    Large::sums(p, shared, first_row, rows, first_column, sums);
    float *logits = (float *)shared;
    lay_out<Large::TALL, Large::WIDE>(sums, warp / 4 * 16 * Large::TALL, warp % 4 * 8 * Large::WIDE, logits, TILE + 4);
    __syncthreads();
    search_tile(p, asked, found, logits, first_row, min(128u, rows - first_row), blockIdx.y);
}
#else
extern "C" __global__ void __launch_bounds__(256) best_64(Product p, Asked asked, Found found, const Task *tasks) {
    __shared__ float logits[64][TILE + 4];
    begin();
    Task task = tasks[blockIdx.x];
    if (task.rows == 0) return;
    p.words = task.words;
    p.columns = task.columns;
    u32 first_row = task.first_row, end = first_row + task.rows, first_column = task.tile * TILE;
    for (u32 half = 0; half < TILE; half += 64) {
        float sums[4][4];
        plain_sums<4>(p, first_row, end, first_column + half, sums);
        lay_out_plain<4>(sums, half, logits[0], TILE + 4);
    }
    __syncthreads();
    search_tile(p, asked, found, logits[0], first_row, task.rows, task.tile);
}
#endif

// Logits already in memory: the papers' way, a pass over them.
extern "C" __global__ void __launch_bounds__(256) search_logits(const float *logits, u32 stride, u32 columns,
                                                               Asked asked, Found found, const u32 *count) {
    begin();
    u32 row = blockIdx.x, tile = blockIdx.y * 8 + threadIdx.x / 32;
    if (row >= *count || tile * TILE >= columns) return;
    search_row(asked, found, row, tile, logits + (u64)row * stride + tile * TILE,
               min((u32)TILE, columns - tile * TILE), tile * TILE, 0);
}

// One block of four warps a row: the best of all tiles, written where the host reads.
extern "C" __global__ void __launch_bounds__(128) merge(Asked asked, Found found, const u32 *tile_counts,
                                                        u32 *answer_words, float *answer_scores, const u32 *count) {
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
        if (asked.probabilities) {
            float most = -INFINITE, sum = 0.0f;
            for (u32 t = LANE; t < tiles; t += 32) most = fmaxf(most, found.maxima[at + t]);
            most = warp_max(most);
            for (u32 t = LANE; t < tiles; t += 32) sum += found.sums[at + t] * expf(found.maxima[at + t] - most);
            shift = most + logf(warp_sum(sum));
        }
        if (LANE == 0) shared_shift = shift;
    }
    u32 all = tiles * asked.most;
    u32 *words = (u32 *)(candidates + all);
    for (u32 i = threadIdx.x; i < all; i += 128) {
        candidates[i] = found.scores[at * asked.most + i];
        words[i] = found.words[at * asked.most + i];
    }
    __syncthreads();
    u32 forced = asked.forced[row];
    if (forced != NONE) {
        if (threadIdx.x == 0) {
            answer_words[(u64)row * asked.most] = forced;
            answer_scores[(u64)row * asked.most] = found.forced[row] - shared_shift;
        }
        return;
    }
    u32 wanted = min(asked.counts[row], asked.most);
    for (u32 k = 0; k < wanted; k++) {
        float best = -INFINITE;
        u32 best_word = NONE;
        for (u32 i = threadIdx.x; i < all; i += 128)
            if (better(candidates[i], words[i], best, best_word)) best = candidates[i], best_word = words[i];
        warp_best(best, best_word);
        if (LANE == 0) warp_scores[warp] = best, warp_words[warp] = best_word;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < 4; w++)
            if (better(warp_scores[w], warp_words[w], best, best_word)) best = warp_scores[w], best_word = warp_words[w];
        for (u32 i = threadIdx.x; i < all; i += 128)
            if (words[i] == best_word) candidates[i] = -INFINITE, words[i] = NONE;
        if (threadIdx.x == 0) {
            answer_words[(u64)row * asked.most + k] = best_word;
            answer_scores[(u64)row * asked.most + k] = best - shared_shift;
        }
        __syncthreads();
    }
}

// No score yet for a word that must be scored but may not be among a row's words.
extern "C" __global__ void begin_best(float *forced, const u32 *count) {
    begin();
    u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < *count) forced[row] = -3.402823466e38f;
}
