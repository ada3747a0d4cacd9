//! Verbs on a driver that has no device: which kernels they choose, that a question asked again is
//! replayed, and what happens when memory is full.

use peregrine_model::{Finish, Spacing, Weight, made_up_model, preset};
use peregrine_nn::{
    Ahead, Ask, Attention, Backend, Choices, Contest, Dense, Embed, Grow, Moves, Network, Origin,
    PositionTable, Question, Reads, Row, Scoring, Sentence, Slot, Source, Step, prepare,
};

use crate::backend::{Cuda, Table};
use crate::device::Device;
use crate::fake::{Fake, Launched};
use crate::logits::OutputLayer;
use crate::memory::Rows;
use crate::output::Output;
use crate::precision::Numbers;
use crate::race_trial::try_races;
use crate::trial::{time_output_layers, try_output_layers};

const WIDTH: usize = 64;
const WORDS: usize = 1000;

struct Subject {
    gpu: Cuda,
    output: Output,
    x: Rows,
    rows: usize,
}

impl Subject {
    fn new(fake: &Fake, numbers: Numbers, rows: usize) -> Subject {
        let gpu = Cuda::on(Device::on_fake(fake, numbers).expect("a device"));
        let weight = Weight::from_f32(vec![WORDS, WIDTH], &vec![0.5; WORDS * WIDTH]);
        let bias = Weight::from_f32(vec![WORDS], &vec![0.5; WORDS]);
        let layer = Dense { weight: &weight, bias: Some(&bias), alpha: None };
        let output = gpu.prepare_output(layer);
        let table = gpu.prepare_table(&weight);
        let mut x = gpu.rows();
        let (ids, at) = (vec![Some(1); rows], vec![0; rows]);
        gpu.embed(
            &table,
            Embed { ids: &ids, scale: 1.0, at: &at, positions: None, follows: &[] },
            &mut x,
        );
        gpu.finish().expect("finished");
        fake.ran();
        Subject { gpu, output, x, rows }
    }

    fn best(&self, layer: OutputLayer, count: usize, scoring: Scoring) {
        self.answers(layer, &vec![ask(count, scoring); self.rows]);
    }

    fn answers(&self, layer: OutputLayer, asks: &[Ask<'_>]) -> Choices {
        let gpu = self.gpu.clone().with_output_layer(layer);
        let none = vec![None; self.rows];
        let (mut pending, mut choices) = (Default::default(), Choices::default());
        gpu.ask(&self.x, &self.output, &none, Question { asks, contests: None }, &mut pending);
        gpu.answer(&mut pending, &mut choices);
        choices
    }
}

fn ask(count: usize, scoring: Scoring) -> Ask<'static> {
    Ask { count, banned: &[], forced: None, path: 0.0, scoring }
}

/// One word a row, by logit.
fn best_words(session: &mut Box<dyn Network>, rows: usize) {
    let asks = vec![ask(1, Scoring::Logit); rows];
    session.ask(Question { asks: &asks, contests: None });
}

#[test]
fn the_output_layer_suits_the_number_of_rows() {
    let cases = [
        (Numbers::Float16, 1, "best_few"),
        (Numbers::Float16, 12, "best_narrow"),
        (Numbers::Float16, 40, "best_middle"),
        (Numbers::Float16, 300, "best_large"),
        (Numbers::Float32, 1, "best_narrow"),
        (Numbers::Float32, 300, "best_narrow"),
    ];
    for (numbers, rows, expected) in cases {
        let fake = Fake::new(1 << 30);
        let subject = Subject::new(&fake, numbers, rows);
        subject.best(OutputLayer::Epilogue, 4, Scoring::LogProbability);
        assert_eq!(fake.ran(), [expected, "merge"], "{numbers:?}, {rows} rows");
    }
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, Numbers::Int8, 40);
    subject.best(OutputLayer::Epilogue, 4, Scoring::LogProbability);
    assert_eq!(fake.ran(), ["quantise", "best_middle", "merge"]);
}

