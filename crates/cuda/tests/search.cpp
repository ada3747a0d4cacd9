// kernels/search.cu on the processor. Random beam searches, each from the places of the one before, are compared with a
// sort of all candidates, and lists of positions with what they should hold.

#include "processor.h"

#define FOLLOWS 0x80000000u
// A block a warp.
#define ROW_OF_WARP blockIdx.x

struct Asked {
    const u32 *counts, *forced, *banned_spans, *banned, *probabilities;
    u32 most;
};

// Words are not looked up here.
struct Embedding {
    const u32 *count;
};
static void embed_row(const Embedding &, u32) {}

#include "search.cu"

struct Candidate {
    u32 row, word;
    float path;
};

struct Kept {
    std::vector<u32> words, parents, widths;
    std::vector<float> paths;
    explicit Kept(u32 places) : words(places, 7777), parents(places), widths(places, 7777), paths(places) {}
    Places places() { return Places{words.data(), parents.data(), paths.data(), widths.data()}; }
};

// A sentence's search, and where its places were in the last question.
struct Search {
    u32 beam, finish, end, first_place;
};

// Who goes on of sorted candidates, and how many may still go on.
static std::vector<Candidate> sorted_winners(const Search &search, std::vector<Candidate> all, u32 &width) {
    // No path is a negative zero or not a number, so this is the order of `total_cmp`.
    std::stable_sort(all.begin(), all.end(), [](auto &a, auto &b) { return a.path > b.path; });
    if (search.finish == 0) all.resize(std::min<size_t>(all.size(), width));
    std::vector<Candidate> winners;
    size_t stand_in = search.beam;
    for (size_t i = 0; i < all.size() && winners.size() < search.beam; i++) {
        if (search.finish == 1 && i >= search.beam) break;
        if (all[i].word != search.end) {
            winners.push_back(all[i]);
        } else if (search.finish == 0) {
            width--;
        } else if (search.finish == 1) {
            while (stand_in < all.size() && all[stand_in].word == search.end) stand_in++;
            if (stand_in < all.size()) winners.push_back(all[stand_in++]);
        }
    }
    return winners;
}

