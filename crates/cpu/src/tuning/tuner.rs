//! Auto-tuning: finds by timing which of several kernels is fastest for a shape.
//!
//! The candidates give the same bits, so only speed depends on the choice (but see [`Tuner::across_precisions`]). Each product of a
//! shape that is not settled runs one candidate, in turn, and is timed: nothing is computed twice. After [`ROUNDS`] runs of each,
//! the candidate with the smallest best time is settled on. Numbers of rows are bucketed, as they change at every decoder step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Timed runs of each kernel.
const ROUNDS: u32 = 4;

/// The largest number of rows of each bucket.
const BUCKETS: [usize; 8] = [1, 2, 6, 12, 24, 48, 96, usize::MAX];

const UNSETTLED: u8 = u8::MAX;

/// A candidate of auto-tuning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kernel {
    /// Register tiles of up to 12 rows by 2 panels.
    TwoPanels,
    /// Register tiles of up to 6 rows by 4 panels.
    FourPanels,
    /// Register tiles of up to 2 rows by 8 panels.
    EightPanels,
    /// AMX.
    Amx,
    /// Float32, a candidate in a `PrecisionTrial`.
    Float32,
    /// 16-bit fixed point, a candidate in a `PrecisionTrial`. Its bits differ from those of float32.
    Int16,
}

impl Kernel {
    pub(crate) const ALL: [Kernel; 6] = [
        Kernel::TwoPanels,
        Kernel::FourPanels,
        Kernel::EightPanels,
        Kernel::Amx,
        Kernel::Float32,
        Kernel::Int16,
    ];

    /// The name used in files and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kernel::TwoPanels => "tiles-of-2-panels",
            Kernel::FourPanels => "tiles-of-4-panels",
            Kernel::EightPanels => "tiles-of-8-panels",
            Kernel::Amx => "amx",
            Kernel::Float32 => "float32",
            Kernel::Int16 => "int16",
        }
    }
}

/// The kernel that the tuner has settled on for a shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The number of inputs of the layer.
    pub inputs: usize,
    /// The number of outputs of the layer.
    pub outputs: usize,
    /// The largest number of rows it holds for. The next smaller entry has the rows below.
    pub rows: usize,
    /// The name of the kernel.
    pub kernel: String,
    /// Best time of each kernel in microseconds. It is empty if the choice was restored.
    pub microseconds: Vec<(String, f64)>,
}

/// Timings by the numbers of inputs and outputs.
type Shapes = BTreeMap<(usize, usize), Arc<Shape>>;

/// The timings of all shapes. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tuner {
    shapes: Arc<Mutex<Shapes>>,
    across_precisions: bool,
}

impl Tuner {
    /// A tuner that chooses between float32 and 16-bit fixed point, whatever precision is configured, as Marian's does. A
    /// translation may then depend on more than the sentence.
    pub fn across_precisions() -> Tuner {
        Tuner { across_precisions: true, ..Tuner::default() }
    }

    /// Whether it chooses between precisions.
    pub fn crosses_precisions(&self) -> bool {
        self.across_precisions
    }

    /// The timings of a layer's shape.
    pub(crate) fn shape(&self, inputs: usize, outputs: usize) -> Arc<Shape> {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shapes.entry((inputs, outputs)).or_default())
    }

    /// The kernels settled on so far.
    pub fn choices(&self) -> Vec<Tuned> {
        let shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut choices = Vec::new();
        for (&(inputs, outputs), shape) in &*shapes {
            for (bucket, &rows) in shape.0.iter().zip(&BUCKETS) {
                let Some(kernel) = bucket.kernel() else { continue };
                let time = |kernel: Kernel| {
                    let nanoseconds = bucket.best[kernel as usize].load(Relaxed);
                    (nanoseconds > 0).then(|| (kernel.name().to_owned(), nanoseconds as f64 / 1e3))
                };
                let microseconds = Kernel::ALL.into_iter().filter_map(time).collect();
                let kernel = kernel.name().to_owned();
                choices.push(Tuned { inputs, outputs, rows, kernel, microseconds });
            }
        }
        choices
    }

    /// Restores choices of an earlier run. Entries with unknown kernels are ignored, and timed again.
    pub fn restore(&self, choices: &[Tuned]) {
        for choice in choices {
            let kernel = Kernel::ALL.into_iter().find(|kernel| kernel.name() == choice.kernel);
            let bucket = BUCKETS.iter().position(|&rows| rows == choice.rows);
            if let (Some(kernel), Some(bucket)) = (kernel, bucket) {
                let shape = self.shape(choice.inputs, choice.outputs);
                shape.0[bucket].settled.store(kernel as u8, Relaxed);
            }
        }
    }
}

