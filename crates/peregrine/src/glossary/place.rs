//! The places of terms in a translation, and the words aligned with missing terms.

use std::ops::Range;

use peregrine_decode::{Hypothesis, LEAST_ATTENTION};
use peregrine_text::carry::{Replacement, Rewritten};
use peregrine_text::{Decoded, Entry, Glossary, Tokenizer, Words, trim_range};

use super::{How, Kind, PartTerm, capitalised};
use crate::Alternative;
use crate::part::Carrying;

/// At most so many words between two aligned with a term also belong to it.
const MOST_BETWEEN: usize = 1;

/// A word is aligned with a term if at least this share of its attention is on the term's source.
const MOSTLY: f32 = 0.5;

impl Carrying {
    /// The columns of the attention matrix for a byte range of the part's text.
    pub(super) fn columns(&self, stretch: &Range<usize>) -> Range<usize> {
        let carried = &self.carried;
        let overlaps = |span: &Range<usize>| {
            let old = carried.source_range(&trim_range(carried.text(), span));
            old.start < stretch.end && stretch.start < old.end
        };
        let first = self.spans.iter().position(overlaps);
        let last = self.spans.iter().rposition(overlaps);
        match (first, last) {
            (Some(first), Some(last)) => self.begins + first..self.begins + last + 1,
            _ => 0..0,
        }
    }

    /// The columns of the attention matrix for words, without the frame.
    pub(super) fn all_columns(&self) -> Range<usize> {
        self.begins..self.begins + self.spans.len()
    }

    /// The share of some tokens' attention to words that is on a byte range of the part's text.
    fn share(&self, rows: &[Vec<f32>], stretch: &Range<usize>) -> f32 {
        let sum = |columns: &Range<usize>| {
            let row = |row: &Vec<f32>| row.get(columns.clone()).map_or(0.0, |row| row.iter().sum());
            rows.iter().map(row).sum::<f32>()
        };
        let all = sum(&self.all_columns());
        if all > 0.0 { sum(&self.columns(stretch)) / all } else { 1.0 }
    }

