//! Pivoting: two models in sequence, for a pair of languages that no model translates.
//!
//! Sentences are split once, in the source; their translations by the first model are the sentences
//! of the second one. Carry-through works for each model: text that the first model cannot spell is
//! unchanged in the pivot text.

use std::ops::Range;
use std::sync::mpsc::sync_channel;

use peregrine_text::Glossary;

use crate::sentence::Sentence;
use crate::stream::memory_in_use;
use crate::{
    Answer, Error, GlossaryMode, How, Line, Options, Request, StreamOptions, Summary, Term,
    Translation, Translator,
};

/// Two models in sequence: the second translates the output of the first.
///
/// ```
/// use peregrine::{Pivot, Request, Translator};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// # let (chinese_english, english_portuguese) = (Translator::builtin()?, Translator::builtin()?);
/// let pivot = Pivot::new(&chinese_english, &english_portuguese);
/// let options = pivot.options(&english_portuguese.options());
/// let translation = pivot.translate_batch(&[Request::new("42")], &options)?.remove(0);
/// let first = translation.pivot.expect("what the first model made of it");
/// assert_eq!((first.source_bytes, translation.source_bytes), (2, 2));
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Clone)]
pub struct Pivot {
    first: Translator,
    second: Translator,
}

/// The options of the two models of a [`Pivot`].
#[derive(Debug, Clone)]
pub struct Legs<T> {
    /// The options of the first model.
    pub first: T,
    /// The options of the second model.
    pub second: T,
}

/// The most lines between the two models of a stream.
const BETWEEN: usize = 1024;

impl Pivot {
    /// A pivot of two models. The target language of the first is the source language of the
    /// second.
    pub fn new(first: &Translator, second: &Translator) -> Pivot {
        Pivot { first: first.clone(), second: second.clone() }
    }

    /// The options of both models, from those of the second. The first model copies the terms of a
    /// glossary, because it does not know their targets, and the second one masks them, because it
    /// cannot read them.
    pub fn options(&self, second: &Options) -> Legs<Options> {
        let first = self.first.options().before(second);
        Legs { first, second: second.clone().with_glossary_mode(GlossaryMode::Mask) }
    }