#[test]
fn every_output_layer_has_its_kernels() {
    use OutputLayer::{Best, Fused, Separate};
    let cases = [
        (Fused, 4, Scoring::LogProbability, &["product_large", "fused_best"][..]),
        (Separate, 4, Scoring::Logit, &["product_large", "add_bias", "softmax", "k_best"]),
        (Best, 1, Scoring::Logit, &["product_large", "shard_best", "best_of_shards"]),
        (Best, 1, Scoring::LogProbability, &["product_large", "fused_best"]),
        (Fused, 64, Scoring::Logit, &["best_large", "merge"]),
    ];
    for (layer, count, scoring, expected) in cases {
        let fake = Fake::new(1 << 30);
        // Enough rows for large tiles to fill the device.
        let subject = Subject::new(&fake, Numbers::Float16, 3000);
        subject.best(layer, count, scoring);
        assert_eq!(fake.ran(), expected, "{layer:?} {count} {scoring:?}");
    }
}

/// The same question again and again costs one launch, whatever the layer.
#[test]
fn questions_are_replayed() {
    for layer in OutputLayer::ALL {
        let fake = Fake::new(1 << 30);
        let subject = Subject::new(&fake, Numbers::Float16, 40);
        let mut launches = Vec::new();
        for _ in 0..6 {
            subject.best(layer, 1, Scoring::Logit);
            launches.push(fake.world(|w| std::mem::take(&mut w.launches)));
        }
        assert!(launches[0] > 0, "{layer:?} {launches:?}");
        assert_eq!(launches[4..], [0, 0], "{layer:?} {launches:?}");
    }
}

/// Lists too long for a block's memory are looked through by the host, and devices differ in that.
#[test]
fn long_lists_heed_the_memory_of_a_block() {
    for (capability, expected) in [((9, 0), "merge"), ((8, 6), "product_thin")] {
        let fake = Fake::new(1 << 30);
        fake.world(|w| w.capability = capability);
        let subject = Subject::new(&fake, Numbers::Float16, 12);
        // 8 tiles of words, 2048 choices of eight bytes.
        subject.best(OutputLayer::Epilogue, 2000, Scoring::Logit);
        assert_eq!(fake.ran().last().map(String::as_str), Some(expected), "{capability:?}");
    }
}

/// What a block needs is a matter of the words it looks at.
#[test]
fn short_lists_of_words_need_little_memory() {
    let fake = Fake::new(1 << 30);
    fake.world(|w| w.capability = (8, 6));
    let Subject { gpu, output, x, rows } = Subject::new(&fake, Numbers::Float16, 12);
    let words: Vec<u32> = (0..100).collect();
    let selection = gpu.select(&output, &words);
    let asks = vec![ask(2000, Scoring::Logit); rows];
    let question = Question { asks: &asks, contests: None };
    let mut pending = Default::default();
    gpu.ask(&x, &output, &vec![Some(&selection); rows], question, &mut pending);
    gpu.answer(&mut pending, &mut Choices::default());
    assert_eq!(fake.ran().last().map(String::as_str), Some("merge"));
}

#[test]
fn alignments_too_long_for_a_block_are_refused() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, Numbers::Float16, 1);
    let (gpu, mut cache) = (&subject.gpu, subject.gpu.cache());
    gpu.reserve_cache(&mut cache, 64, WIDTH, 1);
    let weights = |length: u32| {
        let mut reads = Reads::default();
        reads.push((0..length).map(|position| position % 64));
        let to = Attention { cache: &cache, reads: &reads, heads: 1, width: WIDTH };
        let mut out = Vec::new();
        let read = || gpu.attention_weights(&subject.x, to, 1, &mut out);
        let fault = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).err();
        let fault = fault.and_then(|fault| fault.downcast::<peregrine_nn::Fault>().ok());
        (out.len(), fault.map(|fault| fault.reason))
    };
    assert_eq!(weights(32_000), (32_000, None));
    let (_, reason) = weights(65_000);
    assert!(reason.as_ref().is_some_and(|reason| reason.contains("alignments")), "{reason:?}");
}

