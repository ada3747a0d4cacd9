//! A finished translation of a sentence, in ids.

/// One translation with its scores and alignment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hypothesis {
    /// Target words without the end symbol.
    pub tokens: Vec<u32>,
    /// Whether it ended by itself; if not, it was cut at the length limit.
    pub ended: bool,
    /// The sum of its token scores.
    pub path_score: f32,
    /// The score by which it is ranked: the path score after penalty and normalisation.
    pub score: f32,
    /// The log-probability of each token, the end symbol's last; zeros if scores are off.
    pub token_scores: Vec<f32>,
    /// For each network the sum of its own log-probabilities, unweighted.
    pub member_scores: Vec<f32>,
    /// The attention of each token, the end symbol included, to the framed source; empty if alignments are off.
    pub alignment: Vec<Vec<f32>>,
}
