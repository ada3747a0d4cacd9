//! The translation of a line.

use std::ops::Range;

use peregrine_decode::{Hypothesis, Verdict};
use peregrine_model::Search;
use peregrine_text::{Decoded, Tokenizer, separator};

use crate::part::{Part, Parts};
use crate::sentence::{Sentence, Target};
use crate::{Flag, How, Options, Quality, Term, Translator};

/// The translation of one line.
#[derive(Debug, Clone, Default)]
pub struct Translation {
    /// The alternatives, best first, at least one. There may be fewer than wanted.
    pub alternatives: Vec<Alternative>,
    /// The sentences in which the text was translated, in its order; none if there was nothing to translate. A sentence that
    /// was too long for the model is several.
    pub sentences: Vec<Sentence>,
    /// Bytes of the request's text.
    pub source_bytes: usize,
    /// Source tokens, frame included.
    pub source_tokens: usize,
    /// The number of parts in which the line was translated: its sentences, if lines are split, and more if it
    /// was too long for the model.
    pub segments: usize,
    /// Whether a part was too long for the model and was cut.
    pub cut: bool,
    /// Whether a stretch without a place to cut was too long for the model and was copied.
    pub copied: bool,
    /// What the guards found. If anything, some part is the result of a further attempt.
    pub verdict: Verdict,
    /// The number of stretches that were carried through, see [`Carry`](crate::Carry).
    pub carried: usize,
    /// How many of those the model has lost or doubled: they stand where attention says, or at a guess.
    pub lost: usize,
    /// What a first model made of the text, if this one translated that, see [`Pivot`](crate::Pivot).
    pub pivot: Option<Box<Translation>>,
    /// The terms of a glossary in the text, in its order, and what came of them.
    pub terms: Vec<Term>,
}

/// One way to translate a line.
#[derive(Debug, Clone, Default)]
pub struct Alternative {
    /// The text.
    pub text: String,
    /// Its tokens, without the end symbol.
    pub tokens: Vec<String>,
    /// For each token the bytes of [`Self::text`] that it became, see [`Decoded`]. Empty unless scores or alignments are
    /// asked for.
    pub token_ranges: Vec<Range<usize>>,
    /// The score by which alternatives are ranked: the sum of the token scores after penalty and
    /// normalisation.
    pub score: f32,
    /// Sum of the token scores.
    pub path_score: f32,
    /// The natural logarithm of each token's probability, the end symbol's last if there is one. A line
    /// in several parts has only the last one's end symbol, so that scores and tokens correspond;
    /// [`Self::path_score`] counts all of them.
    pub token_scores: Vec<f32>,
    /// The sum of the log-probabilities of each network of an ensemble.
    pub member_scores: Vec<f32>,
    /// Whether it ended by itself; if not, it was cut at the length limit.
    pub ended: bool,
    /// Tokens that were scored, the end symbols of all parts included.
    pub scored: usize,
    /// How good it seems to be, if that is asked for.
    pub quality: Option<Quality>,
}