    /// Translates texts on this thread; the translations are in the same order. The options of a
    /// request are ignored.
    pub fn translate_batch(
        &self,
        requests: &[Request<'_>],
        options: &Legs<Options>,
    ) -> Result<Vec<Translation>, Error> {
        let sources: Vec<Request<'_>> =
            requests.iter().map(|r| Request { prefix: None, options: None, ..*r }).collect();
        let firsts = self.first.translate_batch(&sources, &options.first)?;
        let places = |first: &Translation| (first.target_sentences(), first.kept_places());
        let places: Vec<_> = firsts.iter().map(places).collect();
        let pivots = requests.iter().zip(&firsts).zip(&places);
        let pivots: Vec<Request<'_>> = pivots
            .map(|((request, first), (sentences, keep))| {
                let sentences = Some(sentences.as_slice());
                Request { text: first.text(), sentences, keep, options: None, ..*request }
            })
            .collect();
        let seconds = self.second.translate_batch(&pivots, &options.second)?;
        Ok(seconds.into_iter().zip(firsts).map(|(second, first)| second.through(first)).collect())
    }

    /// Translates lines as they arrive, see [`Translator::stream`]. Both models run at the same
    /// time, each with its own workers.
    pub fn stream<T: Send, E: From<Error> + Send>(
        &self,
        lines: impl Iterator<Item = Result<Line<T>, E>> + Send,
        options: &Legs<StreamOptions<'_>>,
        mut write: impl FnMut(Answer<T>) -> Result<(), E>,
    ) -> Result<Summary, E> {
        let mut options = options.clone();
        for leg in [&mut options.first, &mut options.second] {
            leg.workers.memory = leg.workers.memory.map(half_of_free);
        }
        let (send, receive) = sync_channel::<Result<Line<Between<T>>, E>>(BETWEEN);
        // The prefix belongs to the second model's translation.
        let lines = lines.map(|line| {
            let Line { text, prefix, tag, sentences, keep } = line.map_err(Stop::Error)?;
            Ok(Line { text, prefix: None, tag: (prefix, tag), sentences, keep })
        });
        std::thread::scope(|scope| {
            let first_options = &options.first;
            let first = scope.spawn(move || {
                let done = self.first.stream(lines, first_options, |answer| {
                    let (prefix, tag) = answer.tag;
                    let first = answer.translation;
                    let line = Line {
                        text: first.text().to_owned(),
                        prefix,
                        sentences: Some(first.target_sentences()),
                        keep: first.kept_places(),
                        tag: Between { tag, first },
                    };
                    // If the channel is closed, the second model has stopped.
                    send.send(Ok(line)).map_err(|_| Stop::Ended)
                });
                match done {
                    Err(Stop::Error(error)) => drop(send.send(Err(error))),
                    Ok(_) | Err(Stop::Ended) => {}
                }
            });
            let done = self.second.stream(receive.into_iter(), &options.second, |answer| {
                let Answer { number, tag: Between { tag, first }, translation, more } = answer;
                write(Answer { number, tag, translation: translation.through(first), more })
            });
            // Propagate a panic of the first model.
            first.join().unwrap_or_else(|reason| std::panic::resume_unwind(reason));
            done
        })
    }
}

/// A memory limit that leaves half of the free memory to the other model.
fn half_of_free(memory: u64) -> u64 {
    let used = memory_in_use().unwrap_or(0);
    used + memory.saturating_sub(used) / 2
}

/// A line between two models.
struct Between<T> {
    tag: T,
    first: Translation,
}

/// The reason why the first model's stream ends early.
enum Stop<E> {
    Error(E),
    /// The second model's stream has ended.
    Ended,
}

impl<E: From<Error>> From<Error> for Stop<E> {
    fn from(error: Error) -> Stop<E> {
        Stop::Error(error.into())
    }
}

impl Options {
    /// These options for the first model, with the relevant ones of the second.
    fn before(mut self, second: &Options) -> Options {
        self.search.beam = second.search.beam;
        self.scores = second.scores;
        self.alignments = second.alignments;
        self.shortlist = second.shortlist;
        self.split = second.split;
        self.guard = second.guard;
        self.refuse_long = second.refuse_long;
        self.carry = second.carry;
        self.quality = second.quality;
        self.glossary.clone_from(&second.glossary);
        self.keeping_terms()
    }

    /// The same options, with the terms of the glossary copied: for the first model of a pivot,
    /// which does not know their targets.
    pub fn keeping_terms(self) -> Options {
        let glossary = self.glossary.as_ref().map(Glossary::kept);
        self.with_glossary(glossary).with_glossary_mode(GlossaryMode::Mask)
    }
}

impl Translation {
    /// The byte range of each sentence in the best translation.
    pub fn target_sentences(&self) -> Vec<Range<usize>> {
        let targets = self.sentences.iter().filter_map(|sentence| sentence.targets.first());
        targets.map(|target| target.text.clone()).collect()
    }

    /// The byte ranges of the best translation that the request keeps unchanged, also in a further
    /// translation. Terms of a glossary are searched for again.
    pub fn kept_places(&self) -> Vec<Range<usize>> {
        let kept = self.terms.iter().filter(|term| term.how == How::Kept);
        let mut places: Vec<_> = kept.filter_map(|term| term.target.clone()).collect();
        places.sort_by_key(|place| place.start);
        places
    }