/// Kernels that do nothing give wrong answers, and the trial must see it.
#[test]
fn a_trial_notices_wrong_answers() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Float16).expect("a device"));
    let (questions, wrong) = try_output_layers(&gpu, false).expect("a trial");
    assert!(questions > 1000);
    for layer in OutputLayer::ALL {
        assert!(wrong.iter().any(|line| line.starts_with(layer.name())), "{}", layer.name());
    }
}

#[test]
fn a_trial_notices_wrong_winners() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Float16).expect("a device"));
    let (races, wrong) = try_races(&gpu).expect("a trial");
    assert!(races > 100);
    // All three ways to end a beam, whatever its width.
    assert!(wrong.len() > 12, "{wrong:?}");
}

#[test]
fn all_layers_that_can_are_timed() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Float16).expect("a device"));
    for (choices, layers) in [(1, 4), (3, 3)] {
        let times = time_output_layers(&gpu, (20, 32, 500), choices, 1).expect("times");
        assert_eq!((times.whole.len(), times.best.is_some()), (layers, choices == 1));
    }
}

/// Verbs end a worker by a panic that says why; here with memory that is full.
#[test]
fn a_full_device_is_told_by_a_fault() {
    let fake = Fake::new(8 << 20);
    let subject = Subject::new(&fake, Numbers::Float16, 8);
    let asked = std::panic::AssertUnwindSafe(|| {
        let gpu = &subject.gpu;
        let mut rows = gpu.rows();
        gpu.reserve(&mut rows, 1 << 20, 1024);
    });
    let fault = std::panic::catch_unwind(asked).expect_err("no room");
    let fault = fault.downcast::<peregrine_nn::Fault>().expect("a fault");
    assert!(fault.out_of_memory, "{}", fault.reason);
    fake.ran();
    subject.best(OutputLayer::Epilogue, 1, Scoring::Logit);
    assert_eq!(fake.ran(), ["best_few", "merge"], "the device goes on");
}

/// The last launch of a kernel.
fn last(fake: &Fake, kernel: &str) -> Launched {
    let launched = |w: &mut crate::fake::World| {
        w.ran.iter().rev().find(|(_, launched)| launched.kernel == kernel).cloned()
    };
    fake.world(launched).expect("a launch").1
}

impl Subject {
    /// Asks for `count` words a row, which then race: two rows a sentence, of which every other has a beam of four and the
    /// others have one of two.
    fn race(&self, count: usize, follows: bool) {
        let path = |row: usize| Ask { path: -(row as f32), ..ask(count, Scoring::LogProbability) };
        let asks: Vec<Ask<'_>> = (0..self.rows).map(path).collect();
        let contest = |sentence: usize| Contest {
            rows: 2,
            follows: follows.then_some(3 * sentence as u32 + sentence as u32 % 2),
            width: 3,
            free: sentence % 2 == 1,
            beam: [4, 2][sentence % 2],
            finish: [Finish::Full, Finish::Shrink, Finish::FullBounded][sentence % 3],
            end: 7 + sentence as u32,
        };
        let contests: Vec<Contest> = (0..self.rows / 2).map(contest).collect();
        let question = Question { asks: &asks, contests: Some(&contests) };
        let mut pending = Default::default();
        let none = vec![None; self.rows];
        self.gpu.ask(&self.x, &self.output, &none, question, &mut pending);
        self.gpu.answer(&mut pending, &mut Choices::default());
    }
}

// Where the addresses a race is given stand in its parameters.
const CONTESTS: usize = 48;
const PATHS: usize = 56;
const ANSWERS: usize = 64;
const BEFORE: usize = 80;
const AFTER: usize = 112;