// Some steps of these sentences, whose order changes. Few scores differ, so that many are equal.
static bool searches_agree(std::vector<Search> searches) {
    const u32 words = random_below(2) ? searches[0].beam : 3 + random_below(60), sentences = searches.size();
    u32 places = 0, widest = 0;
    for (Search &search : searches) {
        search.end = random_below(3);
        places += search.beam, widest = std::max(widest, search.beam);
    }
    const u32 most = 2 * widest;
    Kept kept[2] = {Kept(places), Kept(places)};
    for (u32 step = 0; step < 4; step++) {
        Kept &before = kept[(step + 1) % 2], &after = kept[step % 2];
        std::vector<DeviceBeam> device_beams;
        std::vector<u32> counts, forced;
        std::vector<float> paths;
        std::vector<std::vector<Candidate>> lists;
        std::shuffle(searches.begin(), searches.end(), generator);
        u32 first_place = 0;
        for (u32 s = 0; s < sentences; s++) {
            Search &search = searches[s];
            u32 beam = search.beam;
            bool follows = step > 0 && s != step; // one begins anew
            u32 width = follows ? before.widths[search.first_place] : 1 + random_below(beam), free = random_below(6) == 0;
            u32 rows = follows ? beam : 1 + random_below(search.finish == 0 ? width : beam);
            device_beams.push_back({(u32)lists.size(), rows, follows ? search.first_place : NONE, follows ? 999 : width, free, beam,
                                search.finish, search.end, first_place});
            first_place += beam;
            for (u32 r = 0; r < rows; r++) {
                counts.push_back(search.finish == 0 ? beam : 2 * beam);
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
        for (size_t r = 0; r < lists.size(); r++) {
            for (size_t k = 0; k < lists[r].size(); k++)
                answer_words[r * most + k] = lists[r][k].word, answer_scores[r * most + k] = lists[r][k].path;
            // What a row did not ask for is anything.
            for (size_t k = std::max<size_t>(counts[r], 1); k < most; k++) answer_words[r * most + k] = 5;
        }
        Asked asked{counts.data(), forced.data(), 0, 0, 0, most};
        BeamSearch given{device_beams.data(), paths.data(), answer_words.data(), answer_scores.data(), before.places(), after.places()};
        launch({sentences + 3, 1}, 32, [&] { device_beam_search(asked, given, &sentences); });
        for (u32 s = 0; s < sentences; s++) {
            const DeviceBeam &device_beam = device_beams[s];
            bool follows = device_beam.follows != NONE;
            std::vector<Candidate> all;
            for (u32 r = 0; r < device_beam.rows; r++) {
                if (follows && before.words[device_beam.follows + r] == NONE) continue;
                float path = follows ? before.paths[device_beam.follows + r] : paths[device_beam.first_row + r];
                for (Candidate c : lists[device_beam.first_row + r])
                    c.path = path + (device_beam.free ? 0.0f : c.path), all.push_back(c);
            }
            u32 width = follows ? before.widths[device_beam.follows] : device_beam.width;
            std::vector<Candidate> winners = sorted_winners(searches[s], all, width);
            bool right = after.widths[device_beam.first_place] == width;
            for (u32 p = 0; p < device_beam.beam; p++) {
                u32 at = device_beam.first_place + p;
                bool there = p < winners.size();
                right &= after.words[at] == (there ? winners[p].word : NONE);
                right &= after.parents[at] == (there ? winners[p].row : device_beam.first_row);
                right &= !there || __float_as_uint(after.paths[at]) == __float_as_uint(winners[p].path);
            }
            if (!right) {
                printf("beam %u, finish %u, step %u, sentence %u of %u\n", device_beam.beam, device_beam.finish, step, s, sentences);
                return false;
            }
            searches[s].first_place = device_beam.first_place;
        }
    }
    return true;
}

static bool grows(bool searched, bool with_words) {
    const u32 rows = 20, room = 128, before_room = 64;
    std::vector<u32> before(rows * before_room), parents(50), lists(rows * room), from, positions, own, first;
    for (u32 &position : before) position = random_below(10000);
    for (u32 &parent : parents) parent = random_below(rows);
    for (u32 r = 0; r < rows; r++) {
        u32 place = random_below(searched ? 50 : rows);
        positions.push_back(r < 8 ? r % 4 : random_below(64));
        own.push_back(10000 + r);
        first.push_back(positions[r] < 2 ? 20000 + r : NONE);
        from.push_back(positions[r] == 0 ? NONE : r % 3 ? FOLLOWS | place : random_below(rows));
    }
    Growth growth = {lists.data(), room, before.data(), before_room, from.data(), searched ? parents.data() : nullptr, positions.data(),
                     own.data(), first.data()};
    // By the first of the warps that look a row's word up, and by none of the others.
    launch({24, 2}, 32, [&] {
        if (blockIdx.y == 1) embed_grown(Embedding{&rows}, growth);
    });
    if (lists != std::vector<u32>(rows * room)) return printf("a list was written twice\n"), false;
    launch({24, 1}, 32, [&] {
        if (with_words) embed_grown(Embedding{&rows}, growth);
        else grow_lists(growth, &rows);
    });
    for (u32 r = 0; r < rows; r++) {
        u32 parent = from[r] & ~FOLLOWS;
        if (searched && from[r] != parent && from[r] != NONE) parent = parents[parent];
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
            if (!searches_agree(std::vector<Search>(5, {beam, finish, 0, 0}))) return 1;
    // All sorts in one question.
    for (u32 round = 0; round < 40; round++) {
        std::vector<Search> searches(5 + random_below(8));
        for (Search &search : searches) search = {1 + random_below(random_below(2) ? 4 : 32), random_below(3), 0, 0};
        if (!searches_agree(searches)) return 1;
    }
    for (bool searched : {false, true})
        for (bool with_words : {false, true})
            if (!grows(searched, with_words)) return 1;
    return 0;
}