    /// Combines this translation of a pivot text with `first`, the translation that made it. Source
    /// ranges refer to the original source, and attention is the product of both models' attention.
    /// `first` becomes [`Translation::pivot`].
    pub fn through(mut self, first: Translation) -> Translation {
        for sentence in &mut self.sentences {
            sentence.see_through(&first);
        }
        // The first model has copied the terms.
        for term in &mut self.terms {
            let same = |kept: &&Term| {
                kept.target.as_ref().is_some_and(|range| overlap(range, &term.source) > 0)
            };
            if let Some(kept) = first.terms.iter().find(same) {
                term.source = kept.source.clone();
            }
        }
        // Flags of the pivot text apply to its translation too.
        if let Some(before) = first.quality() {
            for quality in self.alternatives.iter_mut().filter_map(|a| a.quality.as_mut()) {
                quality.flags = quality.flags.union(before.flags);
            }
        }
        self.source_bytes = first.source_bytes;
        self.source_tokens = match self.sentences.is_empty() {
            true => first.source_tokens,
            false => self.sentences.iter().map(|sentence| sentence.source_length).sum(),
        };
        self.cut |= first.cut;
        self.copied |= first.copied;
        self.carried = self.carried.max(first.carried);
        self.lost += first.lost;
        self.verdict.looped |= first.verdict.looped;
        self.verdict.endless |= first.verdict.endless;
        self.pivot = Some(Box::new(first));
        self
    }
}

impl Sentence {
    /// Replaces words and tokens of the pivot text by those of the source.
    fn see_through(&mut self, first: &Translation) {
        let overlaps = |sentence: &&Sentence| {
            sentence.targets.first().is_some_and(|target| overlap(&target.text, &self.source) > 0)
        };
        let from: Vec<&Sentence> = first.sentences.iter().filter(overlaps).collect();
        let (Some(begin), Some(end)) = (from.first(), from.last()) else { return };
        let rows = self.rows_through(&from, first);
        for target in &mut self.targets {
            for row in &mut target.alignment {
                *row = product(row, &rows, from.iter().map(|s| s.source_length).sum());
            }
        }
        self.source = begin.source.start..end.source.end;
        self.source_tokens.clear();
        self.source_words.clear();
        self.word_of_token.clear();
        for sentence in &from {
            let words = self.source_words.len();
            self.source_tokens.extend_from_slice(&sentence.source_tokens);
            self.source_words.extend_from_slice(&sentence.source_words);
            let shifted = sentence.word_of_token.iter().map(|word| word.map(|word| word + words));
            self.word_of_token.extend(shifted);
        }
        self.source_length = from.iter().map(|sentence| sentence.source_length).sum();
    }