    /// The places of prescribed terms in a translation. A place must have at least the share
    /// `least` of its attention on the term's source, and belongs to one term only.
    pub(super) fn locate(
        &self,
        terms: &[PartTerm],
        output: &Decoded,
        hypothesis: &Hypothesis,
        least: f32,
    ) -> Vec<Option<Range<usize>>> {
        let mut places = vec![None; terms.len()];
        let mut pairs = Vec::new();
        for found in places_of(terms, Kind::Wanted, &output.text) {
            let surface = output.text[found.clone()].to_lowercase();
            let overlaps =
                |token: &Range<usize>| token.start < found.end && found.start < token.end;
            let first = output.ranges.iter().position(overlaps).unwrap_or(0);
            let last = output.ranges.iter().rposition(overlaps).map_or(0, |last| last + 1);
            let rows = hypothesis.alignment.get(first..last).unwrap_or_default();
            for (number, term) in terms.iter().enumerate() {
                let is_form = |form: &String| form.to_lowercase() == surface;
                let is_wanted = term.kind == Kind::Wanted && term.how != How::Replaced;
                if is_wanted && term.forms.iter().any(is_form) {
                    pairs.push((self.share(rows, &term.range), number, found.clone()));
                }
            }
        }
        pairs.retain(|(share, ..)| *share >= least);
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, number, place) in pairs {
            if places[number].is_none() && !places.contains(&Some(place.clone())) {
                places[number] = Some(place);
            }
        }
        places
    }

    /// The words of a translation that are aligned with the terms that have no place.
    pub(super) fn words_for(
        &self,
        terms: &[PartTerm],
        places: &[Option<Range<usize>>],
        output: &Decoded,
        hypothesis: &Hypothesis,
    ) -> Vec<Option<Range<usize>>> {
        let words = Words::new(&output.text, &output.ranges);
        let overlaps = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
        let mut taken: Vec<Range<usize>> = places.iter().flatten().cloned().collect();
        let mut found = vec![None; terms.len()];
        for (number, term) in terms.iter().enumerate() {
            if term.kind != Kind::Wanted || places[number].is_some() {
                continue;
            }
            let share = |(word, range): (usize, &Range<usize>)| {
                let rows = self.rows_of(word, &words, output, hypothesis);
                let is_mask = || self.carried.stretches().any(|s| self.share(&rows, s) >= MOSTLY);
                let is_taken = taken.iter().any(|taken| overlaps(taken, range));
                if rows.is_empty() || is_taken || is_mask() {
                    0.0
                } else {
                    self.share(&rows, &term.range)
                }
            };
            let shares: Vec<f32> = words.ranges.iter().enumerate().map(share).collect();
            let run = heaviest_run(&shares);
            let run = run.map(|run| words.ranges[run.start].start..words.ranges[run.end - 1].end);
            let run = run.map(|run| without_marks(&output.text, run)).filter(|run| !run.is_empty());
            taken.extend(run.clone());
            found[number] = run;
        }
        found
    }

    /// The attention rows of a word's tokens, without punctuation, which attends to the punctuation
    /// of the source.
    fn rows_of(
        &self,
        word: usize,
        words: &Words,
        output: &Decoded,
        hypothesis: &Hypothesis,
    ) -> Vec<Vec<f32>> {
        let tokens = words.of_token.iter().zip(&output.ranges).zip(&hypothesis.alignment);
        let own = tokens.filter(|((of, range), _)| {
            **of == Some(word) && output.text[(*range).clone()].contains(char::is_alphanumeric)
        });
        own.map(|(_, row)| row.clone()).collect()
    }

    /// Restores carried text in a translation and inserts replacing terms. Returns the places of
    /// the terms.
    pub(crate) fn restore(
        &self,
        terms: &[PartTerm],
        alternative: &mut Alternative,
        hypothesis: &Hypothesis,
        target: &Tokenizer,
    ) -> Vec<Option<Range<usize>>> {
        let mut links = self.links(hypothesis, target);
        let mut places = vec![None; terms.len()];
        let mut replaced = Rewritten::default();
        if !terms.is_empty() {
            let mut output = target.decode_with_ranges(&hypothesis.tokens);
            if output.text != alternative.text {
                // Unknown words were replaced, so token ranges are no longer valid.
                output = Decoded { text: alternative.text.clone(), ranges: Vec::new() };
            }
            places = self.locate(terms, &output, hypothesis, 0.0);
            replaced = self.replace(terms, &mut places, &output, hypothesis);
            links.iter_mut().for_each(|link| link.target = replaced.new_range(&link.target));
        } else {
            replaced.text.clone_from(&alternative.text);
        }
        let restored = self.carried.restore(&replaced.text, &links);
        let final_range =
            |range: &Range<usize>| restored.text.new_range(&replaced.new_range(range));
        let mut end = 0;
        for range in &mut alternative.token_ranges {
            let new = final_range(range);
            *range = new.start.max(end)..new.end.max(end);
            end = range.end;
        }
        let masked = |term: &PartTerm| {
            let stretches = self.carried.stretches().zip(&restored.places);
            let mut holding =
                stretches.filter(|(s, _)| s.start <= term.range.start && term.range.end <= s.end);
            let (stretch, place) = holding.next()?;
            let back = term.back()?;
            let start = place.as_ref()?.start + term.range.start - stretch.start;
            let lost = || restored.text.text.find(back).map(|start| start..start + back.len());
            Some(start..start + back.len())
                .filter(|r| restored.text.text.get(r.clone()) == Some(back))
                .or_else(lost)
        };
        let place = |(term, place): (&PartTerm, &Option<Range<usize>>)| match term.kind {
            Kind::Wanted => place.as_ref().map(final_range),
            Kind::Masked => masked(term),
            Kind::Forbidden => None,
        };
        let places = terms.iter().zip(&places).map(place).collect();
        alternative.text = restored.text.text.clone();
        places
    }

    /// Replaces words by terms.
    fn replace(
        &self,
        terms: &[PartTerm],
        places: &mut [Option<Range<usize>>],
        output: &Decoded,
        hypothesis: &Hypothesis,
    ) -> Rewritten {
        let mut replacements: Vec<Replacement<'_>> = Vec::new();
        if terms.iter().any(|term| term.how == How::Replaced) && !output.ranges.is_empty() {
            let words = self.words_for(terms, places, output, hypothesis);
            for ((term, place), words) in terms.iter().zip(places).zip(words) {
                let Some(words) = words.filter(|_| term.how == How::Replaced) else { continue };
                let begins = !output.text[..words.start].contains(char::is_alphanumeric);
                let raises = begins && output.text[words.clone()].starts_with(char::is_uppercase);
                let form = if raises { capitalised(&term.forms[0]) } else { term.forms[0].clone() };
                *place = Some(words.clone());
                replacements.push((words, form.into()));
            }
        }
        replacements.sort_by_key(|(range, _)| range.start);
        Rewritten::new(&output.text, &replacements)
    }
}

/// The places of the forms of terms of one kind in a text.
pub(super) fn places_of(terms: &[PartTerm], kind: Kind, text: &str) -> Vec<Range<usize>> {
    let terms = terms.iter().filter(|term| term.kind == kind);
    let entries = terms.flat_map(|term| {
        let entry = |form: &String| Entry { prefix: term.is_prefix, ..Entry::new(form, "") };
        term.forms.iter().map(entry)
    });
    let forms = Glossary::new(entries).unwrap_or_default();
    forms.find(text).into_iter().map(|found| found.range).collect()
}

/// The run of words with most of their attention on a term that has the greatest sum of shares; if
/// there is none, the word with the greatest share.
fn heaviest_run(shares: &[f32]) -> Option<Range<usize>> {
    let mut runs: Vec<(Range<usize>, f32)> = Vec::new();
    for (number, share) in shares.iter().enumerate().filter(|(_, share)| **share >= MOSTLY) {
        match runs.last_mut() {
            Some((run, sum)) if number - run.end <= MOST_BETWEEN => {
                run.end = number + 1;
                *sum += share;
            }
            _ => runs.push((number..number + 1, *share)),
        }
    }
    let best = runs.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(run, _)| run);
    best.or_else(|| {
        let most = (0..shares.len()).max_by(|&a, &b| shares[a].total_cmp(&shares[b]))?;
        (shares[most] >= LEAST_ATTENTION).then_some(most..most + 1)
    })
}

/// A byte range of a text without punctuation at its ends.
fn without_marks(text: &str, range: Range<usize>) -> Range<usize> {
    let inside = &text[range.clone()];
    let start = range.start + inside.len()
        - inside.trim_start_matches(|c: char| !c.is_alphanumeric()).len();
    let inside = inside.trim_matches(|c: char| !c.is_alphanumeric());
    start..start + inside.len()
}
