// kernels/search.cu on the processor: lanes of a warp take turns, each up to the next instruction by which lanes
// talk. Random races, each from the places of the one before, are compared with what sorting all
// candidates gives, and lists of positions with what they should hold.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <ucontext.h>
#include <vector>

typedef unsigned int u32;
typedef unsigned long long u64;
#define __device__
#define __global__
#define __forceinline__ inline
#define NONE 0xffffffffu
#define FOLLOWS 0x80000000u
#define LANE lane_number
#define ROW_OF_WARP warp_number

static u32 lane_number, warp_number;
static u32 said[32];
static ucontext_t scheduler, lanes[32];

// Everybody else has their turn.
static void wait_for_all() { swapcontext(&lanes[LANE], &scheduler); }

static void begin() {}
static u32 min(u32 a, u32 b) { return a < b ? a : b; }
static u32 __float_as_uint(float v) { u32 bits; memcpy(&bits, &v, 4); return bits; }
static float as_float(u32 bits) { float v; memcpy(&v, &bits, 4); return v; }
static float __fadd_rn(float a, float b) { volatile float sum = a + b; return sum; }
static int __ffs(u32 v) { return __builtin_ffs(v); }
static int __popc(u32 v) { return __builtin_popcount(v); }

// Every lane says something, and hears what all have said.
template <typename Hear> static u32 together(u32 mine, Hear hear) {
    said[LANE] = mine;
    wait_for_all();
    u32 heard = hear();
    wait_for_all();
    return heard;
}
static u32 __reduce_max_sync(u32, u32 v) {
    return together(v, [] { return *std::max_element(said, said + 32); });
}
static u32 __ballot_sync(u32, bool v) {
    return together(v, [] { u32 all = 0; for (int i = 0; i < 32; i++) all |= said[i] << i; return all; });
}
static u32 __shfl_sync(u32, u32 v, u32 from) { return together(v, [=] { return said[from]; }); }
static float __shfl_sync(u32 mask, float v, u32 from) { return as_float(__shfl_sync(mask, __float_as_uint(v), from)); }

struct Asked {
    const u32 *counts, *forced, *banned_spans, *banned;
    u32 probabilities, most;
};

// Words are not looked up here.
struct Embedding {
    const u32 *count;
};
static void embed_row(const Embedding &, u32) {}
static struct {
    u32 y;
} blockIdx;

#include "../kernels/search.cu"

static std::function<void()> kernel_of_lane;
static u32 running;

static void run_lane() {
    kernel_of_lane();
    running--;
}

static void launch(u32 warps, std::function<void()> kernel) {
    static char stacks[32][1 << 16];
    kernel_of_lane = kernel;
    for (warp_number = 0; warp_number < warps; warp_number++) {
        for (u32 lane = 0; lane < 32; lane++) {
            getcontext(&lanes[lane]);
            lanes[lane].uc_stack.ss_sp = stacks[lane];
            lanes[lane].uc_stack.ss_size = sizeof stacks[lane];
            lanes[lane].uc_link = &scheduler;
            makecontext(&lanes[lane], run_lane, 0);
        }
        // All lanes of a warp end in the same turn.
        for (running = 32; running > 0;)
            for (lane_number = 0; lane_number < 32; lane_number++) swapcontext(&scheduler, &lanes[lane_number]);
    }
}

static std::mt19937 generator(7);
static u32 random_below(u32 n) { return generator() % n; }

struct Candidate {
    u32 row, word;
    float path;
};

struct Kept {
    std::vector<u32> words, parents, widths;
    std::vector<float> paths;
    Kept(u32 places, u32 sentences) : words(places, 7777), parents(places), widths(sentences), paths(places) {}
    Places places() { return Places{words.data(), parents.data(), paths.data(), widths.data()}; }
};