/// What stands between two translations of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap<'a> {
    /// What stands between the parts, fitted to the translations.
    Between(&'a str),
    /// This and nothing else.
    Exact(&'a str),
}

impl Translation {
    /// The best text.
    pub fn text(&self) -> &str {
        self.alternatives.first().map_or("", |best| &best.text)
    }

    /// How good the best text seems to be, if that is asked for.
    pub fn quality(&self) -> Option<&Quality> {
        self.alternatives.first()?.quality.as_ref()
    }

    /// The attention of each token of an alternative to all source tokens of the text, frames included: a row for each of
    /// its [token scores](Alternative::token_scores), with zeros for other sentences. A line in several parts has only the last
    /// one's end symbol. Empty unless alignments are asked for.
    ///
    /// The table has as many numbers as the text has source tokens, squared. [`Target::alignment`] has those of a sentence.
    pub fn alignment(&self, rank: usize) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        let mut offset = 0;
        for (number, sentence) in self.sentences.iter().enumerate() {
            let Some(target) = sentence.targets.get(rank) else { continue };
            let last = number + 1 == self.sentences.len();
            // An end symbol within the line is no token of it.
            let count = if last { target.alignment.len() } else { target.tokens.len() };
            rows.extend(target.alignment.iter().take(count).map(|row| {
                let mut whole = vec![0.0; self.source_tokens];
                whole[offset..offset + row.len()].copy_from_slice(row);
                whole
            }));
            offset += sentence.source_length;
        }
        rows
    }

    /// The translation of an empty line, or of several blank ones.
    pub(crate) fn empty(members: usize, source_tokens: usize, parts: &Parts) -> Translation {
        let alternative = Alternative {
            text: parts.after.clone(),
            token_scores: vec![0.0],
            member_scores: vec![0.0; members],
            ended: true,
            ..Alternative::default()
        };
        Translation {
            alternatives: vec![alternative],
            source_bytes: parts.source_bytes,
            source_tokens,
            segments: 1,
            ..Translation::default()
        }
    }

    /// From the alternatives of a line's parts.
    pub(crate) fn from_parts(parts: &Parts, translator: &Translator, options: &Options) -> Self {
        let mut list = parts.in_order();
        let Some(first) = list.next() else { return Translation::default() };
        let translation = |part: &Part| {
            let mut translation = translator.part_translation(part, options);
            if parts.keeps_lines {
                translation.put_on_one_line();
            }
            translation
        };
        let mut joined = translation(first);
        joined.sentences.reserve(parts.list.len() - 1);
        if parts.keeps_space {
            joined.indent(&first.between);
        }
        for part in list {
            let gap = if part.exact { Gap::Exact } else { Gap::Between };
            joined.join(translation(part), gap(&part.between), &options.search);
        }
        if !parts.after.is_empty() {
            joined.alternatives.iter_mut().for_each(|a| a.text.push_str(&parts.after));
        }
        joined.source_bytes = parts.source_bytes;
        joined
    }

    /// Replaces line ends that a model may put together: a line of the source is one of the translation.
    fn put_on_one_line(&mut self) {
        for alternative in self.alternatives.iter_mut().filter(|a| a.text.contains('\n')) {
            alternative.text = alternative.text.replace('\n', " ");
        }
    }

    /// Puts white space in front.
    fn indent(&mut self, before: &str) {
        for alternative in &mut self.alternatives {
            alternative.text.insert_str(0, before);
            for range in &mut alternative.token_ranges {
                *range = range.start + before.len()..range.end + before.len();
            }
        }
        let targets = self.sentences.iter_mut().flat_map(|sentence| &mut sentence.targets);
        targets.for_each(|target| target.shift(before.len(), 0));
        self.terms.iter_mut().for_each(|term| term.shift(0, before.len()));
    }

    /// Appends the translation of what follows in the same line, behind the white space between them. The two texts follow each
    /// other without a gap: that white space is at the end of the first or at the beginning of the second.
    /// `search` is how both were made. A part that is copied whole has one alternative, and goes with
    /// all of the other's.
    pub fn append(&mut self, mut next: Translation, between: &str, search: &Search) {
        if let (Some(pivot), Some(next)) = (&mut self.pivot, next.pivot.take()) {
            pivot.append(*next, between, search);
        }
        let bytes = self.source_bytes;
        next.sentences.iter_mut().for_each(|sentence| sentence.shift_source(bytes));
        next.terms.iter_mut().for_each(|term| term.shift(bytes, 0));
        self.source_bytes += next.source_bytes;
        // Text that keeps its white space has the gap at its ends.
        let held = self.text().ends_with(char::is_whitespace)
            || next.text().starts_with(char::is_whitespace);
        let gap = if held { Gap::Exact("") } else { Gap::Between(between) };
        self.join(next, gap, search);
    }

    /// Appends the translation of a later part of the same text.
    fn join(&mut self, mut next: Translation, gap: Gap<'_>, search: &Search) {
        let tight = gap == Gap::Between("") && self.copied && next.copied;
        match (self.is_copy(), next.is_copy()) {
            (true, false) => self.repeat(next.alternatives.len()),
            (false, true) => {}
            _ => self.alternatives.truncate(next.alternatives.len()),
        }
        let count = self.alternatives.len();
        next.sentences.iter_mut().for_each(|sentence| sentence.fit_targets(count));
        if self.sentences.first().is_some_and(|first| first.targets.len() != count) {
            self.sentences.iter_mut().for_each(|sentence| sentence.fit_targets(count));
        }
        for (rank, alternative) in self.alternatives.iter_mut().enumerate() {
            let Some(other) = next.alternatives.get(rank).or(next.alternatives.first()) else {
                continue;
            };
            let gap = match gap {
                Gap::Exact(between) => between,
                Gap::Between(_) if tight => "",
                Gap::Between(between) => separator(&alternative.text, between, &other.text),
            };
            let (bytes, tokens) = (alternative.text.len() + gap.len(), alternative.tokens.len());
            let targets = next.sentences.iter_mut().filter_map(|s| s.targets.get_mut(rank));
            targets.for_each(|target| target.shift(bytes, tokens));
            if rank == 0 {
                next.terms.iter_mut().for_each(|term| term.shift(0, bytes));
            }
            alternative.append(other, gap);
            alternative.score = search.final_score(alternative.path_score, alternative.scored);
        }
        // What was blank has the tokens of a frame and no sentence.
        self.source_tokens = match (self.sentences.is_empty(), next.sentences.is_empty()) {
            (true, false) => next.source_tokens,
            (_, true) => self.source_tokens,
            _ => self.source_tokens + next.source_tokens,
        };
        self.sentences.append(&mut next.sentences);
        self.terms.append(&mut next.terms);
        self.segments += next.segments;
        self.cut |= next.cut;
        self.copied |= next.copied;
        self.carried += next.carried;
        self.lost += next.lost;
        self.verdict.looped |= next.verdict.looped;
        self.verdict.endless |= next.verdict.endless;
    }

    /// Whether nothing of it was translated.
    fn is_copy(&self) -> bool {
        let copied = self.sentences.iter().all(|sentence| sentence.copied);
        copied && !self.sentences.is_empty() && self.source_tokens == 0
    }

    fn repeat(&mut self, count: usize) {
        if let Some(first) = self.alternatives.first().cloned() {
            self.alternatives.resize(count.max(1), first);
        }
    }
}

