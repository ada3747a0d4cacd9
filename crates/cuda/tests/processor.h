// An emulated device on the processor: the threads of a block take turns, each up to the next instruction that
// synchronises threads. Kernels can be included after this file.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <ucontext.h>
#include <vector>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Shared memory is static: blocks run one after the other.
#define __shared__ static
#define NONE 0xffffffffu
#define INFINITE INFINITY
#define LANE (threadIdx.x % 32)

const u32 MOST_THREADS = 256;

struct Three {
    u32 x, y;
};
static Three threadIdx, blockIdx, blockDim, gridDim;
static ucontext_t scheduler, threads[MOST_THREADS];
static u64 said[MOST_THREADS];

// A barrier.
struct Meeting {
    u32 arrived, times;
};
static Meeting of_warp[MOST_THREADS / 32], of_block;
// Barriers and ends so far.
static u64 events;

// Returns when so many threads have arrived; meanwhile the others run.
static void meet(Meeting &meeting, u32 all) {
    u32 time = meeting.times, me = threadIdx.x;
    if (++meeting.arrived == all) meeting.arrived = 0, meeting.times++, events++;
    while (meeting.times == time) swapcontext(&threads[me], &scheduler);
}

static void begin() {}
static void __syncthreads() { meet(of_block, blockDim.x); }
static u32 min(u32 a, u32 b) { return a < b ? a : b; }
static u32 max(u32 a, u32 b) { return a > b ? a : b; }
static u64 max(u64 a, u64 b) { return a > b ? a : b; }
static u32 __float_as_uint(float v) { u32 bits; memcpy(&bits, &v, 4); return bits; }
static float __uint_as_float(u32 bits) { float v; memcpy(&v, &bits, 4); return v; }
static float __fadd_rn(float a, float b) { volatile float sum = a + b; return sum; }
static int __ffs(u32 v) { return __builtin_ffs(v); }
static int __popc(u32 v) { return __builtin_popcount(v); }

// Every lane of a warp gives a value and gets those of all lanes.
template <typename Hear> static u64 together(u64 mine, Hear hear) {
    u32 warp = threadIdx.x / 32;
    said[threadIdx.x] = mine;
    meet(of_warp[warp], 32);
    u64 heard = hear(said + 32 * warp);
    meet(of_warp[warp], 32);
    return heard;
}
static u32 __reduce_max_sync(u32, u32 v) {
    return together(v, [](u64 *all) { return *std::max_element(all, all + 32); });
}
static u32 __ballot_sync(u32, bool v) {
    return together(v, [](u64 *all) { u64 bits = 0; for (int i = 0; i < 32; i++) bits |= all[i] << i; return bits; });
}
static bool __any_sync(u32 mask, bool v) { return __ballot_sync(mask, v) != 0; }
static u64 __shfl_sync(u32, u64 v, u32 from) { return together(v, [=](u64 *all) { return all[from]; }); }
static u32 __shfl_sync(u32 mask, u32 v, u32 from) { return __shfl_sync(mask, (u64)v, from); }
static float __shfl_sync(u32 mask, float v, u32 from) { return __uint_as_float(__shfl_sync(mask, __float_as_uint(v), from)); }
template <typename T> static T __shfl_xor_sync(u32 mask, T v, u32 d) { return __shfl_sync(mask, v, LANE ^ d); }

static float warp_sum(float v) {
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    return v;
}
static float warp_max(float v) {
    for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
    return v;
}

static std::function<void()> kernel_of_thread;
static u32 running;

static void run_thread() {
    kernel_of_thread();
    running--, events++;
}

// Runs a kernel, block after block.
static void launch(Three grid, u32 block, std::function<void()> kernel) {
    static char stacks[MOST_THREADS][1 << 16];
    kernel_of_thread = kernel;
    gridDim = grid, blockDim = {block, 1};
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) {
            for (u32 thread = 0; thread < block; thread++) {
                getcontext(&threads[thread]);
                threads[thread].uc_stack.ss_sp = stacks[thread];
                threads[thread].uc_stack.ss_size = sizeof stacks[thread];
                threads[thread].uc_link = &scheduler;
                makecontext(&threads[thread], run_thread, 0);
            }
            std::vector<bool> ended(block);
            for (running = block; running > 0;) {
                u64 known = events;
                for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) {
                    u32 before = running;
                    if (!ended[threadIdx.x]) swapcontext(&scheduler, &threads[threadIdx.x]);
                    if (running < before) ended[threadIdx.x] = true;
                }
                if (events == known) puts("threads wait for others that do not come"), exit(1);
            }
        }
}

static std::mt19937 generator(7);
static u32 random_below(u32 n) { return generator() % n; }
