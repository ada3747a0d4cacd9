// Amun's output layers, over logits in memory, with which that of `output.cu` is compared. A product has
// written the logits, without bias:
//
//     logits[row][word], float32, `stride` elements a row (a multiple of four)
//
// Separate (Algorithm 3): `add_bias`, `softmax` and `k_best`, which between them read the matrix five
// times and write it twice. Fused (Algorithm 4): `fused_best` reads it once, with an online softmax: the
// sum of exponentials is rescaled when a higher maximum is found. Best only (Algorithms 5 and 6):
// `shard_best` and `best_of_shards`, no exponential at all.
//
// A block of 256 threads has a row, or a shard of one, and reads it in slabs: QUARTETS times four adjacent
// words a thread, which stay in registers. The order of sums depends on nothing but the number of words.

#define ROW_THREADS 256
// The largest k of a row here.
#define MOST_CHOICES 32
// Quartets of a slab in `softmax`, `k_best` and `fused_best`, and of a shard.
#define SLAB_QUARTETS 8
#define SHARD_QUARTETS 2

struct Logits {
    float *values;
    const float *bias; // may be missing
    u32 stride;
    u32 columns;
    const u32 *count;
};

// A word and its score as one integer: the better of two words has the larger one, of equal scores the
// word with the lower id. No two words have the same; 0 is no word.
__device__ __forceinline__ u64 ranked(float score, u32 word) {
    if (!(score > -INFINITE)) return 0;
    // Negative zero equals zero.
    u32 bits = score == 0.0f ? 0u : __float_as_uint(score);
    u32 ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (u64)ordered << 32 | (NONE - word);
}
__device__ __forceinline__ u32 word_of(u64 ranked) { return NONE - (u32)ranked; }
__device__ __forceinline__ float score_of(u64 ranked) {
    u32 ordered = (u32)(ranked >> 32);
    return __uint_as_float(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

__device__ __forceinline__ u64 warp_most(u64 v) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v = max(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

// The word of a thread's value `i` in the slab that begins at `first`.
__device__ __forceinline__ u32 word_at(u32 first, u32 i) { return first + i / 4 * 4 * ROW_THREADS + 4 * threadIdx.x + i % 4; }

// Reads a thread's part of a slab. Beyond the last word there is minus infinity.
template <int QUARTETS>
__device__ __forceinline__ void read_slab(const float *row, const float *bias, u32 columns, u32 first,
                                          float (&v)[4 * QUARTETS]) {
#pragma unroll
    for (int q = 0; q < QUARTETS; q++) {
        u32 word = word_at(first, 4 * q);
        float4 four = make_float4(-INFINITE, -INFINITE, -INFINITE, -INFINITE), add = make_float4(0, 0, 0, 0);
        // Rows are as long as whole quartets, and so is memory for the bias.
        if (word < columns) {
            four = *(const float4 *)(row + word);
            if (bias) add = *(const float4 *)(bias + word);
        }
        v[4 * q] = four.x + add.x;
        v[4 * q + 1] = word + 1 < columns ? four.y + add.y : -INFINITE;
        v[4 * q + 2] = word + 2 < columns ? four.z + add.z : -INFINITE;
        v[4 * q + 3] = word + 3 < columns ? four.w + add.w : -INFINITE;
    }
}

template <int N> __device__ __forceinline__ void ban(const Asked &asked, u32 row, u32 first, float (&v)[N]) {
    for (u32 b = asked.banned_spans[2 * row]; b < asked.banned_spans[2 * row + 1]; b++) {
        u32 at = asked.banned[b] - first;
        if (at >= N * ROW_THREADS || at / 4 % ROW_THREADS != threadIdx.x) continue;
        u32 mine = at / (4 * ROW_THREADS) * 4 + at % 4;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i == mine) v[i] = -INFINITE;
    }
}

// An online log-sum-exp: a running maximum and sum of exponentials, rescaled when the maximum grows.
struct Sum {
    float most, sum;
};

template <int N> __device__ __forceinline__ void add(Sum &s, const float (&v)[N]) {
    float most = s.most;
#pragma unroll
    for (int i = 0; i < N; i++) most = fmaxf(most, v[i]);
    if (!(most > -INFINITE)) return;
    s.sum *= expf(s.most - most);
    s.most = most;
#pragma unroll
    for (int i = 0; i < N; i++) s.sum += expf(v[i] - most);
}

// The log-sum-exp over all threads of a block.
__device__ __forceinline__ float log_of_all(Sum s) {
    __shared__ float most_of[ROW_THREADS / 32], sum_of[ROW_THREADS / 32];
    float most = warp_max(s.most);
    float sum = warp_sum(s.most > -INFINITE ? s.sum * expf(s.most - most) : 0.0f);
    if (LANE == 0) most_of[threadIdx.x / 32] = most, sum_of[threadIdx.x / 32] = sum;
    __syncthreads();
    most = -INFINITE, sum = 0.0f;
#pragma unroll
    for (int w = 0; w < ROW_THREADS / 32; w++) most = fmaxf(most, most_of[w]);
#pragma unroll
    for (int w = 0; w < ROW_THREADS / 32; w++)
        if (most_of[w] > -INFINITE) sum += sum_of[w] * expf(most_of[w] - most);
    return most + logf(sum);
}

// The top k of a row so far, and room to find better words.
//
// A slab's words are not sorted. Each thread names its best; the k-th best of those and of the kept ones
// is a threshold which k words reach, so no word below it is in the top k. Threads whose best is below
// the threshold have no candidates, so the words of at most k threads are searched again.
struct Best {
    u64 kept[MOST_CHOICES]; // best first
    u64 of_thread[ROW_THREADS];
    u64 reached[MOST_CHOICES * (4 * SLAB_QUARTETS + 1)];
    u64 threshold;
    u32 reaching;
};

__device__ __forceinline__ void begin_search(Best &best) {
    if (threadIdx.x < MOST_CHOICES) best.kept[threadIdx.x] = 0;
    if (threadIdx.x == 0) best.reaching = 0;
    __syncthreads();
}

// The k-th largest of all threads' best and the kept ones, by one warp; 0 if there are fewer.
__device__ __forceinline__ u64 kth_best(const Best &best, u32 k) {
    const int EACH_LANE = ROW_THREADS / 32 + 1;
    u64 mine[EACH_LANE], largest = 0;
#pragma unroll
    for (int i = 0; i + 1 < EACH_LANE; i++) mine[i] = best.of_thread[LANE + 32 * i];
    mine[EACH_LANE - 1] = best.kept[LANE];
    for (u32 round = 0; round < k; round++) {
        u64 most = 0;
#pragma unroll
        for (int i = 0; i < EACH_LANE; i++) most = max(most, mine[i]);
        largest = warp_most(most);
#pragma unroll
        for (int i = 0; i < EACH_LANE; i++)
            if (mine[i] == largest) mine[i] = 0;
    }
    return largest;
}

__device__ __forceinline__ void offer(Best &best, u64 word) {
    if (word != 0 && word >= best.threshold) best.reached[atomicAdd(&best.reaching, 1)] = word;
}

// Adds a slab; called by all threads of the block.
template <int N> __device__ __forceinline__ void search(Best &best, u32 k, u32 first, const float (&v)[N]) {
    u64 mine = 0, last = best.kept[k - 1];
    float enough = last ? score_of(last) : -INFINITE;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (v[i] >= enough) mine = max(mine, ranked(v[i], word_at(first, i)));
    // Late slabs usually have no new candidates.
    if (!__syncthreads_or(mine > last)) return;
    best.of_thread[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        u64 threshold = kth_best(best, k);
        if (LANE == 0) best.threshold = threshold;
    }
    __syncthreads();
    u64 threshold = best.threshold, kept = threadIdx.x < k ? best.kept[threadIdx.x] : 0;
    if (mine != 0 && mine >= threshold)
#pragma unroll
        for (int i = 0; i < N; i++) offer(best, ranked(v[i], word_at(first, i)));
    offer(best, kept);
    __syncthreads();
    u32 reaching = best.reaching;
    if (threadIdx.x < k) best.kept[threadIdx.x] = 0;
    __syncthreads();
    // No two are equal, so each has its own rank, whatever their order.
    for (u32 i = threadIdx.x; i < reaching; i += ROW_THREADS) {
        u64 word = best.reached[i];
        u32 place = 0;
        for (u32 j = 0; j < reaching; j++) place += best.reached[j] > word;
        if (place < k) best.kept[place] = word;
    }
    if (threadIdx.x == 0) best.reaching = 0;
    __syncthreads();
}

// Writes the top k of a row where the host reads them; a forced word is the whole answer. Scores come
// `from` a row of them, or are logits minus the shift.
__device__ __forceinline__ void answer(const Best &best, const Asked &asked, u32 row, float forced_score, float shift,
                                       const float *from, u32 *words, float *scores, u32 *latest) {
    u64 at = (u64)row * asked.most;
    if (asked.forced[row] != NONE) {
        if (threadIdx.x == 0) words[at] = latest[row] = asked.forced[row], scores[at] = forced_score - shift;
        return;
    }
    if (threadIdx.x >= min(asked.counts[row], asked.most)) return;
    u64 word = best.kept[threadIdx.x];
    words[at + threadIdx.x] = word ? word_of(word) : NONE;
    if (threadIdx.x == 0) latest[row] = words[at];
    scores[at + threadIdx.x] = !word ? 0.0f : from ? from[word_of(word)] : score_of(word) - shift;
}

// The score of a forced word; the lowest float if the word does not exist.
__device__ __forceinline__ float forced_score(const float *row, const float *bias, u32 columns, u32 word) {
    if (word >= columns) return -3.402823466e38f;
    return row[word] + (bias ? bias[word] : 0.0f);
}

// The k of a row, at least one.
__device__ __forceinline__ u32 wanted(const Asked &asked, u32 row) {
    return max(1u, min(asked.counts[row], min(asked.most, (u32)MOST_CHOICES)));
}

// Algorithm 3, first part: bias. A block has a slab of a row.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) add_bias(Logits l) {
    begin();
    u32 row = blockIdx.x;
    if (row >= *l.count || !l.bias) return;
    float *values = l.values + (u64)row * l.stride;
    u32 first = blockIdx.y * 4 * SLAB_QUARTETS * ROW_THREADS;
#pragma unroll
    for (int q = 0; q < SLAB_QUARTETS; q++) {
        u32 word = word_at(first, 4 * q);
        if (word >= l.columns) continue;
        float4 *at = (float4 *)(values + word);
        float4 four = *at, add = *(const float4 *)(l.bias + word);
        *at = make_float4(four.x + add.x, four.y + add.y, four.z + add.z, four.w + add.w);
    }
}

// Algorithm 3, second part: maximum, sum, and log-probabilities, to a matrix of their own. Words are
// chosen by logit, as everywhere: different logits may have the same rounded probability.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) softmax(Logits l, Asked asked, float *probabilities) {
    __shared__ float of_warp[2][ROW_THREADS / 32];
    begin();
    u32 row = blockIdx.x, warp = threadIdx.x / 32;
    if (row >= *l.count) return;
    const float *values = l.values + (u64)row * l.stride;
    const u32 SLAB = 4 * SLAB_QUARTETS * ROW_THREADS;
    float most = -INFINITE, sum = 0.0f, v[4 * SLAB_QUARTETS];
    for (u32 first = 0; first < l.columns; first += SLAB) {
        read_slab<SLAB_QUARTETS>(values, 0, l.columns, first, v);
        if (asked.probabilities[row] == 2) ban(asked, row, first, v);
#pragma unroll
        for (int i = 0; i < 4 * SLAB_QUARTETS; i++) most = fmaxf(most, v[i]);
    }
    most = warp_max(most);
    if (LANE == 0) of_warp[0][warp] = most;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < ROW_THREADS / 32; w++) most = fmaxf(most, of_warp[0][w]);
    for (u32 first = 0; first < l.columns; first += SLAB) {
        read_slab<SLAB_QUARTETS>(values, 0, l.columns, first, v);
        if (asked.probabilities[row] == 2) ban(asked, row, first, v);
#pragma unroll
        for (int i = 0; i < 4 * SLAB_QUARTETS; i++) sum += most > -INFINITE ? expf(v[i] - most) : 0.0f;
    }
    sum = warp_sum(sum);
    if (LANE == 0) of_warp[1][warp] = sum;
    __syncthreads();
    sum = 0.0f;
