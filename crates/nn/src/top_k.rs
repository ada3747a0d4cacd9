//! The k best words of a row (top-k) with their log-probabilities: the query to the output layer,
//! its answer, and a plain version of the search ([`choose`]) for ensembles, whose scores are sums
//! over networks, and for backends that have nothing better.

use crate::device_beam::DeviceBeam;

/// How words are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// Scores are logits. That is enough to find the best word and needs no softmax.
    Logit,
    /// Scores are log-probabilities over all words.
    LogProbability,
    /// Scores are log-probabilities over the words that are not banned.
    LogProbabilityOfAllowed,
}

/// The top-k request of one row.
#[derive(Debug, Clone, Copy)]
pub struct RowRequest<'a> {
    /// The number of words, k.
    pub count: usize,
    /// Words that may not be chosen, sorted.
    pub banned: &'a [u32],
    /// If set, the result is this word and its score.
    pub forced: Option<u32>,
    /// The sum of the hypothesis' scores so far, if it is known and there are
    /// [device beams](TopKQuery::device_beams).
    pub path: f32,
    /// How the row's words are scored.
    pub scoring: Scoring,
}

/// The top-k query of all rows. Rows may have different requests: each has the result, to the last
/// bit, that it would have alone.
#[derive(Clone, Copy)]
pub struct TopKQuery<'a> {
    /// The request of each row.
    pub requests: &'a [RowRequest<'a>],
    /// The beam search that the device does by itself, sentence by sentence in the order of their rows. If given,
    /// the next step may go on from its places.
    pub device_beams: Option<&'a [DeviceBeam]>,
}

/// A word and its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The word.
    pub token: u32,
    /// The word's score, see [`Scoring`].
    pub score: f32,
}

/// The top-k words of each row, best first; of equals the one with the lower id first.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    choices: Vec<Choice>,
    ends: Vec<usize>,
}

impl Choices {
    /// Removes all rows.
    pub fn clear(&mut self) {
        self.choices.clear();
        self.ends.clear();
    }

    /// Adds the choices of the next row.
    pub fn push(&mut self, choices: impl IntoIterator<Item = Choice>) {
        self.choices.extend(choices);
        self.ends.push(self.choices.len());
    }

    /// The choices of row `row`.
    pub fn of(&self, row: usize) -> &[Choice] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.choices[start..self.ends[row]]
    }
}

/// Scores of the words of one row; `words` names them, or word i is column i.
#[derive(Clone, Copy)]
pub struct Candidates<'a> {
    /// The score of each word.
    pub scores: &'a [f32],
    /// The words, sorted ids, as many as `scores`.
    pub words: Option<&'a [u32]>,
}

impl Candidates<'_> {
    /// The column of a word.
    pub fn column(&self, word: u32) -> Option<usize> {
        match self.words {
            None => Some(word as usize).filter(|&c| c < self.scores.len()),
            Some(words) => words.binary_search(&word).ok(),
        }
    }

    /// The word of a column.
    pub fn word(&self, column: usize) -> u32 {
        self.words.map_or(column as u32, |words| words[column])
    }
}

/// Finds the top-k words of one row, best first. `best` is cleared first.
pub fn choose(candidates: Candidates<'_>, request: &RowRequest<'_>, best: &mut Vec<Choice>) {
    best.clear();
    let shift = match request.scoring {
        Scoring::Logit => 0.0,
        Scoring::LogProbability => log_sum_exp(candidates.scores),
        Scoring::LogProbabilityOfAllowed => log_sum_exp_of_allowed(candidates, request.banned),
    };
    if let Some(token) = request.forced {
        let score = candidates.column(token).map_or(f32::MIN, |c| candidates.scores[c]) - shift;
        best.push(Choice { token, score });
        return;
    }
    largest(candidates, request, best);
    for choice in best {
        choice.score -= shift;
    }
}

/// The `ask.count` largest scores. One pass, which keeps a short sorted list: nearly every score
/// is below its last entry and costs one comparison.
fn largest(candidates: Candidates<'_>, request: &RowRequest<'_>, best: &mut Vec<Choice>) {
    let mut floor = f32::NEG_INFINITY;
    for (column, &score) in candidates.scores.iter().enumerate() {
        let full = best.len() == request.count;
        if (full && score <= floor) || score.is_nan() || request.count == 0 {
            continue;
        }
        let token = candidates.word(column);
        if request.banned.binary_search(&token).is_ok() {
            continue;
        }
        let place = best.partition_point(|c| c.score >= score);
        if full {
            best.pop();
        }
        best.insert(place.min(best.len()), Choice { token, score });
        if best.len() == request.count {
            floor = best[best.len() - 1].score;
        }
    }
}

/// Log-sum-exp: `ln Σ exp(scores)`, summed in float64.
pub fn log_sum_exp(scores: &[f32]) -> f32 {
    let most = scores.iter().fold(f32::NEG_INFINITY, |m, &s| m.max(s));
    let sum: f64 = scores.iter().map(|&s| f64::from((s - most).exp())).sum();
    most + sum.ln() as f32
}

fn log_sum_exp_of_allowed(candidates: Candidates<'_>, banned: &[u32]) -> f32 {
    let mut allowed = candidates.scores.to_vec();
    for column in banned.iter().filter_map(|&word| candidates.column(word)) {
        allowed[column] = f32::NEG_INFINITY;
    }
    log_sum_exp(&allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(count: usize, banned: &[u32]) -> RowRequest<'_> {
        RowRequest { count, banned, forced: None, path: 0.0, scoring: Scoring::Logit }
    }

    fn tokens(scores: &[f32], request: &RowRequest<'_>) -> Vec<u32> {
        let mut best = Vec::new();
        choose(Candidates { scores, words: None }, request, &mut best);
        best.iter().map(|c| c.token).collect()
    }

    #[test]
    fn best_first_and_lower_ids_first_among_equals() {
        let scores = [1.0, 3.0, 2.0, 3.0, -1.0, 3.0];
        assert_eq!(tokens(&scores, &request(4, &[])), [1, 3, 5, 2]);
        assert_eq!(tokens(&scores, &request(2, &[1])), [3, 5]);
        assert_eq!(tokens(&scores, &request(9, &[])), [1, 3, 5, 2, 0, 4]);
        assert_eq!(tokens(&scores, &request(0, &[])), [] as [u32; 0]);
    }

    #[test]
    fn probabilities_are_over_the_words_there_are() {
        let candidates = Candidates { scores: &[0.0, 0.0, 0.0, 0.0], words: Some(&[3, 5, 8, 9]) };
        let mut best = Vec::new();
        let scored = |scoring| RowRequest { scoring, ..request(1, &[3]) };
        choose(candidates, &scored(Scoring::LogProbability), &mut best);
        assert_eq!(best[0].token, 5);
        assert!((best[0].score + 4f32.ln()).abs() < 1e-6);
        choose(candidates, &scored(Scoring::LogProbabilityOfAllowed), &mut best);
        assert!((best[0].score + 3f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn a_forced_word_is_the_answer_even_if_banned() {
        let forced = RowRequest { forced: Some(2), ..request(3, &[2]) };
        let mut best = Vec::new();
        let candidates = Candidates { scores: &[1.0, 2.0, 3.0], words: None };
        choose(candidates, &forced, &mut best);
        assert_eq!(best, [Choice { token: 2, score: 3.0 }]);
    }
}
