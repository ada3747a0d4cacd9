//! Comparing translations with a reference, and counting.

use peregrine::Translation;

use crate::marian::Entry;
use crate::{SCORE_TOLERANCE, TIE};

/// How a line compares with the reference.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The same words and scores.
    Same,
    /// Other words that are shown to have the same score.
    Tie(String),
    /// Marian's list repeats the translation of nothing; ours has it once (docs/exactness.md).
    EmptyOnce,
    /// Anything else: an error.
    Different(String),
}

/// Counts of a comparison.
#[derive(Debug, Default)]
pub struct Tally {
    what: String,
    same: usize,
    ties: usize,
    empty: usize,
    different: Vec<String>,
    /// The largest difference of a sentence's score, as a share of it (of 1 if it is smaller).
    worst_score: f32,
    /// The largest difference of a word's score.
    worst_word: f32,
}

/// Whether a sum of log-probabilities is the same as the reference's, which has six digits.
pub fn is_close(ours: f32, theirs: f32) -> bool {
    (ours - theirs).abs() <= SCORE_TOLERANCE * theirs.abs() + 1e-5
}

fn is_tie(a: f32, b: f32) -> bool {
    (a - b).abs() <= TIE * a.abs().max(b.abs()).max(1.0)
}

impl Tally {
    /// Nothing counted yet.
    pub fn new(what: impl Into<String>) -> Tally {
        Tally { what: what.into(), ..Tally::default() }
    }

    /// Counts a line.
    pub fn add(&mut self, line: usize, verdict: Verdict) {
        match verdict {
            Verdict::Same => self.same += 1,
            Verdict::EmptyOnce => self.empty += 1,
            Verdict::Tie(how) => {
                println!("{}: line {line}: near-tie: {how}", self.what);
                self.ties += 1;
            }
            Verdict::Different(how) => self.different.push(format!("line {line}: {how}")),
        }
    }

    /// Notes how far a sentence's score is from the reference; gives back whether that is near enough.
    pub fn score(&mut self, ours: f32, theirs: f32) -> bool {
        let off = (ours - theirs).abs() / theirs.abs().max(1.0);
        self.worst_score = self.worst_score.max(off);
        is_close(ours, theirs)
    }

    /// The same for the scores of words.
    pub fn words(&mut self, ours: &[f32], theirs: &[f32]) -> bool {
        for (a, b) in ours.iter().zip(theirs) {
            self.worst_word = self.worst_word.max((a - b).abs());
        }
        ours.len() == theirs.len()
            && ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= SCORE_TOLERANCE)
    }

    /// Prints the counts. Fails if a line differs without a reason, or if fewer than `least` of the
    /// lines are the same.
    pub fn finish(self, least: f64) {
        let Tally { what, same, ties, empty, different, worst_score, worst_word } = self;
        let total = same + ties + empty + different.len();
        print!("{what}: {same} of {total} the same, {ties} near-ties, {empty} empty");
        for (name, worst) in [("scores", worst_score), ("word scores", worst_word)] {
            if worst > 0.0 {
                print!(", {name} within {worst:.1e}");
            }
        }
        println!();
        assert!(different.is_empty(), "{what}: unexplained:\n{}", different.join("\n"));
        let share = (same + empty) as f64 / total as f64;
        assert!(total > 0 && share >= least, "{what}: only {same} of {total} lines are the same");
    }
}

/// Compares a greedy translation with the reference's. Where they part, the two next words must have
/// the same probability after the same beginning with the same scores.
pub fn compare_greedy(tally: &mut Tally, ours: &Translation, theirs: &Entry) -> Verdict {
    let best = &ours.alternatives[0];
    let words = best.tokens.join(" ");
    if theirs.words.is_empty() && words.is_empty() {
        return Verdict::Same;
    }
    if words == theirs.words {
        let score = tally.score(best.score, theirs.score);
        let members = same_features(tally, &best.member_scores, &theirs.features);
        return match score && members && tally.words(&best.token_scores, &theirs.word_scores) {
            true => Verdict::Same,
            false => Verdict::Different(format!("scores of {words}: {best:?} not {theirs:?}")),
        };
    }
    let their_words: Vec<&str> = theirs.words.split(' ').collect();
    let parting = best.tokens.iter().zip(&their_words).take_while(|(a, b)| a == b).count();
    let scores = (best.token_scores.get(parting), theirs.word_scores.get(parting));
    let before = |scores: &[f32]| scores[..parting.min(scores.len())].to_vec();
    let same_start = tally.words(&before(&best.token_scores), &before(&theirs.word_scores));
    match scores {
        (Some(&a), Some(&b)) if same_start && is_tie(a, b) => {
            Verdict::Tie(format!("word {parting}: {a} and {b}"))
        }
        _ => {
            Verdict::Different(format!("{words}\nnot {}; word {parting}: {scores:?}", theirs.words))
        }
    }
}

