//! Device-side beam search: its parameters, and what goes on from its places.

use super::*;

impl Subject {
    /// Asks for `count` words a row and has the device search their beams: two rows a sentence, every other sentence with
    /// a beam of four and the others with one of two.
    fn search_beams(&self, count: usize, follows: bool) {
        let path = |row: usize| RowRequest {
            path: -(row as f32),
            ..request(count, Scoring::LogProbability)
        };
        let requests: Vec<RowRequest<'_>> = (0..self.rows).map(path).collect();
        let device_beam = |sentence: usize| DeviceBeam {
            rows: 2,
            follows: follows.then_some(3 * sentence as u32 + sentence as u32 % 2),
            width: 3,
            free: sentence % 2 == 1,
            beam: [4, 2][sentence % 2],
            finish: [Finish::Full, Finish::Shrink, Finish::FullBounded][sentence % 3],
            end: 7 + sentence as u32,
        };
        let device_beams: Vec<DeviceBeam> = (0..self.rows / 2).map(device_beam).collect();
        let query = TopKQuery { requests: &requests, device_beams: Some(&device_beams) };
        let mut pending = Default::default();
        let none = vec![None; self.rows];
        self.gpu.top_k(&self.x, &self.output, &none, query, &mut pending);
        self.gpu.take_top_k(&mut pending, &mut Choices::default());
    }
}

// Where addresses stand in the parameters of `device_beam_search`.
const DEVICE_BEAMS: usize = 48;
const PATHS: usize = 56;
const ANSWERS: usize = 64;
const BEFORE: usize = 80;
const AFTER: usize = 112;

#[test]
fn beams_are_searched_over_what_was_found() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 40);
    assert_eq!(subject.gpu.run_ahead(), RunAhead::Beams);
    subject.search_beams(8, false);
    let (merge, search) = (last(&fake, "merge"), last(&fake, "device_beam_search"));
    // Words and scores are read where they were left on the device.
    let latest = merge.parameters.len() - 24;
    assert_eq!(search.address(ANSWERS), merge.address(latest));
    assert_eq!(search.address(ANSWERS + 8), merge.address(latest + 8));
    assert_eq!(search.grid, [3, 1], "a warp for each of 20 sentences, rounded up");
    fake.world(|w| {
        let field = |n: u64, i: u64| w.word(search.address(DEVICE_BEAMS) + 36 * n + 4 * i);
        let device_beam = |n: u64| [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| field(n, i));
        assert_eq!(device_beam(0), [0, 2, u32::MAX, 3, 0, 4, 1, 7, 0]);
        assert_eq!(device_beam(1), [2, 2, u32::MAX, 3, 1, 2, 0, 8, 4]);
        assert_eq!(device_beam(2), [4, 2, u32::MAX, 3, 0, 4, 2, 9, 6]);
        assert_eq!(device_beam(19), [38, 2, u32::MAX, 3, 1, 2, 0, 26, 58]);
        assert_eq!(w.word(search.address(PATHS) + 4 * 39), (-39.0_f32).to_bits());
    });
    // Ten beams of four and ten of two: 60 places, rounded up.
    assert_eq!(search.address(AFTER + 8) - search.address(AFTER), 4 * 64);
    assert_eq!(fake.ran(), ["best_middle", "merge", "device_beam_search"]);
    // The next reads what this one wrote.
    subject.search_beams(8, true);
    let next = last(&fake, "device_beam_search");
    for list in 0..4 {
        assert_eq!(next.address(BEFORE + 8 * list), search.address(AFTER + 8 * list));
        assert_ne!(next.address(AFTER + 8 * list), search.address(AFTER + 8 * list));
    }
    assert_eq!(fake.world(|w| w.word(next.address(DEVICE_BEAMS) + 36 + 8)), 4);
    // A query without beams leaves no scores behind.
    subject.best(OutputLayer::Epilogue, 1, Scoring::Logit);
    let merge = last(&fake, "merge");
    assert_eq!(merge.address(latest + 8), 0);
}

#[test]
fn searches_are_replayed() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 40);
    let mut launches = Vec::new();
    for step in 0..8 {
        subject.search_beams(8, step > 0);
        launches.push(fake.world(|w| std::mem::take(&mut w.launches)));
    }
    assert!(launches[0] > 0, "{launches:?}");
    assert_eq!(launches[6..], [0, 0], "{launches:?}");
}

