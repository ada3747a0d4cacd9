//! Speed-ups that can be turned off to measure them.
//!
//! Precisions, caches and shortlists have options of their own, because they change results. Techniques change speed only. They are
//! part of an [`Isa`](crate::Isa), which every kernel gets; kernels read them once for each product or attention.

/// A speed-up that keeps results the same, to the last bit if [`Technique::keeps_bits`].
///
/// ```
/// use peregrine_cpu::{Isa, Technique};
///
/// let isa = Isa::best().without(&[Technique::Prefetch]);
/// assert!(!isa.uses(Technique::Prefetch) && isa.uses(Technique::LargePages));
/// assert!(Isa::best().uses(Technique::Prefetch));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Technique {
    /// Memoization: weights are packed once, and not for every product.
    PackedOnce,
    /// Weights and the KV cache are prefetched, if a step reads more than L2 holds.
    Prefetch,
    /// Packed weights and other large buffers are on huge pages of 2 MB.
    LargePages,
    /// Queries, keys and values are computed by one product.
    JointProducts,
    /// With AMX, inputs are stored in the layout of tiles, and feed-forward activations are never stored in float32.
    TileOrder,
    /// With AMX, all rows are multiplied with two panels before the next two.
    TwoPanels,
    /// A residual sum and its layer norm are computed in one pass, row by row.
    FusedNorms,
    /// Four rows of a beam, or of a source sentence, share each read of keys and values.
    SharedReads,
    /// Attention of the encoder computes sixteen words at a time.
    SixteenRows,
    /// With one row, only the weights of feed-forward activations that a ReLU leaves are read.
    ReluSparsity,
}

impl Technique {
    /// All techniques.
    pub const ALL: [Technique; 10] = [
        Technique::PackedOnce,
        Technique::Prefetch,
        Technique::LargePages,
        Technique::JointProducts,
        Technique::TileOrder,
        Technique::TwoPanels,
        Technique::FusedNorms,
        Technique::SharedReads,
        Technique::SixteenRows,
        Technique::ReluSparsity,
    ];

