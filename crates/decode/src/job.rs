//! What goes into a worker, and what comes out.

use std::sync::Arc;

use crate::guard::Verdict;
use crate::hypothesis::Hypothesis;

/// A sentence to translate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// Source ids with their frame.
    pub source: Vec<u32>,
    /// Target words allowed, sorted and holding the end symbol; all if there is no list.
    pub words: Option<Arc<[u32]>>,
    /// The first target words; the search goes on from there. If the end symbol is among them the
    /// whole translation is given, and only its scores are worked out.
    pub prefix: Vec<u32>,
    /// Exactly this many target tokens, whatever they are: for measuring.
    pub length: Option<usize>,
}

/// A sentence that has been translated.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The number it came with.
    pub ticket: u64,
    /// Its translations, best first.
    pub hypotheses: Vec<Hypothesis>,
    /// What the guards found.
    pub verdict: Verdict,
}