    /// For each pivot token its attention to the source tokens of `from`: that of the first model's tokens in the same bytes, by
    /// the share of each. A symbol of the frame has that of the end symbol.
    fn rows_through(&self, from: &[&Sentence], first: &Translation) -> Vec<Vec<f32>> {
        let width = from.iter().map(|sentence| sentence.source_length).sum();
        let mut known: Vec<(Range<usize>, Vec<f32>)> = Vec::new();
        let mut last = vec![1.0 / f32::max(width as f32, 1.0); width];
        let mut offset = 0;
        for sentence in from {
            let target = &sentence.targets[0];
            let ranges =
                first.alternatives[0].token_ranges.get(target.tokens.clone()).unwrap_or_default();
            let wide = |row: &[f32]| {
                let mut wide = vec![0.0; width];
                wide[offset..offset + row.len()].copy_from_slice(row);
                wide
            };
            let rows = target.alignment.iter().filter(|row| !row.is_empty());
            known.extend(ranges.iter().cloned().zip(rows.map(|row| wide(row))));
            let is_end = |row: &&Vec<f32>| !row.is_empty() && target.alignment.len() > ranges.len();
            if let Some(end) = target.alignment.last().filter(is_end) {
                last = wide(end);
            }
            offset += sentence.source_length;
        }
        let through = |range: &Range<usize>| {
            let mut sum = vec![0.0; width];
            let mut total = 0.0;
            for (bytes, row) in &known {
                let share = overlap(bytes, range) as f32;
                if share > 0.0 {
                    total += share;
                    sum.iter_mut().zip(row).for_each(|(sum, weight)| *sum += share * weight);
                }
            }
            if total == 0.0 {
                return last.clone();
            }
            sum.iter_mut().for_each(|weight| *weight /= total);
            sum
        };
        self.source_tokens.iter().map(through).collect()
    }
}

/// Bytes that two ranges share.
fn overlap(a: &Range<usize>, b: &Range<usize>) -> usize {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

/// A row of attention to pivot tokens as one to source tokens.
fn product(row: &[f32], rows: &[Vec<f32>], width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; width];
    for (weight, row) in row.iter().zip(rows) {
        sum.iter_mut().zip(row).for_each(|(sum, other)| *sum += weight * other);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alternative;
    use crate::sentence::Target;

    /// A translation of one sentence: byte ranges of source tokens and target tokens, and attention.
    fn translation(
        source: &[Range<usize>],
        target: &[Range<usize>],
        attention: &[&[f32]],
    ) -> Translation {
        let length = |ranges: &[Range<usize>]| ranges.last().map_or(0, |range| range.end);
        let sentence = Sentence {
            source: 0..length(source),
            source_length: source.len() + 1,
            source_tokens: source
                .iter()
                .cloned()
                .chain(std::iter::once(length(source)..length(source)))
                .collect(),
            source_words: source.to_vec(),
            word_of_token: (0..source.len()).map(Some).chain([None]).collect(),
            targets: vec![Target {
                text: 0..length(target),
                tokens: 0..target.len(),
                alignment: attention.iter().map(|row| row.to_vec()).collect(),
                ..Target::default()
            }],
            ..Sentence::default()
        };
        let text = "x".repeat(length(target));
        let best = Alternative { text, token_ranges: target.to_vec(), ..Alternative::default() };
        Translation {
            alternatives: vec![best],
            sentences: vec![sentence],
            source_bytes: length(source),
            source_tokens: source.len() + 1,
            ..Translation::default()
        }
    }

    #[test]
    fn attention_goes_through_the_pivot() {
        // Two source tokens; the pivot text is one token of the first model and two of the second.
        let first = translation(
            &[0..2, 2..4],
            &[0..3, 3..4],
            &[&[0.5, 0.5, 0.0], &[0.0, 0.75, 0.25], &[0.0, 0.0, 1.0]],
        );
        let whole: Vec<Range<usize>> = std::iter::once(0..6).collect();
        let second = translation(&[0..2, 2..4], &whole, &[&[0.5, 0.25, 0.25], &[0.0, 0.0, 1.0]]);
        let whole = second.through(first);
        let rows = &whole.sentences[0].targets[0].alignment;
        // The second pivot token has a byte of each of the first model's: [0.25, 0.625, 0.125].
        assert_eq!(
            rows[0],
            [0.5 * 0.5 + 0.25 * 0.25, 0.5 * 0.5 + 0.25 * 0.625, 0.25 * 0.125 + 0.25]
        );
        assert_eq!(rows[1], [0.0, 0.0, 1.0]);
        assert_eq!((whole.source_bytes, whole.source_tokens), (4, 3));
        assert!(whole.pivot.is_some());
    }

    /// A model that copies changes nothing of an alignment.
    #[test]
    fn a_copying_leg_changes_nothing() {
        let attention: [&[f32]; 3] = [&[0.2, 0.3, 0.5], &[0.6, 0.4, 0.0], &[0.0, 0.1, 0.9]];
        let same: [&[f32]; 3] = [&[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0], &[0.0, 0.0, 1.0]];
        let (source, target) = ([0..2, 2..5], [0..1, 1..9]);
        let other = || translation(&source, &target, &attention);
        let before = other().through(translation(&source, &source, &same));
        let behind = translation(&target, &target, &same).through(other());
        for whole in [before, behind] {
            assert_eq!(whole.sentences[0].targets[0].alignment, attention);
        }
    }
}
