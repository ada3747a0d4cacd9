//! What a request wants of a translation.

use std::ops::Range;

use peregrine::text::Split;

use crate::glossaries::Terms;

/// What is wanted of a translation besides the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) beam: Option<usize>,
    pub(crate) n_best: usize,
    pub(crate) scores: bool,
    pub(crate) alignments: bool,
    pub(crate) split: Split,
    pub(crate) carry: bool,
    pub(crate) quality: bool,
    /// Bytes of the text that stay as they are.
    pub(crate) keep: Vec<Range<usize>>,
    /// How certain terms are to be translated.
    pub(crate) terms: Option<Terms>,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            beam: None,
            n_best: 1,
            scores: false,
            alignments: false,
            split: Split::Sentence,
            carry: true,
            quality: false,
            keep: Vec::new(),
            terms: None,
        }
    }
}
