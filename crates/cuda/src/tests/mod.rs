//! The backend on the fake driver: which kernels operations choose, that a query asked again is replayed, and what
//! happens when memory is full.

use peregrine_model::{Finish, Spacing, Weight, made_up_model, preset};
use peregrine_nn::{
    Attention, Backend, Choices, Dense, DeviceBeam, Embed, Moves, Network, Origin, PastExtension,
    PositionTable, PreparedOp, Reads, Row, RowRequest, RunAhead, Scoring, Sentence, Slot, Source,
    TopKQuery, prepare,
};

use crate::backend::{Cuda, Table};
use crate::device::Device;
use crate::device_beam_trial::try_device_beams;
use crate::fake::{Fake, Launched};
use crate::memory::Rows;
use crate::output::{Output, OutputLayer};
use crate::precision::GpuPrecision;
use crate::trial::{time_output_layers, try_output_layers};

mod device_beams;
mod networks;
mod workers;

const WIDTH: usize = 64;
const WORDS: usize = 1000;

struct Subject {
    gpu: Cuda,
    output: Output,
    x: Rows,
    rows: usize,
}

impl Subject {
    fn new(fake: &Fake, precision: GpuPrecision, rows: usize) -> Subject {
        let gpu = Cuda::on(Device::on_fake(fake, precision).expect("a device"));
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
        self.answers(layer, &vec![request(count, scoring); self.rows]);
    }

    fn answers(&self, layer: OutputLayer, requests: &[RowRequest<'_>]) -> Choices {
        let gpu = self.gpu.clone().with_output_layer(layer);
        let none = vec![None; self.rows];
        let (mut pending, mut choices) = (Default::default(), Choices::default());
        gpu.top_k(
            &self.x,
            &self.output,
            &none,
            TopKQuery { requests, device_beams: None },
            &mut pending,
        );
        gpu.take_top_k(&mut pending, &mut choices);
        choices
    }
}

fn request(count: usize, scoring: Scoring) -> RowRequest<'static> {
    RowRequest { count, banned: &[], forced: None, path: 0.0, scoring }
}

/// One word a row, by logit.
fn best_words(session: &mut Box<dyn Network>, rows: usize) {
    let requests = vec![request(1, Scoring::Logit); rows];
    session.top_k(TopKQuery { requests: &requests, device_beams: None });
}

#[test]
fn the_output_layer_suits_the_number_of_rows() {
    let cases = [
        (GpuPrecision::Float16, 1, "best_few"),
        (GpuPrecision::Float16, 12, "best_narrow"),
        (GpuPrecision::Float16, 40, "best_middle"),
        (GpuPrecision::Float16, 100, "best_large"),
        (GpuPrecision::Float16, 300, "best_huge"),
        (GpuPrecision::Tf32, 300, "best_large"),
        (GpuPrecision::Float32, 1, "best_narrow"),
        (GpuPrecision::Float32, 300, "best_narrow"),
    ];
    for (precision, rows, expected) in cases {
        let fake = Fake::new(1 << 30);
        let subject = Subject::new(&fake, precision, rows);
        subject.best(OutputLayer::Epilogue, 4, Scoring::LogProbability);
        assert_eq!(fake.ran(), [expected, "merge"], "{precision:?}, {rows} rows");
    }
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Int8, 40);
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
        (Fused, 64, Scoring::Logit, &["best_huge", "merge"]),
    ];
    for (layer, count, scoring, expected) in cases {
        let fake = Fake::new(1 << 30);
        // Enough rows for large tiles to fill the device.
        let subject = Subject::new(&fake, GpuPrecision::Float16, 3000);
        subject.best(layer, count, scoring);
        assert_eq!(fake.ran(), expected, "{layer:?} {count} {scoring:?}");
    }
}

/// Offsets of the query's lists in the parameters of `merge`.
const COUNTS: usize = 0;
const PROBABILITIES: usize = 32;

