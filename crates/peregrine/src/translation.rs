//! The translation of a line.

use peregrine_decode::{Hypothesis, Verdict};
use peregrine_model::Search;
use peregrine_text::{Tokenizer, separator};

use crate::line::Part;
use crate::{Options, Translator};

/// The translation of one line.
#[derive(Debug, Clone, Default)]
pub struct Translation {
    /// The alternatives, best first, at least one. There may be fewer than wanted.
    pub alternatives: Vec<Alternative>,
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
}

/// One way to translate a line.
#[derive(Debug, Clone, Default)]
pub struct Alternative {
    /// The text.
    pub text: String,
    /// Its tokens, without the end symbol.
    pub tokens: Vec<String>,
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
    /// For each of the [`Self::token_scores`] its attention to the source tokens, frames included.
    pub alignment: Vec<Vec<f32>>,
    /// Whether it ended by itself; if not, it was cut at the length limit.
    pub ended: bool,
    /// Tokens that were scored, the end symbols of all parts included.
    pub scored: usize,
}

impl Translation {
    /// The best text.
    pub fn text(&self) -> &str {
        self.alternatives.first().map_or("", |best| &best.text)
    }

    /// The translation of an empty line.
    pub(crate) fn empty(members: usize, source_tokens: usize) -> Translation {
        let alternative = Alternative {
            token_scores: vec![0.0],
            member_scores: vec![0.0; members],
            ended: true,
            ..Alternative::default()
        };
        Translation {
            alternatives: vec![alternative],
            source_tokens,
            segments: 1,
            ..Translation::default()
        }
    }

    /// From the alternatives of a line's parts.
    pub(crate) fn from_parts(parts: &[Part], translator: &Translator, options: &Options) -> Self {
        let translation = |part: &Part| Translation {
            alternatives: translator.alternatives(part, options),
            source_tokens: part.source_tokens,
            segments: 1,
            cut: part.cut,
            copied: part.copied.is_some(),
            verdict: part.verdict,
        };
        let mut parts = parts.iter();
        let Some(first) = parts.next() else { return Translation::default() };
        let mut joined = translation(first);
        for part in parts {
            joined.append(translation(part), &part.between, &options.search);
        }
        joined
    }

    /// Appends the translation of what follows in the same line, behind the white space between them.
    /// `search` is how both were made. A part that is copied whole has one alternative, and goes with
    /// all of the other's.
    pub fn append(&mut self, next: Translation, between: &str, search: &Search) {
        let columns = self.source_tokens + next.source_tokens;
        let tight = between.is_empty() && self.copied && next.copied;
        match (self.is_copy(), next.is_copy()) {
            (true, false) => self.repeat(next.alternatives.len()),
            (false, true) => {}
            _ => self.alternatives.truncate(next.alternatives.len()),
        }
        for (rank, alternative) in self.alternatives.iter_mut().enumerate() {
            let Some(other) = next.alternatives.get(rank).or(next.alternatives.first()) else {
                continue;
            };
            let gap = match tight {
                true => "",
                false => separator(&alternative.text, between, &other.text),
            };
            alternative.append(other, gap, self.source_tokens, columns);
            alternative.score = search.final_score(alternative.path_score, alternative.scored);
        }
        self.source_tokens = columns;
        self.segments += next.segments;
        self.cut |= next.cut;
        self.copied |= next.copied;
        self.verdict.looped |= next.verdict.looped;
        self.verdict.endless |= next.verdict.endless;
    }

    /// Whether nothing of it was translated.
    fn is_copy(&self) -> bool {
        self.copied && self.source_tokens == 0
    }

    fn repeat(&mut self, count: usize) {
        if let Some(first) = self.alternatives.first().cloned() {
            self.alternatives.resize(count.max(1), first);
        }
    }
}

impl Alternative {
    pub(crate) fn from_hypothesis(hypothesis: &Hypothesis, target: &Tokenizer) -> Alternative {
        Alternative {
            text: target.decode(&hypothesis.tokens),
            tokens: hypothesis.tokens.iter().map(|&t| target.token(t).to_owned()).collect(),
            score: hypothesis.score,
            path_score: hypothesis.path_score,
            token_scores: hypothesis.token_scores.clone(),
            member_scores: hypothesis.member_scores.clone(),
            alignment: hypothesis.alignment.clone(),
            ended: hypothesis.ended,
            scored: hypothesis.tokens.len() + usize::from(hypothesis.ended),
        }
    }

    /// A copied text: one token of which a model says nothing.
    pub(crate) fn copy(text: &str, members: usize) -> Alternative {
        Alternative {
            text: text.to_owned(),
            tokens: vec![text.to_owned()],
            token_scores: vec![0.0],
            member_scores: vec![0.0; members],
            ended: true,
            ..Alternative::default()
        }
    }

    /// Appends the translation of a line's next part, whose source begins at token `offset` of
    /// `columns`, behind `gap`.
    fn append(&mut self, part: &Alternative, gap: &str, offset: usize, columns: usize) {
        self.text.push_str(gap);
        self.text.push_str(&part.text);
        // An end symbol within the line is no token of it.
        self.token_scores.truncate(self.tokens.len());
        self.alignment.truncate(self.tokens.len());
        self.tokens.extend_from_slice(&part.tokens);
        self.token_scores.extend_from_slice(&part.token_scores);
        self.path_score += part.path_score;
        self.scored += part.scored;
        self.member_scores.resize(part.member_scores.len(), 0.0);
        for (sum, score) in self.member_scores.iter_mut().zip(&part.member_scores) {
            *sum += score;
        }
        self.alignment.iter_mut().for_each(|row| row.resize(columns, 0.0));
        self.alignment.extend(part.alignment.iter().map(|row| {
            let mut whole = vec![0.0; columns];
            whole[offset..offset + row.len()].copy_from_slice(row);
            whole
        }));
        self.ended &= part.ended;
    }
}