// Some races of sentences of one beam. Scores are few, so that many are equal.
static bool races(u32 beam, u32 finish) {
    const u32 sentences = 5, end = random_below(3), words = random_below(2) ? beam : 3 + random_below(60);
    Kept kept[2] = {Kept(sentences * beam, sentences), Kept(sentences * beam, sentences)};
    for (u32 step = 0; step < 4; step++) {
        Kept &before = kept[(step + 1) % 2], &after = kept[step % 2];
        std::vector<Contest> contests;
        std::vector<u32> counts, forced;
        std::vector<float> paths;
        std::vector<std::vector<Candidate>> lists;
        const u32 most = 2 * beam;
        for (u32 s = 0; s < sentences; s++) {
            bool follows = step > 0 && s != step; // one begins anew
            u32 width = follows ? before.widths[s] : 1 + random_below(beam), free = random_below(6) == 0;
            u32 rows = follows ? beam : 1 + random_below(finish == 0 ? width : beam);
            contests.push_back({(u32)lists.size(), rows, follows ? s * beam : NONE, follows ? 999 : width, free});
            for (u32 r = 0; r < rows; r++) {
                counts.push_back(finish == 0 ? beam : most);
                forced.push_back(free ? random_below(words) : NONE);
                paths.push_back(follows ? 999.0f : -(float)random_below(8) / 4);
                std::vector<Candidate> list;
                std::vector<u32> some(words);
                for (u32 i = 0; i < words; i++) some[i] = i;
                std::shuffle(some.begin(), some.end(), generator);
                for (u32 i = 0; i < std::min(counts.back(), words); i++)
                    list.push_back({(u32)lists.size(), some[i], -(float)random_below(12) / 4 - 0.1f * random_below(2)});
                std::stable_sort(list.begin(), list.end(), [](auto &a, auto &b) { return a.path > b.path; });
                if (free) list.resize(1), list[0].word = forced.back();
                lists.push_back(list);
            }
        }
        std::vector<u32> answer_words(lists.size() * most, NONE);
        std::vector<float> answer_scores(lists.size() * most, 99.0f);
        for (size_t r = 0; r < lists.size(); r++)
            for (size_t k = 0; k < lists[r].size(); k++)
                answer_words[r * most + k] = lists[r][k].word, answer_scores[r * most + k] = lists[r][k].path;
        Asked asked{counts.data(), forced.data(), 0, 0, 1, most};
        Race given{contests.data(), paths.data(), answer_words.data(), answer_scores.data(), before.places(), after.places(),
                   beam, finish, end};
        launch(8, [&] { race(asked, given, &sentences); });
        for (u32 s = 0; s < sentences; s++) {
            const Contest &contest = contests[s];
            bool follows = contest.follows != NONE;
            std::vector<Candidate> all, winners;
            for (u32 r = 0; r < contest.rows; r++) {
                if (follows && before.words[s * beam + r] == NONE) continue;
                float path = follows ? before.paths[s * beam + r] : paths[contest.first_row + r];
                for (Candidate c : lists[contest.first_row + r])
                    c.path = path + (contest.free ? 0.0f : c.path), all.push_back(c);
            }
            // No path is a negative zero or not a number, so this is the order of `total_cmp`.
            std::stable_sort(all.begin(), all.end(), [](auto &a, auto &b) { return a.path > b.path; });
            u32 width = follows ? before.widths[s] : contest.width, left = width;
            if (finish == 0) all.resize(std::min<size_t>(all.size(), width));
            size_t stand_in = beam;
            for (size_t i = 0; i < all.size() && winners.size() < beam; i++) {
                if (finish == 1 && i >= beam) break;
                if (all[i].word != end) {
                    winners.push_back(all[i]);
                } else if (finish == 0) {
                    left--;
                } else if (finish == 1) {
                    while (stand_in < all.size() && all[stand_in].word == end) stand_in++;
                    if (stand_in < all.size()) winners.push_back(all[stand_in++]);
                }
            }
            bool right = after.widths[s] == left;
            for (u32 p = 0; p < beam; p++) {
                u32 at = s * beam + p;
                bool there = p < winners.size();
                right &= after.words[at] == (there ? winners[p].word : NONE);
                right &= after.parents[at] == (there ? winners[p].row : contest.first_row);
                right &= !there || __float_as_uint(after.paths[at]) == __float_as_uint(winners[p].path);
            }
            if (!right) {
                printf("beam %u, finish %u, step %u, sentence %u\n", beam, finish, step, s);
                return false;
            }
        }
    }
    return true;
}

static bool grows(bool raced, bool with_words) {
    const u32 rows = 20, room = 128, before_room = 64;
    std::vector<u32> before(rows * before_room), parents(50), lists(rows * room), from, positions, own, first;
    for (u32 &position : before) position = random_below(10000);
    for (u32 &parent : parents) parent = random_below(rows);
    for (u32 r = 0; r < rows; r++) {
        u32 place = random_below(raced ? 50 : rows);
        positions.push_back(r < 8 ? r % 4 : random_below(64));
        own.push_back(10000 + r);
        first.push_back(positions[r] < 2 ? 20000 + r : NONE);
        from.push_back(positions[r] == 0 ? NONE : r % 3 ? FOLLOWS | place : random_below(rows));
    }
    Growth growth = {lists.data(), room, before.data(), before_room, from.data(), raced ? parents.data() : nullptr, positions.data(),
                     own.data(), first.data()};
    // By the first of the warps that look a row's word up, or by none of those.
    blockIdx.y = 1;
    launch(24, [&] { embed_grown(Embedding{&rows}, growth); });
    if (lists != std::vector<u32>(rows * room)) return printf("a list was written twice\n"), false;
    blockIdx.y = 0;
    launch(24, [&] {
        if (with_words) embed_grown(Embedding{&rows}, growth);
        else grow_lists(growth, &rows);
    });
    for (u32 r = 0; r < rows; r++) {
        u32 parent = from[r] & ~FOLLOWS;
        if (raced && from[r] != parent && from[r] != NONE) parent = parents[parent];
        for (u32 i = 0; i <= positions[r]; i++) {
            u32 known = first[r] == NONE ? before[parent * before_room + i] : first[r];
            if (lists[r * room + i] != (i > 0 && i == positions[r] ? own[r] : known)) return printf("list of row %u\n", r), false;
        }
    }
    return true;
}

int main() {
    for (u32 beam : {1, 2, 3, 4, 8, 17, 32})
        for (u32 finish = 0; finish < 3; finish++)
            if (!races(beam, finish)) return 1;
    for (bool raced : {false, true})
        for (bool with_words : {false, true})
            if (!grows(raced, with_words)) return 1;
    return 0;
}
