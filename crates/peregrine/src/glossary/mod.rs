//! Glossaries: prescribed translations of terms, and a report of each.
//!
//! A sentence with a term is translated without constraints first. If the translation lacks the
//! term at the place that attends to its source, the sentence is translated again by a constrained
//! search. If that fails or costs too much, the words aligned with the term are replaced. Terms
//! that are copied, and those that the model cannot spell, are masked as in carry-through. Each
//! term is reported.

mod place;
mod search;

use std::ops::Range;

use peregrine_text::Entry;

use crate::Translator;
use crate::carry::Again;
use crate::line::Part;

/// How the terms of a glossary get into a translation. Terms that are copied, or that the model
/// cannot spell, are always masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum GlossaryMode {
    /// By a constrained search that must produce them. The words around a term agree with it.
    #[default]
    Constrain,
    /// By masks, so that the model never sees them. Suitable for names and codes.
    Mask,
    /// By replacement of the words that the model has chosen.
    Replace,
}

impl std::str::FromStr for GlossaryMode {
    type Err = String;

    fn from_str(name: &str) -> Result<GlossaryMode, String> {
        match name {
            "constrain" => Ok(GlossaryMode::Constrain),
            "mask" => Ok(GlossaryMode::Mask),
            "replace" => Ok(GlossaryMode::Replace),
            _ => Err("expected constrain, mask or replace".to_owned()),
        }
    }
}

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
    kind: Kind,
    /// The prescribed or forbidden forms; for a masked term the replacement of the mask. There is
    /// at least one.
    forms: Vec<String>,
    /// Whether the term may be a prefix of a word.
    is_prefix: bool,
    how: How,
    cost: f32,
    /// The term's byte range in the translation, if its part is copied.
    copied_to: Option<Range<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Wanted,
    Forbidden,
    Masked,
}

impl PartTerm {
    /// A term without an outcome.
    fn new(range: &Range<usize>, kind: Kind, entry: &Entry, forms: Vec<String>) -> PartTerm {
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

impl Part {
    /// A copied part in which masked terms are replaced.
    pub(crate) fn with_copied_terms(mut self, text: &str, terms: Vec<PartTerm>) -> Part {
        let mut copied = String::with_capacity(text.len());
        let mut at = 0;
        for mut term in terms {
            // Forbidden terms cannot occur, because nothing is translated.
            if term.kind == Kind::Forbidden {
                term.how = How::Already;
            } else if let Some(back) = term.back().filter(|_| term.range.start >= at) {
                copied.push_str(&text[at..term.range.start]);
                let start = copied.len();
                copied.push_str(back);
                at = term.range.end;
                term.copied_to = Some(start..copied.len());
            }
            self.terms.push(term);
        }
        copied.push_str(&text[at..]);
        Part { copied: Some(copied), ..self }
    }

    /// The report of the part's terms, which have these ranges in its translation.
    pub(crate) fn term_report(&self, places: Vec<Option<Range<usize>>>) -> Vec<Term> {
        let mut places = places.into_iter();
        let report = |term: &PartTerm| {
            let target = places.next().flatten().or_else(|| term.copied_to.clone());
            let is_lost = term.kind != Kind::Forbidden && target.is_none();
            let how = if is_lost { How::Missing } else { term.how };
            Term {
                source: self.source.start + term.range.start..self.source.start + term.range.end,
                target: target.filter(|_| how != How::Missing),
                wanted: term.forms[0].clone(),
                forbidden: term.kind == Kind::Forbidden,
                how,
                cost: term.cost,
            }
        };
        self.terms.iter().map(report).collect()
    }
}

impl Translator {
    /// The terms in a text, and the ranges `keep` that must be unchanged. Masked ones are added to
    /// `stretches`, the other carried ranges.
    pub(crate) fn terms_in(
        &self,
        text: &str,
        keep: impl Iterator<Item = Range<usize>>,
        again: &Again,
        stretches: &mut Vec<Range<usize>>,
    ) -> Vec<PartTerm> {
        let mut terms = Vec::new();
        for range in keep {
            stretches.retain(|stretch| !overlap(stretch, &range));
            stretches.push(range.clone());
            let forms = vec![text[range.clone()].to_owned()];
            let term = PartTerm::new(&range, Kind::Masked, &Entry::default(), forms);
            terms.push(PartTerm { how: How::Kept, ..term });
        }
        let kept = terms.len();
        let found = again.options.glossary.iter().flat_map(|glossary| {
            glossary.find(text).into_iter().map(move |found| (glossary, found))
        });
        for (glossary, found) in found {
            let range = &found.range;
            if terms[..kept].iter().any(|term| overlap(&term.range, range)) {
                continue;
            }
            let overlaps = |s: &Range<usize>| overlap(s, range);
            let sticks_out = |s: &Range<usize>| s.start < range.start || range.end < s.end;
            let entry = found.entry.map(|number| &glossary.entries()[number]);
            let is_kept = entry.is_some_and(Entry::is_kept);
            // There are no terms within addresses and placeholders.
            if stretches.iter().any(|s| overlaps(s) && sticks_out(s)) {
                if let Some(entry) = entry.filter(|_| is_kept) {
                    let forms = vec![text[range.clone()].to_owned()];
                    terms.push(PartTerm::new(range, Kind::Masked, entry, forms));
                }
                continue;
            }
            for number in found.forbidden {
                let entry = &glossary.entries()[number];
                let forms = with_capitals(&entry.targets);
                terms.push(PartTerm::new(range, Kind::Forbidden, entry, forms));
            }
            let Some(entry) = entry else { continue };
            let is_masked = is_kept
                || again.options.glossary_mode == GlossaryMode::Mask
                || stretches.iter().any(overlaps)
                || entry.targets.iter().any(|form| self.model().target.spellings(form).is_empty());
            if is_masked {
                stretches.retain(|stretch| !overlaps(stretch));
                stretches.push(range.clone());
                let surface = &text[range.clone()];
                let back = if is_kept { surface } else { &entry.targets[0] };
                let begins = !text[..range.start].contains(char::is_alphanumeric);
                let raises = begins && surface.starts_with(char::is_uppercase) && !entry.case;
                let back = if raises { capitalised(back) } else { back.to_owned() };
                terms.push(PartTerm::new(range, Kind::Masked, entry, vec![back]));
            } else {
                let targets = &entry.targets;
                let forms = if entry.case { targets.clone() } else { with_capitals(targets) };
                terms.push(PartTerm::new(range, Kind::Wanted, entry, forms));
            }
        }
        stretches.sort_by_key(|range| range.start);
        terms.sort_by_key(|term| term.range.start);
        terms
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The forms, with and without a capital at the start.
fn with_capitals(forms: &[String]) -> Vec<String> {
    let mut all = forms.to_vec();
    for form in forms.iter().map(|form| capitalised(form)) {
        if !all.contains(&form) {
            all.push(form);
        }
    }
    all
}

/// A text with its first letter as a capital.
fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}