#[test]
fn rows_race_over_what_was_found() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, Numbers::Float16, 40);
    assert_eq!(subject.gpu.ahead(), Ahead::Beams);
    subject.race(8, false);
    let (merge, race) = (last(&fake, "merge"), last(&fake, "race"));
    // Words and scores are read where they were left on the device.
    let latest = merge.parameters.len() - 24;
    assert_eq!(race.address(ANSWERS), merge.address(latest));
    assert_eq!(race.address(ANSWERS + 8), merge.address(latest + 8));
    assert_eq!(race.grid, [3, 1], "a warp for each of 20 sentences, rounded up");
    fake.world(|w| {
        let field = |n: u64, i: u64| w.word(race.address(CONTESTS) + 36 * n + 4 * i);
        let contest = |n: u64| [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|i| field(n, i));
        assert_eq!(contest(0), [0, 2, u32::MAX, 3, 0, 4, 1, 7, 0]);
        assert_eq!(contest(1), [2, 2, u32::MAX, 3, 1, 2, 0, 8, 4]);
        assert_eq!(contest(2), [4, 2, u32::MAX, 3, 0, 4, 2, 9, 6]);
        assert_eq!(contest(19), [38, 2, u32::MAX, 3, 1, 2, 0, 26, 58]);
        assert_eq!(w.word(race.address(PATHS) + 4 * 39), (-39.0_f32).to_bits());
    });
    assert_eq!(fake.ran(), ["best_middle", "merge", "race"]);
    // The next reads what this one wrote.
    subject.race(8, true);
    let next = last(&fake, "race");
    for list in 0..4 {
        assert_eq!(next.address(BEFORE + 8 * list), race.address(AFTER + 8 * list));
        assert_ne!(next.address(AFTER + 8 * list), race.address(AFTER + 8 * list));
    }
    assert_eq!(fake.world(|w| w.word(next.address(CONTESTS) + 36 + 8)), 4);
    // One without a race leaves no scores behind.
    subject.best(OutputLayer::Epilogue, 1, Scoring::Logit);
    let merge = last(&fake, "merge");
    assert_eq!(merge.address(latest + 8), 0);
}

#[test]
fn races_are_replayed() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, Numbers::Float16, 40);
    let mut launches = Vec::new();
    for step in 0..8 {
        subject.race(8, step > 0);
        launches.push(fake.world(|w| std::mem::take(&mut w.launches)));
    }
    assert!(launches[0] > 0, "{launches:?}");
    assert_eq!(launches[6..], [0, 0], "{launches:?}");
}

/// What the host had to find is given to the race.
#[test]
fn lists_of_the_host_race_too() {
    let fake = Fake::new(1 << 30);
    fake.world(|w| w.capability = (8, 6));
    let subject = Subject::new(&fake, Numbers::Float16, 12);
    subject.race(2000, false);
    subject.gpu.finish().expect("finished");
    let race = last(&fake, "race");
    // All scores are zero on a device that computes nothing.
    let third = fake.world(|w| w.word(race.address(ANSWERS) + 4 * (2000 + 3)));
    assert_eq!(third, 3);
    assert_eq!(fake.ran().last().map(String::as_str), Some("race"));
}

/// The papers' layers leave no lists to race over.
#[test]
fn only_the_usual_layer_lets_beams_run_ahead() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, Numbers::Float16, 4);
    for layer in OutputLayer::ALL {
        let expected = if layer == OutputLayer::Epilogue { Ahead::Beams } else { Ahead::Greedy };
        assert_eq!(subject.gpu.clone().with_output_layer(layer).ahead(), expected);
    }
}

