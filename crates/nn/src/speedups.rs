//! Short cuts of recurrent networks that leave the mathematics as it is.

/// Which of Devlin's short cuts a recurrent network takes. None of them changes what is computed,
/// but for the order of additions in [`Self::attention`]; transformers take no notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speedups {
    /// Products of the first words' embeddings are computed once, when the model is prepared. Ids
    /// are taken to be in the order of frequency, as vocabularies have them. 0 is off.
    pub embeddings: usize,
    /// What a cell does with the attended context is computed once a source word: a weighted sum of
    /// products in place of a product of a weighted sum.
    pub attention: bool,
    /// Hypotheses that go on from the same one share the products of its state.
    pub merge: bool,
    /// Working memory is kept from step to step.
    pub reuse: bool,
}

impl Default for Speedups {
    fn default() -> Self {
        Speedups { embeddings: 8000, attention: true, merge: true, reuse: true }
    }
}

impl Speedups {
    /// None of them.
    pub const OFF: Speedups =
        Speedups { embeddings: 0, attention: false, merge: false, reuse: false };
}
