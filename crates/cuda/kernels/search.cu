// Device-side beam search: which hypotheses go on, and which positions of the KV cache they read. The host
// computes the same when it reads the answer, a step later: see `peregrine_nn::DeviceBeam`.

// The places of a question, sentence by sentence: the hypotheses that go on.
struct Places {
    u32 *words;   // NONE: no hypothesis
    u32 *parents; // the row of the step that the hypothesis extends
    float *paths; // the sum of its scores
    u32 *widths;  // at a sentence's first place: how many hypotheses may go on where beams shrink
};

struct DeviceBeam {
    u32 first_row, rows;
    u32 follows; // the first place its rows go on from, or NONE if the host gives paths and width
    u32 width, free;
    u32 beam, finish, end; // finish: 0 shrink, 1 full, 2 bounded
    u32 first_place;       // the first of its `beam` places
};

struct BeamSearch {
    const DeviceBeam *device_beams;
    const float *paths;  // of rows that follow no place
    const u32 *words;    // the answers, `Asked::most` a row
    const float *scores;
    Places before, after;
};

// An integer with the order of `f32::total_cmp`.
__device__ __forceinline__ u32 ordered(float v) {
    u32 bits = __float_as_uint(v);
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

// A warp a sentence. A row's answer is sorted, so the best candidates are found by a merge: lane r holds
// the first candidate of row r that is not taken yet, and the best lane's is taken, of equals that of the
// earlier row. Lane p keeps the hypothesis of place p.
//
// 2·beam candidates suffice: a row has the end symbol once, so at most `beam` of them end, and the others
// fill the beam. (`full`: e of the first `beam` end, so at most beam − e of the next, which leaves e.)
extern "C" __global__ void device_beam_search(Asked asked, BeamSearch search, const u32 *count) {
    begin();
    u32 sentence = ROW_OF_WARP;
    if (sentence >= *count) return;
    const u32 all = 0xffffffffu;
    DeviceBeam device_beam = search.device_beams[sentence];
    u32 lane = LANE, beam = device_beam.beam, finish = device_beam.finish, end = device_beam.end;
    bool follows = device_beam.follows != NONE;
    u32 width = follows ? search.before.widths[device_beam.follows] : device_beam.width;
    u32 row = device_beam.first_row + lane, from = device_beam.follows + lane;
    u32 left = 0, next = 0;
    float path = 0.0f;
    // A row that goes on from an empty place has no candidates.
    if (lane < device_beam.rows && !(follows && search.before.words[from] == NONE)) {
        path = follows ? search.before.paths[from] : search.paths[row];
        left = asked.forced[row] != NONE ? 1 : min(asked.counts[row], asked.most);
    }
    u64 list = (u64)row * asked.most;
    u32 word = left ? search.words[list] : NONE, key = 0;
    float sum = 0.0f;
    if (word != NONE) sum = __fadd_rn(path, device_beam.free ? 0.0f : search.scores[list]), key = ordered(sum);
    u32 my_word = NONE, my_parent = device_beam.first_row, taken = 0, holes = 0, ended = 0;
    float my_path = 0.0f;
    u32 most = finish == 0 ? width : 2 * beam;
    for (u32 t = 0; t < most; t++) {
        if (finish == 1 && t >= beam && !holes) break;
        if (finish == 2 && taken == beam) break;
        u32 best = __reduce_max_sync(all, key);
        u32 winners = __ballot_sync(all, word != NONE && key == best);
        if (!winners) break;
        u32 winner = __ffs(winners) - 1;
        u32 won = __shfl_sync(all, word, winner);
        float won_path = __shfl_sync(all, sum, winner);
        u32 place = NONE;
        if (finish == 1) {
            // Hypotheses that end leave holes; the next ones that do not end fill them.
            if (won == end) {
                if (t < beam) holes |= 1u << t;
            } else if (t < beam) {
                place = t;
            } else {
                place = __ffs(holes) - 1, holes &= holes - 1;
            }
        } else if (won == end) {
            ended++;
        } else {
            place = taken++;
        }
        if (lane == place) my_word = won, my_parent = device_beam.first_row + winner, my_path = won_path;
        if (lane == winner) {
            next++;
            word = next < left ? search.words[list + next] : NONE, key = 0;
            if (word != NONE) sum = __fadd_rn(path, device_beam.free ? 0.0f : search.scores[list + next]), key = ordered(sum);
        }
    }
    // Holes that were not filled go to the end.
    u32 there = __ballot_sync(all, my_word != NONE), below = (1u << lane) - 1;
    u32 at = my_word != NONE ? __popc(there & below) : __popc(there) + __popc(~there & below);
    if (at < beam) {
        u32 to = device_beam.first_place + at;
        search.after.words[to] = my_word, search.after.parents[to] = my_parent, search.after.paths[to] = my_path;
    }
    if (lane == 0) search.after.widths[device_beam.first_place] = width - (finish == 0 ? ended : 0);
}

// The lists of positions that rows read of their own past, a warp a row, lists `room` apart: the list of
// the row it extends, and its own position. `from`: the row it extends, or a place, whose row is in
// `parents` or else the place's number. `first`: the list's first position (in the first two steps).
struct Growth {
    u32 *lists;
    u32 room;
    const u32 *before;
    u32 before_room;
    const u32 *from, *parents, *positions, *own, *first;
};

__device__ __forceinline__ void grow_list(const Growth &g, u32 row) {
    u32 length = g.positions[row], parent = g.from[row];
    u32 *list = g.lists + (u64)row * g.room;
    if (g.first[row] == NONE) {
        if (parent & FOLLOWS) parent &= ~FOLLOWS, parent = g.parents ? g.parents[parent] : parent;
        const u32 *known = g.before + (u64)parent * g.before_room;
        for (u32 i = LANE; i < length; i += 32) list[i] = known[i];
    } else if (LANE == 0) {
        list[0] = g.first[row];
    }
    if (LANE == 0 && length > 0) list[length] = g.own[row];
}

extern "C" __global__ void grow_lists(Growth g, const u32 *count) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row < *count) grow_list(g, row);
}

// Lists grown by the warps that look up the words of these rows: one kernel less.
extern "C" __global__ void embed_grown(Embedding e, Growth g) {
    begin();
    u32 row = ROW_OF_WARP;
    if (row >= *e.count) return;
    if (blockIdx.y == 0) grow_list(g, row);
    embed_row(e, row);
}
