//! The options of a translation that a request may set.

use std::ops::Range;

use peregrine::text::Split;

use crate::glossaries::Terms;

/// The options of a request's translations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) beam: Option<usize>,
    pub(crate) n_best: usize,
    pub(crate) scores: bool,
    pub(crate) alignments: bool,
    pub(crate) split: Split,
    pub(crate) carry: bool,
    pub(crate) quality: bool,
    /// Byte ranges of the text that are not translated.
    pub(crate) keep: Vec<Range<usize>>,
    /// The glossary terms.
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
