//! Verbs on a driver that has no device: which kernels they choose, that a question asked again is
//! replayed, and what happens when memory is full.

use peregrine_model::Weight;
use peregrine_nn::{Ask, Backend, Choices, Dense, Embed, Question, Scoring};

use crate::backend::Cuda;
use crate::device::Device;
use crate::fake::Fake;
use crate::logits::OutputLayer;
use crate::memory::Rows;
use crate::output::Output;
use crate::precision::Numbers;
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
        let asks = vec![Ask { count, banned: &[], forced: None }; self.rows];
        let gpu = self.gpu.clone().with_output_layer(layer);
        let question = Question { asks: &asks, scoring };
        let none = vec![None; self.rows];
        let mut pending = Default::default();
        gpu.ask(&self.x, &self.output, &none, question, &mut pending);
        gpu.answer(&mut pending, &mut Choices::default());
    }
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

/// Kernels that do nothing give wrong answers, and the trial must see it.
#[test]
fn a_trial_notices_wrong_answers() {
    let fake = Fake::new(1 << 30);
    let gpu = Cuda::on(Device::on_fake(&fake, Numbers::Float16).expect("a device"));
    let (questions, wrong) = try_output_layers(&gpu).expect("a trial");
    assert!(questions > 1000);
    for layer in OutputLayer::ALL {
        assert!(wrong.iter().any(|line| line.starts_with(layer.name())), "{}", layer.name());
    }
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