/// Answers that the host had to find are staged for the search.
#[test]
fn lists_of_the_host_are_searched_too() {
    let fake = Fake::new(1 << 30);
    fake.world(|w| w.capability = (8, 6));
    let subject = Subject::new(&fake, GpuPrecision::Float16, 12);
    subject.search_beams(2000, false);
    subject.gpu.finish().expect("finished");
    let search = last(&fake, "device_beam_search");
    // All scores are zero on a device that computes nothing.
    let third = fake.world(|w| w.word(search.address(ANSWERS) + 4 * (2000 + 3)));
    assert_eq!(third, 3);
    assert_eq!(fake.ran(), ["product_thin", "device_beam_search"]);
    // What only some rows had the host find, goes with what the device found for the others.
    let mut requests = vec![request(2, Scoring::LogProbability); 12];
    requests[11] = request(2000, Scoring::LogProbability);
    let device_beam = |_| DeviceBeam {
        rows: 1,
        follows: None,
        width: 1,
        free: false,
        beam: 1,
        finish: Finish::Shrink,
        end: 7,
    };
    let device_beams: Vec<DeviceBeam> = (0..12).map(device_beam).collect();
    let (mut pending, none) = (Default::default(), vec![None; 12]);
    let query = TopKQuery { requests: &requests, device_beams: Some(&device_beams) };
    subject.gpu.top_k(&subject.x, &subject.output, &none, query, &mut pending);
    subject.gpu.finish().expect("finished");
    let search = last(&fake, "device_beam_search");
    let words = |row: u64| {
        fake.world(|w| [0, 1, 2, 3].map(|k| w.word(search.address(ANSWERS) + 4 * (2000 * row + k))))
    };
    assert_eq!(words(10), [0, 0, u32::MAX, u32::MAX]);
    assert_eq!(words(11), [0, 1, 2, 3]);
    assert_eq!(fake.ran(), ["best_narrow", "merge", "product_thin", "device_beam_search"]);
}

/// The papers' layers leave no lists to search.
#[test]
fn only_the_usual_layer_lets_beams_run_ahead() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 4);
    for layer in OutputLayer::ALL {
        let expected =
            if layer == OutputLayer::Epilogue { RunAhead::Beams } else { RunAhead::Greedy };
        assert_eq!(subject.gpu.clone().with_output_layer(layer).run_ahead(), expected);
    }
}

/// A step's rows that go on from places, two at position 2 and one at its first; they store at `at` and
/// attend to what they read. What follows the embedding may be a step of its own.
fn attend_past(
    subject: &Subject,
    past: &mut <Cuda as Backend>::Past,
    at: &[u32; 3],
    after_embedding: &[PreparedOp<Cuda>],
) {
    let gpu = &subject.gpu;
    let from = [Origin::Place(5), Origin::Row { row: 1, token: 9 }, Origin::Start(None)];
    let first = [None, None, Some(30)];
    let (positions, own) = ([2, 2, 0], [10, 20, 30]);
    let table = Weight::from_f32(vec![WORDS, 3 * WIDTH], &vec![0.5; WORDS * 3 * WIDTH]);
    let table = gpu.prepare_table(&table);
    let follows = from.map(Origin::place);
    let ids = from.map(Origin::token);
    let (mut x, mut out, mut cache) = (gpu.rows(), gpu.rows(), gpu.cache());
    gpu.reserve_cache(&mut cache, 64, WIDTH, 1);
    gpu.finish().expect("finished");
    let words = Embed { ids: &ids, scale: 1.0, at: &positions, positions: None, follows: &follows };
    gpu.embed(&table, words, &mut out);
    match after_embedding {
        [] => std::mem::swap(&mut x, &mut out),
        steps => gpu.process(&out, steps, None, &mut x),
    }
    gpu.extend_past(
        PastExtension { from: &from, positions: &positions, own: &own, first: &first },
        past,
    );
    gpu.store(&x, WIDTH, at, &mut cache);
    let reads = past.as_ref();
    gpu.attend(&x, Attention { cache: &cache, reads, heads: 1, width: WIDTH }, &mut out);
    gpu.finish().expect("finished");
}

/// Where the structure `Growth` is, behind `Embedding`.
const LISTS: usize = 80;

