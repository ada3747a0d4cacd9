// The time of single kernels on a Hopper GPU, without the engine around them: products, output layers, attention.
//
//   nvcc -std=c++17 -O3 -DROWS=1 -DPRODUCT=1 -gencode=arch=compute_90a,code=sm_90a -I crates/cuda/kernels \
//       -o /tmp/kernels bench/gpu_kernels.cu && /tmp/kernels [products] [output] [attention]
//
// float16, random numbers. A kernel is launched ten times in a row, which is timed seven times; the median is printed, in
// microseconds. Every kernel of a line must give the bits of the first one, and products must be those of a loop
// over rows (WRONG, DIFFERENT if not).

// The host's pass of the compiler must see the kernels too.
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH_FEAT_SM90_ALL
#endif
#include "precision.cu"
#include "rows.cu"
#include "attention.cu"
#include "attention_tiles.cu"
#include "product.cu"
#include "tiles.cu"
#include "output.cu"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

static void check(int code, int line) {
    if (code == 0) return;
    fprintf(stderr, "error %d at line %d\n", code, line);
    exit(2);
}
#define CHECK(call) check((int)(call), __LINE__)

// Device memory of N numbers.
template <typename T> struct Memory {
    T *at;
    u64 count;
    explicit Memory(u64 n) : count(n) { CHECK(cudaMalloc(&at, n * sizeof(T) + 64)); }
    explicit Memory(const std::vector<T> &from) : Memory(from.size()) {
        CHECK(cudaMemcpy(at, from.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    Memory(const Memory &) = delete;
    ~Memory() { cudaFree(at); }
    void set(int byte) { CHECK(cudaMemset(at, byte, count * sizeof(T))); }
    std::vector<T> read() const {
        std::vector<T> to(count);
        CHECK(cudaMemcpy(to.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost));
        return to;
    }
};

__global__ void fill(u16 *x, u64 n, u32 seed, float most) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        u32 h = (u32)i * 2654435761u + seed;
        h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h *= 3266489917u, h ^= h >> 16;
        x[i] = to_float16(((float)(h & 0xffff) / 32768.0f - 1.0f) * most);
    }
}
static void randomise(const Memory<u16> &x, u32 seed, float most) { fill<<<1024, 256>>>(x.at, x.count, seed, most); }

// A product in float32 of every so many rows.
__global__ void plain_product(const u16 *x, const u16 *w, float *out, u32 apart, u32 n, u32 k) {
    u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    u64 row = (u64)blockIdx.y * apart;
    if (c >= n) return;
    float s = 0.0f;
    for (u32 i = 0; i < k; i++) s += from_float16(x[row * k + i]) * from_float16(w[(u64)c * k + i]);
    out[(u64)blockIdx.y * n + c] = s;
}

// The tensor map of a matrix of two-byte numbers, as the engine makes it.
static Map map_of(const Memory<u16> &matrix, u64 rows, u64 columns) {
    typedef CUresult (*Encode)(Map *, int, unsigned, u64, const u64 *, const u64 *, const unsigned *, const unsigned *, int, int, int, int);
    void *encode;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
    Map map;
    u64 size[2] = {2 * columns, rows}, stride[1] = {2 * columns};
    unsigned corner[2] = {128, 64}, step[2] = {1, 1};
    CHECK(((Encode)encode)(&map, 0, 2, (u64)matrix.at, size, stride, corner, step, 0, 3, 3, 0));
    return map;
}

static double microseconds(const std::function<void()> &launch) {
    std::vector<float> times;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin)), CHECK(cudaEventCreate(&end));
    for (int round = 0; round < 7; round++) {
        float ms;
        CHECK(cudaEventRecord(begin));
        for (int i = 0; i < 10; i++) launch();
        CHECK(cudaEventRecord(end)), CHECK(cudaEventSynchronize(end)), CHECK(cudaEventElapsedTime(&ms, begin, end));
        times.push_back(100.0f * ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static u32 processors() {
    int count;
    CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
    return count;
}

struct Tile {
    const char *name;
    void *kernel;
    u32 rows, columns, stages, threads;
    bool persistent;

    u32 shared() const { return (rows + columns) * 128 * stages; }
    dim3 grid(u32 m, u32 n) const {
        u32 across = (n + columns - 1) / columns, down = (m + rows - 1) / rows;
        return persistent ? dim3(std::min(processors(), across * down)) : dim3(across, down);
    }
};

static void products() {
    const Tile tiles[] = {{"large", (void *)product_large, 128, 128, 3, 288, false},
                          {"tall", (void *)product_tall, 128, 64, 4, 288, false},
                          {"middle", (void *)product_middle, 64, 64, 5, 160, false},
                          {"huge", (void *)product_huge, 256, 128, 4, PERSISTENT_THREADS, true}};
    const u32 sides[][2] = {{512, 512}, {1536, 512}, {2048, 512}, {512, 2048}, {1024, 256}, {256, 1024}, {32000, 512}};
    for (u32 m : {1000u, 2048u, 4096u, 8192u, 32768u})
        for (const u32 (&side)[2] : sides) {
            u32 n = side[0], k = side[1];
            if (n == 32000 && m > 2048) continue;
            const u32 SOME = 50;
            Memory<u16> x((u64)m * k), w((u64)n * k), out((u64)m * n), input((u64)m * n);
            Memory<float> bias(std::vector<float>(n, 0.25f)), sums((u64)SOME * n);
            Memory<u32> count(std::vector<u32>{m});
            randomise(x, 1, 0.5f), randomise(w, 2, 0.5f), randomise(input, 3, 0.5f);
            plain_product<<<dim3((n + 255) / 256, SOME), 256>>>(x.at, w.at, sums.at, m / SOME, n, k);
            std::vector<float> wanted = sums.read();
            // Wide results have a ReLU, narrow ones a residual.
            bool relu = n > k, residual = n <= 512;
            std::vector<u16> added = input.read(), first;
            printf("%6u x %5u x %4u:", m, n, k);
            for (const Tile &tile : tiles) {
                Product p{};
                p.x = (u8 *)x.at, p.w = (u8 *)w.at, p.bias = bias.at, p.out = out.at, p.count = count.at;
                p.x_stride = p.w_stride = p.bytes = 2 * k, p.columns = p.out_stride = n, p.activation = relu;
                p.input = residual ? input.at : 0;
                Map maps[2] = {map_of(x, m, k), map_of(w, n, k)};
                void *arguments[] = {&p, &maps[0], &maps[1]};
                CHECK(cudaFuncSetAttribute(tile.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile.shared()));
                auto launch = [&] {
                    CHECK(cudaLaunchKernel(tile.kernel, tile.grid(m, n), dim3(tile.threads), arguments, tile.shared(), 0));
                };
                out.set(0xff);
                launch();
                std::vector<u16> now = out.read();
                double worst = 0.0;
                for (u64 i = 0; i < wanted.size(); i++) {
                    u64 at = i / n * (m / SOME) * n + i % n;
                    _Float16 got, add;
                    memcpy(&got, &now[at], 2), memcpy(&add, &added[at], 2);
                    float v = wanted[i] + 0.25f;
                    v = (relu ? std::max(v, 0.0f) : v) + (residual ? (float)add : 0.0f);
                    worst = std::max(worst, (double)std::fabs((float)got - v));
                    if (std::isnan((float)got)) worst = INFINITY;
                }
                if (first.empty()) first = now;
                printf("  %s %.1f%s%s", tile.name, microseconds(launch), worst > 0.05 ? " WRONG" : "", now == first ? "" : " DIFFERENT");
            }
            printf("\n");
        }
}

static void output_layers() {
    const Tile tiles[] = {{"large", (void *)best_large, 128, 128, 3, 288, false},
                          {"huge", (void *)best_huge, 256, 128, 4, PERSISTENT_THREADS, true}};
    const u32 n = 32000, k = 512, width = n / TILE;
    for (u32 m : {200u, 512u, 1000u, 2048u, 8192u})
        for (u32 beam : {1u, 4u}) {
            Memory<u16> x((u64)m * k), w((u64)n * k);
            randomise(x, 1, 0.5f), randomise(w, 2, 0.5f);
            Memory<float> bias(std::vector<float>(n, 0.25f));
            Memory<u32> count(std::vector<u32>{m}), counts(std::vector<u32>(m, beam)), forced(std::vector<u32>(m, NONE));
            Memory<u32> spans(std::vector<u32>(2 * m, 0)), banned(std::vector<u32>(1, 0)), scored(std::vector<u32>(m, beam > 1));
            u64 all = (u64)m * width;
            Memory<float> scores(all * beam), maxima(all), sums(all), forced_scores(m);
            Memory<u32> words(all * beam);
            WideBest b{};
            b.p.x = (u8 *)x.at, b.p.w = (u8 *)w.at, b.p.bias = bias.at, b.p.count = count.at, b.p.columns = n, b.p.exact_out = 1;
            b.p.x_stride = b.p.w_stride = b.p.bytes = 2 * k;
            b.asked = {counts.at, forced.at, spans.at, banned.at, scored.at, beam};
            b.found = {scores.at, words.at, maxima.at, sums.at, forced_scores.at, width};
            std::vector<u32> first_words;
            std::vector<float> first_sums;
            printf("%6u rows, beam %u:", m, beam);
            for (const Tile &tile : tiles) {
                Map maps[2] = {map_of(x, m, k), map_of(w, n, k)};
                void *arguments[] = {&b, &maps[0], &maps[1]};
                CHECK(cudaFuncSetAttribute(tile.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, tile.shared()));
                dim3 grid = tile.grid(m, n);
                if (!tile.persistent) std::swap(grid.x, grid.y);
                auto launch = [&] {
                    CHECK(cudaLaunchKernel(tile.kernel, grid, dim3(tile.threads), arguments, tile.shared(), 0));
                };
                words.set(0xcd), sums.set(0);
                launch();
                std::vector<u32> now_words = words.read();
                std::vector<float> now_sums = sums.read();
                if (first_words.empty()) first_words = now_words, first_sums = now_sums;
                bool same = now_words == first_words && now_sums == first_sums;
                printf("  %s %.1f%s", tile.name, microseconds(launch), same ? "" : " DIFFERENT");
            }
            printf("\n");
        }
}

static void attention() {
    struct Way {
        const char *name;
        void *kernel;
        u32 rows;
        bool fp8;
    };
    const Way ways[] = {{"a block a row", (void *)attend_wide_2, 1, false}, {"a warp", (void *)attend_rows_2, ATTEND_WARPS, false},
                        {"fp8, a block", (void *)attend_wide_2_fp8, 1, true}, {"a warp", (void *)attend_rows_2_fp8, ATTEND_WARPS, true}};
    const u32 width = 512;
    for (u32 rows : {512u, 1024u, 2048u, 8192u})
        for (u32 length : {1u, 8u, 13u, 25u, 60u}) {
            u32 positions = rows * length;
            Memory<u16> queries((u64)rows * width), keys((u64)positions * width), values((u64)positions * width), out((u64)rows * width);
            randomise(queries, 1, 2.0f);
            std::vector<u32> at_spans, at_list(positions);
            for (u32 r = 0; r < rows; r++) at_spans.insert(at_spans.end(), {r * length, (r + 1) * length});
            for (u32 i = 0; i < positions; i++) at_list[i] = i;
            Memory<u32> spans(at_spans), list(at_list), count(std::vector<u32>{rows});
            std::vector<u16> first;
            // Reading the cache in float16 at 4.3 TB/s.
            printf("%6u rows, %2u positions (reading %.1f):", rows, length, positions * 4.0 * width / 4.3e6);
            for (const Way &way : ways) {
                // In fp8 the same bytes are other numbers, and some are none; both ways must make the same of them.
                randomise(keys, 2, 0.5f), randomise(values, 3, 0.5f);
                Attend a{};
                a.queries = queries.at, a.keys = keys.at, a.values = values.at, a.out = out.at;
                a.spans = spans.at, a.lists = list.at, a.count = count.at;
                a.query_stride = a.out_stride = a.width = width, a.stride = way.fp8 ? width / 2 : width;
                a.size = 64, a.team = 4, a.heads = 8;
                void *arguments[] = {&a};
                auto launch = [&] {
                    CHECK(cudaLaunchKernel(way.kernel, dim3((rows + way.rows - 1) / way.rows), dim3(32 * ATTEND_WARPS), arguments, 0, 0));
                };
                out.set(0xff);
                launch();
                std::vector<u16> now = out.read();
                if (way.rows == 1) first = now;
                printf("  %s %.1f%s", way.name, microseconds(launch), now == first ? "" : " DIFFERENT");
            }
            printf("\n");
        }
}

int main(int count, char **arguments) {
    auto wanted = [&](const char *name) {
        return count == 1 || std::any_of(arguments + 1, arguments + count, [&](char *one) { return strcmp(one, name) == 0; });
    };
    if (wanted("products")) products();
    if (wanted("output")) output_layers();
    if (wanted("attention")) attention();
}