/// Each row has its own scoring.
#[test]
fn rows_are_scored_as_each_asks() {
    use Scoring::{LogProbability, LogProbabilityOfAllowed, Logit};
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 40);
    let requests = |row: usize| match row % 4 {
        0 => request(1, Logit),
        1 => request(4, LogProbability),
        2 => request(2, LogProbabilityOfAllowed),
        _ => request(3, Logit),
    };
    let requests: Vec<RowRequest<'_>> = (0..40).map(requests).collect();
    let choices = subject.answers(OutputLayer::Epilogue, &requests);
    assert_eq!([0, 1, 2, 3].map(|row| choices.of(row).len()), [1, 4, 2, 3]);
    let merge = last(&fake, "merge");
    let staged = |place: usize| {
        fake.world(|w| [0, 1, 2, 3, 39].map(|row| w.word(merge.address(place) + 4 * row)))
    };
    assert_eq!(staged(COUNTS), [1, 4, 2, 3, 3]);
    assert_eq!(staged(PROBABILITIES), [0, 1, 2, 0, 0]);
    assert_eq!(fake.ran(), ["best_middle", "merge"]);
    // Rows that ask for the best word only are answered with the others.
    let requests = [request(1, Logit), request(1, LogProbability)].repeat(20);
    subject.answers(OutputLayer::Best, &requests);
    let ran = fake.ran();
    assert_eq!(ran.last().map(String::as_str), Some("fused_best"), "{ran:?}");
}

/// The same query again is one graph launch, whatever the layer.
#[test]
fn questions_are_replayed() {
    for layer in OutputLayer::ALL {
        let fake = Fake::new(1 << 30);
        let subject = Subject::new(&fake, GpuPrecision::Float16, 40);
        let mut launches = Vec::new();
        for _ in 0..6 {
            subject.best(layer, 1, Scoring::Logit);
            launches.push(fake.world(|w| std::mem::take(&mut w.launches)));
        }
        assert!(launches[0] > 0, "{layer:?} {launches:?}");
        assert_eq!(launches[4..], [0, 0], "{layer:?} {launches:?}");
    }
}

/// The host searches lists that do not fit shared memory, of which devices have different amounts.
#[test]
fn long_lists_must_fit_shared_memory() {
    for (capability, expected) in
        [((9, 0), &["best_narrow", "merge"]), ((8, 6), &["product_thin", "copy_words"])]
    {
        let fake = Fake::new(1 << 30);
        fake.world(|w| w.capability = capability);
        let subject = Subject::new(&fake, GpuPrecision::Float16, 12);
        // 8 tiles of words, 2048 choices of eight bytes.
        subject.best(OutputLayer::Epilogue, 2000, Scoring::Logit);
        subject.gpu.finish().expect("finished");
        assert_eq!(fake.ran(), expected, "{capability:?}");
    }
}

/// A log-sum-exp has other last bits on the host: only rows that ask for too many words are answered there.
#[test]
fn long_lists_change_no_other_row() {
    for layer in [OutputLayer::Epilogue, OutputLayer::Fused] {
        let fake = Fake::new(1 << 30);
        fake.world(|w| w.capability = (8, 6));
        let subject = Subject::new(&fake, GpuPrecision::Float16, 12);
        let mut requests = vec![request(4, Scoring::LogProbability); 12];
        requests[5] = request(2000, Scoring::LogProbability);
        requests[7] = request(40, Scoring::LogProbability);
        let choices = subject.answers(layer, &requests);
        // All words, in their order: all scores are zero on a device that computes nothing.
        assert_eq!(choices.of(5).len(), WORDS);
        assert!(choices.of(5).iter().zip(0..).all(|(choice, word)| choice.token == word));
        assert_eq!([0, 4, 6, 7, 11].map(|row| choices.of(row).len()), [4, 4, 4, 40, 4]);
        let merge = last(&fake, "merge");
        let counts =
            fake.world(|w| [4, 5, 6, 7].map(|row| w.word(merge.address(COUNTS) + 4 * row)));
        let epilogue = layer == OutputLayer::Epilogue;
        assert_eq!(counts, if epilogue { [4, 0, 4, 40] } else { [0, 0, 0, 40] });
        // The next step goes on from the best word of each row, found by the device or by the host.
        subject.gpu.finish().expect("finished");
        let copy = last(&fake, "copy_words");
        assert_eq!(fake.world(|w| w.word(copy.address(0) + 4 * 5)), 0);
        let followed =
            subject.gpu.device().record(|segment| Ok(segment.followed())).expect("places");
        assert_eq!(followed, (copy.address(8), 0));
        let ran = fake.ran();
        assert_eq!(ran.contains(&"fused_best".to_owned()), !epilogue, "{ran:?}");
    }
}