/// Compares an n-best list with the reference's: the same hypotheses in the same order with the same
/// scores. Two that change places must have the same score.
pub fn compare_lists(tally: &mut Tally, ours: &Translation, theirs: &[Entry]) -> Verdict {
    let ours = &ours.alternatives;
    if theirs.iter().all(|entry| entry.words.is_empty()) {
        return match ours.as_slice() {
            [one] if one.tokens.is_empty() && one.score == 0.0 => Verdict::EmptyOnce,
            _ => Verdict::Different(format!("{} translations of nothing", ours.len())),
        };
    }
    if ours.len() != theirs.len() {
        return Verdict::Different(format!("{} hypotheses, not {}", ours.len(), theirs.len()));
    }
    let mut swapped = None;
    for (rank, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let words = a.tokens.join(" ");
        if words == b.words {
            let fields = same_features(tally, &a.member_scores, &b.features)
                && (b.word_scores.is_empty() || tally.words(&a.token_scores, &b.word_scores));
            if !tally.score(a.score, b.score) || !fields {
                return Verdict::Different(format!("scores of {words}: {a:?} not {b:?}"));
            }
        } else if is_tie(a.score, b.score) {
            swapped = Some(format!("rank {rank}: {} and {}", a.score, b.score));
        } else {
            let how = format!("rank {rank}: {words} ({})\nnot {} ({})", a.score, b.words, b.score);
            return Verdict::Different(how);
        }
    }
    swapped.map_or(Verdict::Same, Verdict::Tie)
}

/// Compares rows of weights with a hard alignment: where another source token was chosen, the two must
/// weigh the same.
pub fn same_choices(ours: &[Vec<f32>], theirs: &[usize]) -> Verdict {
    if ours.len() != theirs.len() {
        return Verdict::Different(format!("{} rows, not {}", ours.len(), theirs.len()));
    }
    let mut verdict = Verdict::Same;
    for (target, (row, &theirs)) in ours.iter().zip(theirs).enumerate() {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let Some(&weight) = row.get(theirs) else {
            return Verdict::Different(format!("token {target}: no source token {theirs}"));
        };
        if row.iter().position(|&w| w == largest) == Some(theirs) {
            continue;
        }
        if largest - weight > TIE {
            let how = format!("token {target}: {theirs} weighs {weight}, another {largest}");
            return Verdict::Different(how);
        }
        verdict = Verdict::Tie(format!("token {target}: {weight} and {largest}"));
    }
    verdict
}

fn same_features(tally: &mut Tally, ours: &[f32], theirs: &[f32]) -> bool {
    let close: Vec<bool> = ours.iter().zip(theirs).map(|(&a, &b)| tally.score(a, b)).collect();
    ours.len() == theirs.len() && close.into_iter().all(|close| close)
}

#[cfg(test)]
mod tests {
    use super::*;
    use peregrine::Alternative;

    fn ours(tokens: &str, scores: &[f32]) -> Translation {
        let sum: f32 = scores.iter().sum();
        let alternative = Alternative {
            tokens: tokens.split_whitespace().map(str::to_owned).collect(),
            score: sum,
            token_scores: scores.to_vec(),
            member_scores: vec![sum],
            ..Alternative::default()
        };
        Translation { alternatives: vec![alternative], ..Translation::default() }
    }

    fn theirs(words: &str, scores: &[f32]) -> Entry {
        let sum = scores.iter().sum();
        Entry { words: words.into(), word_scores: scores.to_vec(), features: vec![sum], score: sum }
    }

    #[test]
    fn only_ties_are_forgiven() {
        let mut tally = Tally::new("test");
        let a = ours("x y", &[-0.1, -0.7, -0.2]);
        let mut check = |words: &str, scores: &[f32]| {
            let theirs = theirs(words, scores);
            (
                compare_greedy(&mut tally, &a, &theirs),
                compare_lists(&mut tally, &a, std::slice::from_ref(&theirs)),
            )
        };
        assert_eq!(check("x y", &[-0.1, -0.7, -0.2]), (Verdict::Same, Verdict::Same));
        // The same words with another score, and other words with another score.
        let is_error = |(a, b)| {
            assert!(matches!(a, Verdict::Different(_)), "{a:?}");
            assert!(matches!(b, Verdict::Different(_)), "{b:?}");
        };
        is_error(check("x y", &[-0.1, -0.71, -0.2]));
        is_error(check("x z", &[-0.1, -0.69, -0.2]));
        // The same beginning, then a word just as likely: what follows is then another matter.
        let (greedy, list) = check("x z", &[-0.1, -0.70001, -0.9]);
        assert!(matches!(greedy, Verdict::Tie(_)) && matches!(list, Verdict::Different(_)));
        // Two hypotheses of the same score.
        let (_, list) = check("z", &[-0.5, -0.50001]);
        assert!(matches!(list, Verdict::Tie(_)));
    }

    #[test]
    fn nothing_is_translated_once() {
        let mut tally = Tally::new("test");
        let nothing = theirs("", &[0.0]);
        let repeated = [nothing.clone(), nothing];
        let once = compare_lists(&mut tally, &ours("", &[0.0]), &repeated);
        assert_eq!(once, Verdict::EmptyOnce);
        let words = compare_lists(&mut tally, &ours("x", &[-1.0]), &repeated);
        assert!(matches!(words, Verdict::Different(_)));
    }
}