/// The timings of a shape, for each bucket of rows.
#[derive(Debug, Default)]
pub(crate) struct Shape([Bucket; BUCKETS.len()]);

#[derive(Debug)]
struct Bucket {
    settled: AtomicU8,
    calls: AtomicU32,
    /// Best time of each kernel in nanoseconds; 0 before the first run.
    best: [AtomicU64; Kernel::ALL.len()],
}

impl Default for Bucket {
    fn default() -> Bucket {
        let (calls, best) = (AtomicU32::new(0), Default::default());
        Bucket { settled: AtomicU8::new(UNSETTLED), calls, best }
    }
}

impl Bucket {
    fn kernel(&self) -> Option<Kernel> {
        Kernel::ALL.get(usize::from(self.settled.load(Relaxed))).copied()
    }
}

impl Shape {
    /// Runs a product of `rows` rows with one of `kernels`.
    pub(crate) fn run(&self, rows: usize, kernels: &[Kernel], product: impl FnOnce(Kernel)) {
        let bucket = BUCKETS.iter().position(|&last| rows <= last).unwrap_or(BUCKETS.len() - 1);
        let bucket = &self.0[bucket];
        // A restored choice may not be among the candidates of this machine.
        if let Some(kernel) = bucket.kernel().filter(|kernel| kernels.contains(kernel)) {
            return product(kernel);
        }
        let call = bucket.calls.fetch_add(1, Relaxed);
        let kernel = kernels[call as usize % kernels.len()];
        let start = Instant::now();
        product(kernel);
        let time = (start.elapsed().as_nanos() as u64).max(1);
        let best = &bucket.best[kernel as usize];
        if best.load(Relaxed) == 0 || time < best.load(Relaxed) {
            best.store(time, Relaxed);
        }
        if call + 1 >= ROUNDS * kernels.len() as u32 {
            let time = |kernel: &&Kernel| match bucket.best[**kernel as usize].load(Relaxed) {
                0 => u64::MAX,
                time => time,
            };
            let fastest = kernels.iter().min_by_key(time).copied().unwrap_or(Kernel::TwoPanels);
            bucket.settled.store(fastest as u8, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_fastest_kernel_is_settled_on_and_restored() {
        let tuner = Tuner::default();
        let shape = tuner.shape(512, 2048);
        let kernels = [Kernel::TwoPanels, Kernel::FourPanels];
        let mut runs = 0;
        for _ in 0..ROUNDS * 2 {
            assert!(tuner.choices().is_empty());
            shape.run(40, &kernels, |kernel| {
                runs += 1;
                std::thread::sleep(Duration::from_millis(if kernel == Kernel::FourPanels {
                    1
                } else {
                    9
                }));
            });
        }
        assert_eq!(runs, 8, "every call computes once");
        let choices = tuner.choices();
        assert_eq!(choices.len(), 1);
        assert_eq!((choices[0].rows, choices[0].kernel.as_str()), (48, "tiles-of-4-panels"));
        shape.run(25, &kernels, |kernel| assert_eq!(kernel, Kernel::FourPanels));
        let again = Tuner::default();
        again.restore(&choices);
        again.shape(512, 2048).run(48, &kernels, |kernel| assert_eq!(kernel, Kernel::FourPanels));
        again
            .shape(512, 2048)
            .run(48, &[Kernel::TwoPanels], |kernel| assert_eq!(kernel, Kernel::TwoPanels));
    }
}