impl Translator {
    /// The translation of one part.
    fn part_translation(&self, part: &Part, options: &Options) -> Translation {
        let (mut alternatives, terms) = self.alternatives(part, options);
        let misses_terms = terms.iter().any(|term| term.how == How::Missing);
        for alternative in &mut alternatives {
            alternative.quality = self.quality(part, alternative, options);
            if let Some(quality) = &mut alternative.quality {
                quality.flags.set(Flag::Terms, misses_terms);
            }
        }
        let target = |(rank, alternative): (usize, &Alternative)| Target {
            text: 0..alternative.text.len(),
            tokens: 0..alternative.tokens.len(),
            score: alternative.score,
            path_score: alternative.path_score,
            alignment: match part.hypotheses.get(rank) {
                Some(hypothesis) if options.alignments => hypothesis.alignment.clone(),
                // Tokens and rows correspond, also where nothing was attended to.
                _ if options.alignments => vec![Vec::new(); alternative.tokens.len()],
                _ => Vec::new(),
            },
            ended: alternative.ended,
            quality: alternative.quality.clone(),
        };
        let sentence = Sentence {
            source: part.source.clone(),
            source_length: part.source_tokens,
            source_tokens: part.token_ranges.clone(),
            source_words: part.source_words.ranges.clone(),
            word_of_token: part.source_words.of_token.clone(),
            targets: alternatives.iter().enumerate().map(target).collect(),
            cut: part.cut,
            copied: part.copied.is_some(),
            verdict: part.verdict,
        };
        Translation {
            alternatives,
            sentences: vec![sentence],
            source_bytes: 0,
            source_tokens: part.source_tokens,
            segments: 1,
            cut: part.cut,
            copied: part.too_long,
            verdict: part.verdict,
            carried: part.carried,
            lost: part.lost,
            pivot: None,
            terms,
        }
    }
}

impl Alternative {
    /// A hypothesis as text, with the ranges of its tokens or without; with `text_only` without tokens too.
    pub(crate) fn from_hypothesis(
        hypothesis: &Hypothesis,
        target: &Tokenizer,
        ranges: bool,
        text_only: bool,
    ) -> Alternative {
        let Decoded { text, ranges } = match ranges {
            true => target.decode_with_ranges(&hypothesis.tokens),
            false => Decoded { text: target.decode(&hypothesis.tokens), ranges: Vec::new() },
        };
        Alternative {
            text,
            tokens: match text_only {
                true => Vec::new(),
                false => hypothesis.tokens.iter().map(|&t| target.token(t).to_owned()).collect(),
            },
            token_ranges: ranges,
            score: hypothesis.score,
            path_score: hypothesis.path_score,
            token_scores: match text_only {
                true => Vec::new(),
                false => hypothesis.token_scores.clone(),
            },
            member_scores: hypothesis.member_scores.clone(),
            ended: hypothesis.ended,
            scored: hypothesis.tokens.len() + usize::from(hypothesis.ended),
            quality: None,
        }
    }

    /// A copied text: one token of which a model says nothing.
    pub(crate) fn copy(text: &str, members: usize, ranges: bool) -> Alternative {
        Alternative {
            text: text.to_owned(),
            tokens: vec![text.to_owned()],
            token_ranges: ranges.then_some(0..text.len()).into_iter().collect(),
            token_scores: vec![0.0],
            member_scores: vec![0.0; members],
            ended: true,
            ..Alternative::default()
        }
    }

    /// Appends the translation of a line's next part behind `gap`.
    fn append(&mut self, part: &Alternative, gap: &str) {
        self.text.push_str(gap);
        let start = self.text.len();
        self.text.push_str(&part.text);
        let ranges = part.token_ranges.iter();
        self.token_ranges.extend(ranges.map(|range| start + range.start..start + range.end));
        // An end symbol within the line is no token of it.
        self.token_scores.truncate(self.tokens.len());
        self.tokens.extend_from_slice(&part.tokens);
        self.token_scores.extend_from_slice(&part.token_scores);
        self.path_score += part.path_score;
        self.scored += part.scored;
        self.member_scores.resize(part.member_scores.len(), 0.0);
        for (sum, score) in self.member_scores.iter_mut().zip(&part.member_scores) {
            *sum += score;
        }
        self.ended &= part.ended;
        if let (Some(quality), Some(next)) = (&mut self.quality, &part.quality) {
            quality.append(next);
        }
    }
}