#pragma unroll
    for (int w = 0; w < ROW_THREADS / 32; w++) sum += of_warp[1][w];
    float shift = most + logf(sum);
    for (u32 first = 0; first < l.columns; first += SLAB) {
        read_slab<SLAB_QUARTETS>(values, 0, l.columns, first, v);
#pragma unroll
        for (int q = 0; q < SLAB_QUARTETS; q++) {
            u32 word = word_at(first, 4 * q);
            if (word < l.columns)
                *(float4 *)(probabilities + (u64)row * l.stride + word) =
                    make_float4(v[4 * q] - shift, v[4 * q + 1] - shift, v[4 * q + 2] - shift, v[4 * q + 3] - shift);
        }
    }
}

// Algorithm 3, third part: top k.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) k_best(Logits l, Asked asked, const float *probabilities,
                                                             u32 *words, float *scores, u32 *latest) {
    __shared__ Best best;
    begin();
    u32 row = blockIdx.x;
    if (row >= *l.count) return;
    const float *values = l.values + (u64)row * l.stride;
    begin_search(best);
    u32 k = wanted(asked, row);
    float v[4 * SLAB_QUARTETS];
    for (u32 first = 0; first < l.columns; first += 4 * SLAB_QUARTETS * ROW_THREADS) {
        read_slab<SLAB_QUARTETS>(values, 0, l.columns, first, v);
        ban(asked, row, first, v);
        search(best, k, first, v);
    }
    const float *from = asked.probabilities[row] ? probabilities + (u64)row * l.stride : values;
    float forced = forced_score(from, 0, l.columns, asked.forced[row]);
    answer(best, asked, row, forced, 0.0f, from, words, scores, latest);
}