/// A step's rows that go on from places, two at position 2 and one at its first; they store at `at` and
/// attend to what they read. What follows the embedding may be a step of its own.
fn attend_past(
    subject: &Subject,
    past: &mut <Cuda as Backend>::Past,
    at: &[u32; 3],
    after_embedding: &[Step<Cuda>],
) {
    let gpu = &subject.gpu;
    let from = [Origin::Place(5), Origin::Row { row: 1, token: 9 }, Origin::Start];
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
    gpu.grow(Grow { from: &from, positions: &positions, own: &own, first: &first }, past);
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
    let subject = Subject::new(&fake, Numbers::Float16, 40);
    subject.race(8, false);
    let race = last(&fake, "race");
    let mut past = Default::default();
    attend_past(&subject, &mut past, &[10, 20, 30], &[]);
    let grow = last(&fake, "embed_grown");
    // Words and parents are where the race left them.
    assert_eq!(grow.address(40), race.address(AFTER));
    assert_eq!(grow.address(LISTS + 40), race.address(AFTER + 8));
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
    attend_past(&subject, &mut past, &[10, 21, 30], &[Step::Tanh]);
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
    let subject = Subject::new(&fake, Numbers::Float16, 4);
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
    for raced in [false, true] {
        subject.best(OutputLayer::Epilogue, 1, Scoring::Logit);
        if raced {
            subject.race(8, false);
        }
        let parents = if raced { last(&fake, "race").address(AFTER + 8) } else { 0 };
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

#[test]
fn whether_rows_come_in_parties_is_a_matter_of_the_search() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Float16).expect("a device"));
    let architecture = preset("student", Some(100)).expect("a known shape");
    let model = made_up_model(architecture, 1).expect("a model");
    let member = &model.members[0];
    let network = prepare(gpu, &member.architecture, &member.weights).expect("all weights");
    let mut session = network.session();
    // The same session serves a beam and then a greedy search.
    for (beam, expected) in [(true, "attend_few_32"), (false, "attend_wide_1")] {
        let slots = session.admit(&[Sentence { source: &[5, 6, 7], words: None, beam }]);
        fake.ran();
        let row = Row { slot: slots[0], from: Origin::Start, position: 0 };
        session.step(&[row], false);
        best_words(&mut session, 1);
        session.answer(&mut Choices::default());
        let ran = fake.ran();
        let source = ran.iter().rfind(|kernel| kernel.starts_with("attend"));
        assert_eq!(source.map(|kernel| kernel.as_str()), Some(expected), "{ran:?}");
        session.release(slots[0]);
    }
}

/// Sentences are encoded beside the steps of others, and only a step that reads them waits for that.
#[test]
fn steps_wait_for_the_encoding_of_those_they_read() {
    for shape in ["student", "gru", "rnnfc-s3"] {
        let fake = Fake::new(1 << 30);
        let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Float16).expect("a device"));
        let model = made_up_model(preset(shape, Some(100)).expect("a known shape"), 1);
        let member = &model.expect("a model").members[0];
        let network = prepare(gpu, &member.architecture, &member.weights).expect("all weights");
        let mut session = network.session();
        assert!(session.encodes_beside());
        // Room for all that follows.
        let long = session.admit(&[Sentence { source: &[5; 100], words: None, beam: false }])[0];
        session.release(long);
        fake.ran();
        // The queue of what was sent last and how much that is in all, what it waited for at the least.
        let sent = || {
            fake.world(|w| {
                let (queue, last) = w.ran.last().expect("a kernel").clone();
                let waited = |(_, launched): &(usize, Launched)| launched.after.clone();
                let first = w.ran.first().map(waited).expect("a kernel");
                assert!(w.ran.drain(..).all(|(other, _)| other == queue), "{shape}");
                (queue, last.after[&queue] + 1, first)
            })
        };
        let sentence = Sentence { source: &[5, 6, 7], words: None, beam: false };
        let step = |session: &mut Box<dyn Network>, slots: &[(Slot, Origin)]| {
            let row = |&(slot, from): &(Slot, Origin)| Row { slot, from, position: 0 };
            session.step(&slots.iter().map(row).collect::<Vec<_>>(), false);
            best_words(session, slots.len());
            session.answer(&mut Choices::default());
            sent()
        };
        let first = session.admit(&[sentence])[0];
        let (beside, encoded, _) = sent();
        let (own, stepped, waited) = step(&mut session, &[(first, Origin::Start)]);
        assert_ne!(own, beside);
        assert_eq!(waited[&beside], encoded, "{shape}: the first step reads what was encoded");
        let second = session.admit(&[sentence])[0];
        let (_, both_encoded, waited) = sent();
        assert_eq!(waited[&own], stepped, "{shape}: what is encoded may take rows just left");
        let on = Origin::Row { row: 0, token: 9 };
        let (.., waited) = step(&mut session, &[(first, on)]);
        assert_eq!(waited[&beside], encoded, "{shape}: nobody reads the second sentence yet");
        let (.., waited) = step(&mut session, &[(first, on), (second, Origin::Start)]);
        assert_eq!(waited[&beside], both_encoded, "{shape}");
        // One that nobody ever read: its rows are not given to others before they are written.
        let third = session.admit(&[sentence])[0];
        let (_, all_encoded, _) = sent();
        session.release(third);
        let (.., waited) = step(&mut session, &[(first, on)]);
        assert_eq!(waited[&beside], all_encoded, "{shape}");
    }
}

