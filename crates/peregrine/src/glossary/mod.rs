//! Glossaries: prescribed translations of terms, and a report of each.
//!
//! A sentence with a term is translated without constraints first. If the translation lacks the
//! term at the place that attends to its source, the sentence is translated again by a constrained
//! search. If that fails or costs too much, the words aligned with the term are replaced. Terms
//! that are copied, and those that the model cannot spell, are masked as in carry-through. Each
//! term is reported.

mod place;
mod search;
pub(crate) mod term;

use std::ops::Range;

use peregrine_text::Entry;

pub use term::{How, Term};

use crate::Translator;
use crate::part::{Again, Part};
use term::{Kind, PartTerm};

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