// Algorithm 4: bias, softmax and top k; the matrix is read once.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) fused_best(Logits l, Asked asked, u32 *words, float *scores,
                                                                 u32 *latest) {
    __shared__ Best best;
    begin();
    u32 row = blockIdx.x;
    if (row >= *l.count) return;
    const float *values = l.values + (u64)row * l.stride;
    begin_search(best);
    u32 k = wanted(asked, row), scoring = asked.probabilities[row];
    Sum sum = {-INFINITE, 0.0f};
    float v[4 * SLAB_QUARTETS];
    for (u32 first = 0; first < l.columns; first += 4 * SLAB_QUARTETS * ROW_THREADS) {
        read_slab<SLAB_QUARTETS>(values, l.bias, l.columns, first, v);
        // Exponentials are summed before words are banned (1), or after (2).
        if (scoring == 1) add(sum, v);
        ban(asked, row, first, v);
        if (scoring == 2) add(sum, v);
        search(best, k, first, v);
    }
    float shift = scoring ? log_of_all(sum) : 0.0f;
    float forced = forced_score(values, l.bias, l.columns, asked.forced[row]);
    answer(best, asked, row, forced, shift, 0, words, scores, latest);
}

// Algorithm 6, in parallel: the best word of each shard.
extern "C" __global__ void __launch_bounds__(ROW_THREADS) shard_best(Logits l, Asked asked, u64 *best_of) {
    __shared__ u64 of_warp[ROW_THREADS / 32];
    begin();
    u32 row = blockIdx.x, first = blockIdx.y * 4 * SHARD_QUARTETS * ROW_THREADS;
    if (row >= *l.count) return;
    float v[4 * SHARD_QUARTETS];
    read_slab<SHARD_QUARTETS>(l.values + (u64)row * l.stride, l.bias, l.columns, first, v);
    ban(asked, row, first, v);
    u64 best = 0;
#pragma unroll
    for (int i = 0; i < 4 * SHARD_QUARTETS; i++) best = max(best, ranked(v[i], word_at(first, i)));
    best = warp_most(best);
    if (LANE == 0) of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int w = 0; w < ROW_THREADS / 32; w++) best = max(best, of_warp[w]);
    best_of[(u64)row * gridDim.y + blockIdx.y] = best;
}

// Algorithm 6, reduction of the shards: a warp a row.
extern "C" __global__ void best_of_shards(Logits l, Asked asked, const u64 *best_of, u32 shards, u32 *words,
                                          float *scores, u32 *latest) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *l.count) return;
    u64 best = 0;
    for (u32 i = LANE; i < shards; i += 32) best = max(best, best_of[(u64)row * shards + i]);
    best = warp_most(best);
    if (LANE != 0) return;
    u64 at = (u64)row * asked.most;
    u32 forced = asked.forced[row];
    words[at] = latest[row] = forced != NONE ? forced : best ? word_of(best) : NONE;
    scores[at] = forced != NONE ? forced_score(l.values + (u64)row * l.stride, l.bias, l.columns, forced)
                 : best         ? score_of(best)
                                : 0.0f;
}