    /// The name of the technique in options.
    pub fn name(self) -> &'static str {
        match self {
            Technique::PackedOnce => "packed-once",
            Technique::Prefetch => "prefetch",
            Technique::LargePages => "large-pages",
            Technique::JointProducts => "joint-products",
            Technique::TileOrder => "tile-order",
            Technique::TwoPanels => "two-panels",
            Technique::FusedNorms => "fused-norms",
            Technique::SharedReads => "shared-reads",
            Technique::SixteenRows => "sixteen-rows",
            Technique::ReluSparsity => "relu-sparsity",
        }
    }

    /// Whether results have the same bits without it, or may differ by rounding.
    pub fn keeps_bits(self) -> bool {
        self != Technique::SixteenRows
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of techniques.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Techniques(u16);

impl Techniques {
    /// All techniques.
    pub(crate) const ALL: Techniques = Techniques(!0);

    /// The set without some techniques.
    pub(crate) fn without(self, techniques: &[Technique]) -> Techniques {
        Techniques(techniques.iter().fold(self.0, |left, technique| left & !technique.bit()))
    }

    /// Whether the set has a technique.
    #[inline(always)]
    pub(crate) fn has(self, technique: Technique) -> bool {
        self.0 & technique.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use peregrine_model::{Activation, Precision, Weight};
    use peregrine_nn::{
        Attention, Backend, Dense, Epilogue, NormWeights, Reads, RowRequest, TopKQuery,
    };
    use peregrine_nn::{Choices, PreparedOp, Scoring};

    use super::*;
    use crate::{Cpu, Isa, Level, Matrix};

    const WIDTH: usize = 128;
    const HIDDEN: usize = 192;
    const ROWS: usize = 45;
    const WORDS: usize = 500;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| (((i + seed) * 37 % 101) as f32 - 50.0) / 100.0).collect()
    }

    fn weights(outputs: usize, inputs: usize) -> Weight {
        Weight::from_f32(vec![outputs, inputs], &numbers(outputs * inputs, outputs))
    }

    /// The bits of a feed-forward block with its residual sum and norm, of attention over shared keys and values, and of the top-k of
    /// all words and of shortlists.
    fn bits(cpu: &Cpu) -> Vec<u32> {
        let layer = |outputs, inputs| {
            let weight = weights(outputs, inputs);
            cpu.prepare_linear(&[Dense { weight: &weight, bias: None, alpha: None }])
        };
        let scale = Weight::from_f32(vec![WIDTH], &numbers(WIDTH, 3));
        let norm = NormWeights { scale: &scale, bias: None, epsilon: 1e-6, centred: true };
        let ops = [PreparedOp::Add, PreparedOp::Norm(cpu.prepare_norm(norm))];
        let x = Matrix::from_rows(2 * WIDTH, numbers(ROWS * 2 * WIDTH, 5));
        let (first, second) = (layer(HIDDEN, 2 * WIDTH), layer(WIDTH, HIDDEN));
        let residual = Matrix::from_rows(WIDTH, numbers(ROWS * WIDTH, 11));
        let (mut hidden, mut rows, mut attended) = (cpu.rows(), cpu.rows(), cpu.rows());
        let after =
            Epilogue { activation: Activation::Identity, ops: &ops, input: Some(&residual) };
        let first = (&first, Activation::Relu);
        cpu.feed_forward(&x, first, (&second, after), &mut hidden, &mut rows);

        let mut cache = cpu.cache();
        cpu.reserve_cache(&mut cache, ROWS, WIDTH, 4);
        cpu.store(&x, 0, &(0..ROWS as u32).collect::<Vec<_>>(), &mut cache);
        let mut reads = Reads::default();
        for row in 0..ROWS as u32 {
            match row % 15 {
                0 => reads.push(row..row + 15),
                _ => reads.push_same(),
            }
        }
        let to = Attention { cache: &cache, reads: &reads, heads: 4, width: WIDTH };
        cpu.attend(&rows, to, &mut attended);

        let weight = weights(WORDS, WIDTH);
        let output = cpu.prepare_output(Dense { weight: &weight, bias: None, alpha: None });
        let lists = [2, 3, 5, 7, 11].map(|n| {
            cpu.select(&output, &(0..WORDS as u32).filter(|word| word % n > 0).collect::<Vec<_>>())
        });
        let of_lists: Vec<_> = (0..ROWS).map(|row| Some(&lists[row % lists.len()])).collect();
        let request =
            RowRequest { count: 2, banned: &[7], forced: None, scoring: Scoring::Logit, path: 0.0 };
        let requests = [request; ROWS];
        let query = TopKQuery { requests: &requests, device_beams: None };
        let mut found = Vec::new();
        for selections in [vec![None; ROWS], of_lists] {
            let (mut pending, mut choices) = (Choices::default(), Choices::default());
            cpu.top_k(&attended, &output, &selections, query, &mut pending);
            cpu.take_top_k(&mut pending, &mut choices);
            let choices = (0..ROWS).flat_map(|row| choices.of(row).to_vec());
            found.extend(choices.flat_map(|choice| [choice.token, choice.score.to_bits()]));
        }
        let values = rows.values().iter().chain(attended.values());
        values.map(|v| v.to_bits()).chain(found).collect()
    }

    fn both(level: Level, precision: Precision, off: &[Technique]) -> Option<[Cpu; 2]> {
        let cpu = Cpu::new(Isa::new(level)?, precision);
        Some([cpu.clone(), cpu.without(off)])
    }

    #[test]
    fn techniques_that_keep_bits_change_no_bit() {
        let off: Vec<Technique> =
            Technique::ALL.into_iter().filter(|technique| technique.keeps_bits()).collect();
        for (level, precision) in Level::ALL.into_iter().flat_map(|level| {
            [Precision::Float32, Precision::Bfloat16, Precision::Int16, Precision::Int8]
                .map(|precision| (level, precision))
        }) {
            let Some(cpus) = both(level, precision, &off) else { continue };
            assert_eq!(cpus.each_ref().map(Backend::joins_products), [true, false]);
            let [all, none] = std::thread::scope(|scope| {
                let start = |cpu| scope.spawn(move || [0; 3].map(|_| bits(cpu)));
                let both = cpus.each_ref().map(start);
                both.map(|thread| thread.join().unwrap())
            });
            assert_eq!(all, none, "{}, {precision:?}", level.name());
            assert!(all[0].len() > 2 * ROWS * WIDTH, "something was computed");
        }
    }

    /// The bits of this technique show whether it is on.
    #[test]
    fn techniques_belong_to_each_processor() {
        for level in Level::ALL {
            let off = [Technique::SixteenRows];
            let Some([all, without]) = both(level, Precision::Float32, &off) else { continue };
            let expected = bits(&all);
            let other = bits(&without);
            assert_ne!(other, expected, "{}", level.name());
            assert_eq!((bits(&all), bits(&without)), (expected, other), "{}", level.name());
        }
    }
}
