//! What comes back for a line.

use peregrine_decode::{Hypothesis, Verdict};
use peregrine_text::{Tokenizer, join};

use crate::line::Part;

/// The translation of one line.
#[derive(Debug, Clone, Default)]
pub struct Translation {
    /// Best first, at least one. A line's list may be shorter than asked for.
    pub alternatives: Vec<Alternative>,
    /// Source tokens, frame included.
    pub source_tokens: usize,
    /// Parts in which the line was translated: its sentences, if it was to be split, and more if it
    /// was too long for the model.
    pub segments: usize,
    /// Whether a part was too long for the model and was cut.
    pub cut: bool,
    /// What the guards found: the first attempt at some part ran away, and this is the second.
    pub verdict: Verdict,
}

/// One way to translate a line.
#[derive(Debug, Clone, Default)]
pub struct Alternative {
    /// The text.
    pub text: String,
    /// Its tokens, without the end symbol.
    pub tokens: Vec<String>,
    /// What alternatives are ranked by: the sum of the token scores after penalty and
    /// normalisation.
    pub score: f32,
    /// Sum of the token scores.
    pub path_score: f32,
    /// Natural logarithm of each token's probability, the end symbol's last if there is one.
    pub token_scores: Vec<f32>,
    /// Sum of the log-probabilities each network of an ensemble gave.
    pub member_scores: Vec<f32>,
    /// For each token and the end symbol its attention to the source tokens and theirs.
    pub alignment: Vec<Vec<f32>>,
    /// Whether it ended by itself; if not, it was cut at the length limit.
    pub ended: bool,
}

impl Translation {
    /// The best text.
    pub fn text(&self) -> &str {
        self.alternatives.first().map_or("", |best| &best.text)
    }

    /// The translation of nothing.
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
    pub(crate) fn from_parts(parts: &[Part], target: &Tokenizer) -> Self {
        let count = parts.iter().map(|part| part.hypotheses.len()).min().unwrap_or(0);
        let source_tokens = parts.iter().map(|part| part.source_tokens).sum();
        let alternatives = (0..count)
            .map(|rank| {
                let mut joined = Alternative { ended: true, ..Alternative::default() };
                let mut offset = 0;
                for part in parts {
                    let next = Alternative::from_hypothesis(&part.hypotheses[rank], target);
                    joined.append(next, &part.between, offset, source_tokens);
                    offset += part.source_tokens;
                }
                joined
            })
            .collect();
        let verdict = Verdict {
            looped: parts.iter().any(|part| part.verdict.looped),
            endless: parts.iter().any(|part| part.verdict.endless),
        };
        let cut = parts.iter().any(|part| part.cut);
        Translation { alternatives, source_tokens, segments: parts.len(), cut, verdict }
    }
}

impl Alternative {
    fn from_hypothesis(hypothesis: &Hypothesis, target: &Tokenizer) -> Alternative {
        Alternative {
            text: target.decode(&hypothesis.tokens),
            tokens: hypothesis.tokens.iter().map(|&t| target.token(t).to_owned()).collect(),
            score: hypothesis.score,
            path_score: hypothesis.path_score,
            token_scores: hypothesis.token_scores.clone(),
            member_scores: hypothesis.member_scores.clone(),
            alignment: hypothesis.alignment.clone(),
            ended: hypothesis.ended,
        }
    }

    /// Appends the translation of a line's next part, whose source begins at token `offset` of
    /// `source_tokens`, behind `between`.
    fn append(&mut self, part: Alternative, between: &str, offset: usize, source_tokens: usize) {
        if self.text.is_empty() {
            self.text = part.text;
        } else {
            self.text = join(&self.text, between, &part.text);
        }
        self.tokens.extend(part.tokens);
        self.score += part.score;
        self.path_score += part.path_score;
        self.token_scores.extend(part.token_scores);
        self.member_scores.resize(part.member_scores.len(), 0.0);
        for (sum, score) in self.member_scores.iter_mut().zip(part.member_scores) {
            *sum += score;
        }
        self.alignment.extend(part.alignment.into_iter().map(|row| {
            let mut whole = vec![0.0; source_tokens];
            whole[offset..offset + row.len()].copy_from_slice(&row);
            whole
        }));
        self.ended &= part.ended;
    }
}
