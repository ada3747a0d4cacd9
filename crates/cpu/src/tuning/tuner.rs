//! Finds out by timing which of several kernels is fastest for a shape.
//!
//! Kernels that compete give the same bits, so nothing but speed depends on what is chosen (but see
//! [`Tuner::across_precisions`]). Each call for
//! a shape that is not settled runs one of them, in turn, with a clock beside it: no work is done
//! twice. After [`ROUNDS`] turns the fastest of its best times stays. Rows are bucketed, as the height of
//! a product changes from step to step.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Turns each kernel gets.
const ROUNDS: u32 = 4;

/// Last number of rows of each bucket.
const BUCKETS: [usize; 8] = [1, 2, 6, 12, 24, 48, 96, usize::MAX];

const UNSETTLED: u8 = u8::MAX;

/// A way to compute a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kernel {
    /// Tiles of up to 12 rows and 2 panels.
    Two,
    /// Tiles of up to 6 rows and 4 panels.
    Four,
    /// Tiles of up to 2 rows and 8 panels.
    Eight,
    /// AMX.
    Amx,
    /// In float32,
    Float32,
    /// or in 16-bit fixed point: these two differ in bits, see `either`.
    Int16,
}

impl Kernel {
    pub(crate) const ALL: [Kernel; 6] =
        [Kernel::Two, Kernel::Four, Kernel::Eight, Kernel::Amx, Kernel::Float32, Kernel::Int16];

    /// The name used in files and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kernel::Two => "tiles-of-2-panels",
            Kernel::Four => "tiles-of-4-panels",
            Kernel::Eight => "tiles-of-8-panels",
            Kernel::Amx => "amx",
            Kernel::Float32 => "float32",
            Kernel::Int16 => "int16",
        }
    }
}

/// What the tuner has settled on for a shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// Inputs of the layer.
    pub inputs: usize,
    /// Its outputs.
    pub outputs: usize,
    /// For at most so many rows (and more than the next smaller entry's).
    pub rows: usize,
    /// The kernel.
    pub kernel: String,
    /// Best time of each kernel tried, in microseconds; none if the choice was read from a file.
    pub microseconds: Vec<(String, f64)>,
}

/// What is known of products, by their inputs and outputs.
type Shapes = BTreeMap<(usize, usize), Arc<Shape>>;

/// All shapes met. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct Tuner {
    shapes: Arc<Mutex<Shapes>>,
    across_precisions: bool,
}

impl Tuner {
    /// One that lets float32 and 16-bit fixed point compete, whatever precision is asked for, as Marian's
    /// does. It gives up that a sentence's translation depends on nothing but the sentence.
    pub fn across_precisions() -> Tuner {
        Tuner { across_precisions: true, ..Tuner::default() }
    }

    /// Whether it is such a one.
    pub fn crosses_precisions(&self) -> bool {
        self.across_precisions
    }

    /// The entry of a layer's shape.
    pub(crate) fn shape(&self, inputs: usize, outputs: usize) -> Arc<Shape> {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shapes.entry((inputs, outputs)).or_default())
    }

    /// What is settled so far.
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

    /// Takes choices over from an earlier run. Kernels this version does not know are left to be timed.
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

/// What is known of a shape, for each bucket of rows.
#[derive(Debug, Default)]
pub(crate) struct Shape([Bucket; BUCKETS.len()]);

#[derive(Debug)]
struct Bucket {
    settled: AtomicU8,
    calls: AtomicU32,
    /// Nanoseconds; 0 is not yet.
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
    /// Runs a product in one of `kernels`.
    pub(crate) fn run(&self, rows: usize, kernels: &[Kernel], product: impl FnOnce(Kernel)) {
        let bucket = BUCKETS.iter().position(|&last| rows <= last).unwrap_or(BUCKETS.len() - 1);
        let bucket = &self.0[bucket];
        // A choice from a file may not be possible here.
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
            let fastest = kernels.iter().min_by_key(time).copied().unwrap_or(Kernel::Two);
            bucket.settled.store(fastest as u8, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_fastest_way_is_settled_on_and_restored() {
        let tuner = Tuner::default();
        let shape = tuner.shape(512, 2048);
        let kernels = [Kernel::Two, Kernel::Four];
        let mut runs = 0;
        for _ in 0..ROUNDS * 2 {
            assert!(tuner.choices().is_empty());
            shape.run(40, &kernels, |kernel| {
                runs += 1;
                std::thread::sleep(Duration::from_millis(if kernel == Kernel::Four {
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
        shape.run(25, &kernels, |kernel| assert_eq!(kernel, Kernel::Four));
        let again = Tuner::default();
        again.restore(&choices);
        again.shape(512, 2048).run(48, &kernels, |kernel| assert_eq!(kernel, Kernel::Four));
        again.shape(512, 2048).run(48, &[Kernel::Two], |kernel| assert_eq!(kernel, Kernel::Two));
    }
}
