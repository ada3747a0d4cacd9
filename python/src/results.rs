//! Translations as Python gets them: dictionaries of plain values, with ranges in code points.

use std::ops::Range;

use peregrine::text::{Offsets, Unit};
use peregrine::{Flag, Flags, Options, Quality, Sentence, Translation};
use pyo3::prelude::*;

/// What of a translation is wanted.
#[derive(Clone, Copy)]
pub(crate) struct Want {
    scores: bool,
    attention: bool,
}

impl Want {
    pub(crate) fn new(options: &Options, attention: bool) -> Want {
        Want { scores: options.scores || options.quality || options.n_best > 1, attention }
    }
}

type Span = (usize, usize);

/// A sentence: its place in the source and in the best text, its score, quality and flags.
type Placed = (Span, Span, Option<f32>, Option<f32>, Vec<&'static str>);

/// A translation with all that is known of it.
#[derive(IntoPyObject)]
pub(crate) struct Full {
    source: String,
    alternatives: Vec<Alternative>,
    sentences: Vec<Placed>,
    /// For each term of a glossary its places, what was wanted, and how it got there.
    terms: Vec<(Span, Option<Span>, String, &'static str)>,
    pivot: Option<String>,
}

#[derive(IntoPyObject)]
struct Alternative {
    text: String,
    tokens: Vec<String>,
    score: Option<f32>,
    token_scores: Vec<f32>,
    /// For each word its place, score and quality.
    words: Vec<(Span, Option<f32>, Option<f32>)>,
    /// A word's place in the source, the place in the text of a word that attends to it, and how much.
    links: Vec<(Span, Span, f32)>,
    quality: Option<f32>,
    flags: Vec<&'static str>,
    attention: Vec<Vec<f32>>,
}

/// A range as Python counts.
fn span(offsets: &Offsets<'_>, bytes: &Range<usize>) -> Span {
    let range = offsets.range(bytes);
    (range.start, range.end)
}

fn names(flags: Flags) -> Vec<&'static str> {
    flags.iter().map(Flag::name).collect()
}

impl Full {
    /// All that is known of the translation of a text.
    pub(crate) fn new(source: &str, translation: &Translation, want: Want) -> Full {
        let from = Offsets::new(source, Unit::CodePoint);
        let to = Offsets::new(translation.text(), Unit::CodePoint);
        let ranks = 0..translation.alternatives.len();
        let term = |term: &peregrine::Term| {
            let target = term.target.as_ref().map(|range| span(&to, range));
            (span(&from, &term.source), target, term.wanted.clone(), term.how.name())
        };
        Full {
            source: source.to_owned(),
            alternatives: ranks.map(|r| Alternative::new(&from, translation, r, want)).collect(),
            sentences: translation
                .sentences
                .iter()
                .map(|s| sentence(s, &from, &to, want))
                .collect(),
            terms: translation.terms.iter().map(term).collect(),
            pivot: translation.pivot.as_ref().map(|first| first.text().to_owned()),
        }
    }
}

/// What a sentence became in the best text.
fn sentence(sentence: &Sentence, from: &Offsets<'_>, to: &Offsets<'_>, want: Want) -> Placed {
    let target = sentence.targets.first().cloned().unwrap_or_default();
    let quality = target.quality.as_ref();
    let mut flags = quality.map(|quality| quality.flags).unwrap_or_default();
    flags.set(Flag::Looped, sentence.verdict.looped);
    flags.set(Flag::Endless, sentence.verdict.endless);
    flags.set(Flag::Cut, sentence.cut);
    let score = (want.scores && !sentence.copied).then_some(target.score);
    let places = (span(from, &sentence.source), span(to, &target.text));
    (places.0, places.1, score, quality.and_then(Quality::score), names(flags))
}

impl Alternative {
    fn new(from: &Offsets<'_>, translation: &Translation, rank: usize, want: Want) -> Alternative {
        let alternative = &translation.alternatives[rank];
        let to = Offsets::new(&alternative.text, Unit::CodePoint);
        let mut flags = alternative.quality.as_ref().map(|q| q.flags).unwrap_or_default();
        flags.set(Flag::Looped, translation.verdict.looped);
        flags.set(Flag::Endless, translation.verdict.endless);
        flags.set(Flag::Cut, translation.cut);
        flags.set(Flag::Lost, translation.lost > 0);
        let words = translation
            .words(rank)
            .into_iter()
            .map(|word| (span(&to, &word.range), want.scores.then_some(word.score), word.quality));
        let links = translation.word_alignments(rank).into_iter();
        let links = links.map(|l| (span(from, &l.source), span(&to, &l.target), l.weight));
        Alternative {
            text: alternative.text.clone(),
            tokens: alternative.tokens.clone(),
            score: want.scores.then_some(alternative.score),
            token_scores: if want.scores { alternative.token_scores.clone() } else { Vec::new() },
            words: words.collect(),
            links: links.collect(),
            quality: alternative.quality.as_ref().and_then(Quality::score),
            flags: names(flags),
            attention: if want.attention { translation.alignment(rank) } else { Vec::new() },
        }
    }
}
