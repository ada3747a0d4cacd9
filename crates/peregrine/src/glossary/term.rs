//! A term of a glossary in a text, and what came of it.

use std::ops::Range;

use peregrine_text::Entry;

/// A glossary term that occurs in a text, and its outcome.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Term {
    /// The term's byte range in the request's text.
    pub source: Range<usize>,
    /// The term's byte range in the best translation; `None` if it is missing or forbidden.
    pub target: Option<Range<usize>>,
    /// The prescribed translation, in its first form.
    pub wanted: String,
    /// Whether the term is forbidden. A forbidden term that occurs in the translation counts as
    /// missing.
    pub forbidden: bool,
    /// The outcome.
    pub how: How,
    /// The cost of the constrained search for the sentence: the difference of the mean
    /// log-probabilities of a token.
    pub cost: f32,
}

impl Term {
    /// Adds offsets to the byte ranges in both texts.
    pub(crate) fn shift(&mut self, source: usize, target: usize) {
        self.source = self.source.start + source..self.source.end + source;
        self.target = self.target.take().map(|range| range.start + target..range.end + target);
    }
}

/// The outcome of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// The unconstrained translation has it.
    Already,
    /// The constrained search has produced it.
    Constrained,
    /// Its mask came back.
    Masked,
    /// It is not a term but text that the request keeps unchanged, and its mask came back.
    Kept,
    /// It replaces the words that the model had chosen.
    Replaced,
    /// The translation does not have it.
    Missing,
}

impl How {
    /// All outcomes.
    pub const ALL: [How; 6] =
        [How::Already, How::Constrained, How::Masked, How::Replaced, How::Missing, How::Kept];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            How::Already => "already",
            How::Constrained => "constrained",
            How::Masked => "masked",
            How::Kept => "kept",
            How::Replaced => "replaced",
            How::Missing => "missing",
        }
    }
}

impl std::fmt::Display for How {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A term of a part.
#[derive(Debug, Clone)]
pub(crate) struct PartTerm {
    /// The term's byte range in the part's text.
    pub(crate) range: Range<usize>,
    pub(super) kind: Kind,
    /// The prescribed or forbidden forms; for a masked term the replacement of the mask. There is
    /// at least one.
    pub(super) forms: Vec<String>,
    /// Whether the term may be a prefix of a word.
    pub(super) is_prefix: bool,
    pub(super) how: How,
    pub(super) cost: f32,
    /// The term's byte range in the translation, if its part is copied.
    pub(super) copied_to: Option<Range<usize>>,
}

/// What is asked of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Wanted,
    Forbidden,
    Masked,
}

impl PartTerm {
    /// A term without an outcome.
    pub(super) fn new(
        range: &Range<usize>,
        kind: Kind,
        entry: &Entry,
        forms: Vec<String>,
    ) -> PartTerm {
        let how = if kind == Kind::Masked { How::Masked } else { How::Missing };
        let is_prefix = entry.prefix;
        PartTerm { range: range.clone(), kind, forms, is_prefix, how, cost: 0.0, copied_to: None }
    }

    /// The forms of a prescribed term; empty for others.
    pub(crate) fn wanted(&self) -> &[String] {
        if self.kind == Kind::Wanted { &self.forms } else { &[] }
    }

    /// Whether the term is looked for in the translation.
    pub(crate) fn is_searched(&self) -> bool {
        self.kind != Kind::Masked
    }

    /// The replacement of its mask, if it is masked.
    pub(crate) fn back(&self) -> Option<&str> {
        (self.kind == Kind::Masked).then(|| self.forms[0].as_str())
    }

    /// The term with a range relative to byte `start` of this text.
    pub(crate) fn from(&self, start: usize) -> PartTerm {
        let range = self.range.start - start..self.range.end - start;
        PartTerm { range, ..self.clone() }
    }
}

/// The terms within a byte range, with ranges relative to it.
pub(crate) fn terms_within(terms: &[PartTerm], stretch: &Range<usize>) -> Vec<PartTerm> {
    let within =
        |term: &&PartTerm| stretch.start <= term.range.start && term.range.end <= stretch.end;
    terms.iter().filter(within).map(|term| term.from(stretch.start)).collect()
}