/// A cache that grows is copied; what is being written to it must be there.
#[test]
fn caches_that_grow_wait_for_what_is_encoded() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Float16).expect("a device"));
    let model = made_up_model(preset("student", Some(100)).expect("a known shape"), 1);
    let member = &model.expect("a model").members[0];
    let network = prepare(gpu, &member.architecture, &member.weights).expect("all weights");
    let mut session = network.session();
    session.admit(&[Sentence { source: &[5; 3], words: None, beam: false }]);
    let encoded = fake.world(|w| w.ran.drain(..).next_back().map(|(queue, l)| l.after[&queue] + 1));
    let encoded = encoded.expect("a kernel");
    session.admit(&[Sentence { source: &[5; 100], words: None, beam: false }]);
    fake.world(|w| {
        let (beside, _) = w.ran.last().expect("a kernel").clone();
        // Not those of caches that nobody else knows.
        let copies = w
            .ran
            .iter()
            .filter(|(queue, launched)| *queue != beside && launched.kernel == "copy_words");
        let waited: Vec<_> = copies.map(|(_, copy)| copy.after.get(&beside)).collect();
        assert!(!waited.is_empty() && waited.iter().all(|waited| *waited == Some(&encoded)));
    });
}

/// In turn, everything is one queue's.
#[test]
fn nothing_is_done_beside_where_that_is_not_wanted() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Float16).expect("a device")).in_turn(true);
    let model = made_up_model(preset("student", Some(100)).expect("a known shape"), 1);
    let member = &model.expect("a model").members[0];
    let network = prepare(gpu, &member.architecture, &member.weights).expect("all weights");
    let mut session = network.session();
    assert!(!session.encodes_beside());
    let slots = session.admit(&[Sentence { source: &[5, 6, 7], words: None, beam: false }]);
    session.step(&[Row { slot: slots[0], from: Origin::Start, position: 0 }], false);
    let queues = fake.world(|w| w.ran.iter().map(|(queue, _)| *queue).collect::<Vec<_>>());
    assert!(queues.iter().all(|&queue| queue == queues[0]));
}

