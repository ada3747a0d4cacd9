//! A finished translation of a sentence, in ids.

/// One translation and what is known about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hypothesis {
    /// Target words without the end symbol.
    pub tokens: Vec<u32>,
    /// Whether it ended by itself; if not, it was cut at the length limit.
    pub ended: bool,
    /// Sum of its token scores.
    pub path_score: f32,
    /// What it is ranked by: the path score after penalty and normalisation.
    pub score: f32,
    /// Log-probability of each token, the end symbol's last (zeros if scores were not asked for).
    pub token_scores: Vec<f32>,
    /// For each network the sum of its own log-probabilities, unweighted.
    pub member_scores: Vec<f32>,
    /// For each token, the end symbol too, its attention to the framed source (if asked for).
    pub alignment: Vec<Vec<f32>>,
}
