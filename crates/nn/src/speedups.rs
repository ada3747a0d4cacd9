//! Memoisation (memoization) in recurrent networks (Devlin's decoder): pre-computed embeddings,
//! pre-computed attention, merged states and reused working memory. `recurrent/projection.rs`,
//! `recurrent/encoder.rs` and `recurrent/cell.rs` implement them.

/// Which of Devlin's speedups a recurrent network uses. The mathematics stay as they are; only
/// [`Self::attention`] changes the order of additions. Transformers ignore them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speedups {
    /// The number of words with pre-computed (memoised) products of their embeddings, made when the model is
    /// prepared. Ids are taken to be in order of frequency, as they are in vocabularies. 0 is off.
    pub embeddings: usize,
    /// Pre-computed attention: a cell's product of the attended context is computed once a source word, as a
    /// weighted sum of products in place of a product of a weighted sum.
    pub attention: bool,
    /// Merged states: hypotheses that go on from the same one share the products of its state.
    pub merge: bool,
    /// Reuse of working memory from step to step.
    pub reuse: bool,
}

impl Default for Speedups {
    fn default() -> Self {
        Speedups { embeddings: 8000, attention: true, merge: true, reuse: true }
    }
}

impl Speedups {
    /// No speedup.
    pub const OFF: Speedups =
        Speedups { embeddings: 0, attention: false, merge: false, reuse: false };
}