#[test]
fn the_device_puts_lists_of_the_past_together() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 40);
    subject.search_beams(8, false);
    let search = last(&fake, "device_beam_search");
    let mut past = Default::default();
    attend_past(&subject, &mut past, &[10, 20, 30], &[]);
    let grow = last(&fake, "embed_grown");
    // Words and parents are where the search left them.
    assert_eq!(grow.address(40), search.address(AFTER));
    assert_eq!(grow.address(LISTS + 40), search.address(AFTER + 8));
    let staged = |launched: &Launched, place: usize| {
        fake.world(|w| [0, 4, 8].map(|i| w.word(launched.address(place) + i)))
    };
    assert_eq!(staged(&grow, LISTS + 32), [1 << 31 | 5, 1, u32::MAX]);
    assert_eq!(staged(&grow, LISTS + 48), [2, 2, 0]);
    assert_eq!(staged(&grow, LISTS + 56), [10, 20, 30]);
    assert_eq!(staged(&grow, LISTS + 64), [u32::MAX, u32::MAX, 30]);
    let attend = fake.world(|w| w.ran.last().cloned()).expect("a launch").1;
    // Every row stores what it reads last, so one kernel does both.
    assert_eq!(staged(&attend, 24), [10, 20, 30]);
    assert_eq!(attend.address(40), grow.address(LISTS));
    let spans = fake.world(|w| [0, 1, 2, 3, 4, 5].map(|i| w.word(attend.address(32) + 4 * i)));
    assert_eq!(spans, [0, 3, 64, 67, 128, 129]);
    // It reads the lists early, so the one that writes them must have ended.
    let of_step = fake.world(|w| {
        let step: Vec<_> = w.ran.iter().rev().take(2).map(|(_, l)| l.overlapped).collect();
        step.into_iter().rev().collect::<Vec<_>>()
    });
    assert_eq!(of_step, [false, false]);
    fake.ran();
    // The next step's lists grow from these, by a kernel of their own where something is between.
    attend_past(&subject, &mut past, &[10, 21, 30], &[PreparedOp::Tanh]);
    let next = last(&fake, "grow_lists");
    assert_eq!(next.address(16), grow.address(LISTS));
    assert_ne!(next.address(0), grow.address(LISTS));
    let ran = fake.ran();
    assert_eq!(ran[ran.len() - 2], "store", "what is stored is not what is read");
    assert!(ran.contains(&"embed".to_owned()));
}

/// States are read from rows the host knows, or from what the row at a place left.
#[test]
fn states_follow_places() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 4);
    let (gpu, x) = (&subject.gpu, &subject.x);
    let (mut state, mut out) = (gpu.rows(), gpu.rows());
    gpu.reserve(&mut state, 16, WIDTH);
    let from = [Source::Zero, Source::State(9), Source::Place(5), Source::Place(0)];
    let moves = Moves { from: &from, before: &[4, 6], to: &[1, 3, 5, 7] };
    // Where the three lists stand in the parameters, and which are staged by the host.
    let check = |kernel: &str, place: usize, parents: Option<u64>| {
        let launched = last(&fake, kernel);
        let staged = |place: usize, count: u64| -> Vec<u32> {
            let word = |w: &mut crate::fake::World, i| w.word(launched.address(place) + 4 * i);
            fake.world(|w| (0..count).map(|i| word(w, i)).collect())
        };
        assert_eq!(staged(place, 3), [u32::MAX, 9, 1 << 31 | 5], "{kernel}");
        assert_eq!(staged(place + 8, 2), [4, 6], "{kernel}");
        assert_eq!(Some(launched.address(place + 16)), parents, "{kernel}");
    };
    for searched in [false, true] {
        subject.best(OutputLayer::Epilogue, 1, Scoring::Logit);
        if searched {
            subject.search_beams(8, false);
        }
        let parents =
            if searched { last(&fake, "device_beam_search").address(AFTER + 8) } else { 0 };
        gpu.load(&state, moves, &mut out);
        gpu.finish().expect("finished");
        check("load_states", 16, Some(parents));
        gpu.ssru(x, x, moves, &mut state, &mut out);
        gpu.finish().expect("finished");
        check("ssru", 40, Some(parents));
        gpu.average(x, moves, &[1, 2, 3, 4], &mut state, &mut out);
        gpu.finish().expect("finished");
        check("average", 32, Some(parents));
    }
}