/// The shared memory of a block depends on the words it searches.
#[test]
fn short_lists_of_words_need_little_memory() {
    let fake = Fake::new(1 << 30);
    fake.world(|w| w.capability = (8, 6));
    let Subject { gpu, output, x, rows } = Subject::new(&fake, GpuPrecision::Float16, 12);
    let words: Vec<u32> = (0..100).collect();
    let selection = gpu.select(&output, &words);
    let requests = vec![request(2000, Scoring::Logit); rows];
    let query = TopKQuery { requests: &requests, device_beams: None };
    let mut pending = Default::default();
    gpu.top_k(&x, &output, &vec![Some(&selection); rows], query, &mut pending);
    gpu.take_top_k(&mut pending, &mut Choices::default());
    assert_eq!(fake.ran().last().map(String::as_str), Some("merge"));
}

#[test]
fn alignments_too_long_for_a_block_go_through_memory() {
    /// The offset of that memory's address in the parameters.
    const SCRATCH: usize = 72;
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 1);
    let (gpu, mut cache) = (&subject.gpu, subject.gpu.cache());
    gpu.reserve_cache(&mut cache, 64, WIDTH, 1);
    let weights = |length: u32| {
        let mut reads = Reads::default();
        reads.push((0..length).map(|position| position % 64));
        let to = Attention { cache: &cache, reads: &reads, heads: 1, width: WIDTH };
        let mut out = Vec::new();
        gpu.attention_weights(&subject.x, to, 1, &mut out);
        (out.len(), last(&fake, "attention_weights").address(SCRATCH) != 0)
    };
    assert_eq!(weights(32_000), (32_000, false));
    assert_eq!(weights(65_000), (65_000, true));
}

/// Kernels that do nothing give wrong answers, which the trial must notice.
#[test]
fn a_trial_notices_wrong_answers() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, GpuPrecision::Float16).expect("a device"));
    let (queries, wrong) = try_output_layers(&gpu, false).expect("a trial");
    assert!(queries > 1000);
    for layer in OutputLayer::ALL {
        assert!(wrong.iter().any(|line| line.starts_with(layer.name())), "{}", layer.name());
    }
}

#[test]
fn a_trial_notices_wrong_winners() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, GpuPrecision::Float16).expect("a device"));
    let (searches, wrong) = try_device_beams(&gpu).expect("a trial");
    assert!(searches > 100);
    // All three ways to end a beam, whatever its width.
    assert!(wrong.len() > 12, "{wrong:?}");
}

#[test]
fn all_layers_that_can_are_timed() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, GpuPrecision::Float16).expect("a device"));
    for (choices, layers) in [(1, 4), (3, 3)] {
        let times = time_output_layers(&gpu, (20, 32, 500), choices, 1).expect("times");
        assert_eq!((times.whole.len(), times.best.is_some()), (layers, choices == 1));
    }
}

/// A failed operation unwinds with a fault, here with memory that is full.
#[test]
fn a_full_device_is_told_by_a_fault() {
    let fake = Fake::new(8 << 20);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 8);
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
    /// Looks up a word at a position and returns the first number of the position's vector.
    fn position(&self, fake: &Fake, table: &Table, positions: &PositionTable, at: u32) -> f32 {
        let positions = Some(positions);
        let words = Embed { ids: &[Some(1)], scale: 1.0, at: &[at], positions, follows: &[] };
        self.gpu.embed(table, words, &mut self.gpu.rows());
        self.gpu.finish().expect("finished");
        let vectors = last(fake, "embed").address(POSITIONS);
        f32::from_bits(fake.world(|w| w.word(vectors + 4 * u64::from(at) * WIDTH as u64)))
    }
}

/// The offset of the positions in the structure `Embedding`.
const POSITIONS: usize = 48;

fn position_table(rows: usize, first: f32) -> PositionTable {
    let numbers: Vec<f32> = (0..rows * WIDTH).map(|i| first + (i / WIDTH) as f32).collect();
    PositionTable::stored(Weight::from_f32(vec![rows, WIDTH], &numbers))
}

#[test]
fn positions_are_those_of_the_table_even_where_another_was_before() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 4);
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
    let subject = Subject::new(&fake, GpuPrecision::Float16, 4);
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

/// A kernel would read beyond the vectors.
#[test]
fn positions_beyond_the_table_are_refused() {
    let fake = Fake::new(1 << 30);
    let subject = Subject::new(&fake, GpuPrecision::Float16, 4);
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