/// In fp8 the source is encoded in float16, and steps are not.
#[test]
fn fp8_is_for_steps() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Fp8).expect("a device"));
    let model = made_up_model(preset("student", Some(100)).expect("a known shape"), 1);
    let member = &model.expect("a model").members[0];
    let network = prepare(gpu, &member.architecture, &member.weights).expect("all weights");
    let mut session = network.session();
    fake.ran();
    let quantised = || {
        let ran = fake.ran();
        let count = |wanted: &str| ran.iter().filter(|kernel| kernel.starts_with(wanted)).count();
        (count("quantise"), count("product"))
    };
    let slots = session.admit(&[Sentence { source: &[5, 6, 7], words: None, beam: false }]);
    // Six layers of four products, and keys and values for three.
    assert_eq!(quantised(), (0, 6 * 4 + 3));
    session.step(&[Row { slot: slots[0], from: Origin::Start, position: 0 }], false);
    best_words(&mut session, 1);
    // Three layers of six products, and the output layer.
    assert_eq!(quantised(), (3 * 6 + 1, 3 * 6));
}

impl Subject {
    /// Looks a word up that stands at a position, and gives the first number added for that.
    fn position(&self, fake: &Fake, table: &Table, positions: &PositionTable, at: u32) -> f32 {
        let positions = Some(positions);
        let words = Embed { ids: &[Some(1)], scale: 1.0, at: &[at], positions, follows: &[] };
        self.gpu.embed(table, words, &mut self.gpu.rows());
        self.gpu.finish().expect("finished");
        let vectors = last(fake, "embed").address(POSITIONS);
        f32::from_bits(fake.world(|w| w.word(vectors + 4 * u64::from(at) * WIDTH as u64)))
    }
}

/// Where the positions are in the structure `Embedding`.
const POSITIONS: usize = 48;

fn position_table(rows: usize, first: f32) -> PositionTable {
    let numbers: Vec<f32> = (0..rows * WIDTH).map(|i| first + (i / WIDTH) as f32).collect();
    PositionTable::stored(Weight::from_f32(vec![rows, WIDTH], &numbers))
}

#[test]
fn positions_are_those_of_the_table_even_where_another_was_before() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, Numbers::Float16, 4);
    let weight = Weight::from_f32(vec![WORDS, WIDTH], &vec![0.5; WORDS * WIDTH]);
    let table = subject.gpu.prepare_table(&weight);
    let position = |positions: &PositionTable, at| subject.position(&fake, &table, positions, at);
    let mut positions = position_table(1000, 0.0);
    assert_eq!([3, 600, 3].map(|at| position(&positions, at)), [3.0, 600.0, 3.0]);
    // Another at the same address.
    positions = position_table(1000, 2000.0);
    assert_eq!([3, 600, 3].map(|at| position(&positions, at)), [2003.0, 2600.0, 2003.0]);
}

#[test]
fn positions_go_with_the_table_they_were_added_to() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, Numbers::Float16, 4);
    let weight = Weight::from_f32(vec![WORDS, WIDTH], &vec![0.5; WORDS * WIDTH]);
    let used = || {
        subject.gpu.abandon();
        fake.world(|w| w.used())
    };
    let before = used();
    let table = subject.gpu.prepare_table(&weight);
    subject.position(&fake, &table, &position_table(100, 0.0), 50);
    assert!(used() > before);
    drop(table);
    assert_eq!(used(), before);
}

/// A kernel would read what is behind the vectors.
#[test]
fn positions_beyond_the_table_are_refused() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, Numbers::Float16, 4);
    let weight = Weight::from_f32(vec![WORDS, WIDTH], &vec![0.5; WORDS * WIDTH]);
    let table = subject.gpu.prepare_table(&weight);
    let narrow = PositionTable::sinusoid(WIDTH / 2, 0, Spacing::Half);
    for (positions, at) in [(position_table(300, 0.0), 300), (narrow, 3)] {
        let positions = Some(&positions);
        let words = Embed { ids: &[Some(1)], scale: 1.0, at: &[at], positions, follows: &[] };
        let embed = || subject.gpu.embed(&table, words, &mut subject.gpu.rows());
        let fault = std::panic::catch_unwind(std::panic::AssertUnwindSafe(embed));
        let fault = fault.expect_err("no vector").downcast::<peregrine_nn::Fault>();
        assert!(fault.is_ok_and(|fault| fault.reason.contains("position")));
    }
}
