//! Dynamic beam allocation beside all translations there are.

use peregrine_model::{Dialect, Search};

use super::*;
use crate::constraints::{LEAST_ATTENTION, Term, WordEdges};
use crate::hypothesis::Hypothesis;

const END: u32 = 0;
const WORDS: u32 = 4;
/// The most tokens of a translation, the end symbol included.
const LIMIT: usize = 6;
/// More than there are hypotheses.
const WIDE: usize = 2000;

/// Numbers that look random, the same for the same seed and words.
fn noise(seed: u64, words: &[u32], salt: u64) -> f32 {
    let mut state =
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93);
    for &word in words {
        state = (state ^ u64::from(word + 1)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        state ^= state >> 32;
    }
    state = state.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (state >> 40) as f32 / (1u64 << 24) as f32
}

/// A model that has an opinion on every word behind every other, and looks at one of two source words.
struct Toy {
    seed: u64,
}

impl Toy {
    /// Log-probabilities, of sharp and of flat distributions.
    fn scores(&self, words: &[u32]) -> Vec<f32> {
        let logit = |word: u32| 6.0 * noise(self.seed, words, u64::from(word) + 7);
        let logits: Vec<f32> = (0..=WORDS).map(logit).collect();
        let sum: f32 = logits.iter().map(|logit| logit.exp()).sum();
        logits.iter().map(|logit| logit - sum.ln()).collect()
    }

    fn attention(&self, words: &[u32]) -> Vec<f32> {
        let left = if noise(self.seed, words, 1) < 0.5 { 0.05 } else { 0.6 };
        vec![left, 1.0 - left]
    }
}

fn settings(beam: usize) -> Settings {
    let search = Search { beam, normalize: 0.6, ..Search::of(Dialect::Marian) };
    let mut settings = Settings::new(search, END, None);
    settings.scores = true;
    settings
}

fn search(toy: &Toy, constraints: &Constraints, beam: usize) -> Vec<Hypothesis> {
    let settings = settings(beam);
    let constraints = Arc::new(constraints.clone());
    let mut search = Beam::new(&settings, LIMIT, Vec::new()).with_constraints(Some(constraints));
    while !search.open().is_empty() {
        let words: Vec<Vec<u32>> = search.open().iter().map(|open| search.tokens(open)).collect();
        let rows: Vec<(Vec<f32>, Vec<f32>)> =
            words.iter().map(|words| (toy.scores(words), toy.attention(words))).collect();
        let scored = |row: usize| ScoredRow {
            candidates: Candidates { scores: &rows[row].0, words: None },
            attention: &rows[row].1,
        };
        search.advance_constrained(&settings, scored, |_, _| None);
    }
    search.into_hypotheses(beam, 0)
}

/// Whether terms have places in a translation that do not overlap, each begun where the model looks at its source.
fn holds(
    toy: &Toy,
    constraints: &Constraints,
    terms: &[Term],
    words: &[u32],
    taken: &[bool],
) -> bool {
    let Some((term, others)) = terms.split_first() else { return true };
    let fits = |form: &Vec<u32>, start: usize| {
        let end = start + form.len();
        let share: f32 = toy.attention(&words[..start])[term.columns.clone()].iter().sum();
        let ends_word =
            words.get(end).is_none_or(|&next| !constraints.edges.continues[next as usize]);
        if words.get(start..end) != Some(form.as_slice())
            || taken[start..end].contains(&true)
            || (!term.columns.is_empty() && share < LEAST_ATTENTION)
            || !(ends_word || term.is_prefix)
        {
            return false;
        }
        let mut taken = taken.to_vec();
        taken[start..end].fill(true);
        holds(toy, constraints, others, words, &taken)
    };
    term.forms.iter().any(|form| (0..words.len()).any(|start| fits(form, start)))
}

/// The best translation with all terms and no forbidden sequence, found by looking at all there are.
fn best_of_all(toy: &Toy, constraints: &Constraints) -> Option<(Vec<u32>, f32)> {
    let mut best: Option<(Vec<u32>, f32)> = None;
    let mut open: Vec<(Vec<u32>, f32)> = vec![(Vec::new(), 0.0)];
    while let Some((words, path)) = open.pop() {
        let scores = toy.scores(&words);
        let path_with = |word: u32| path + scores[word as usize];
        let forbidden = |words: &[u32]| {
            let mut sequences = constraints.forbidden.iter();
            sequences.any(|sequence| words.windows(sequence.len()).any(|window| window == sequence))
        };
        if holds(toy, constraints, &constraints.terms, &words, &vec![false; words.len()]) {
            let score = settings(1).search.final_score(path_with(END), words.len() + 1);
            if best.as_ref().is_none_or(|(_, known)| score > *known) {
                best = Some((words.clone(), score));
            }
        }
        if words.len() + 1 < LIMIT {
            let longer =
                (1..=WORDS).map(|word| ([words.as_slice(), &[word]].concat(), path_with(word)));
            open.extend(longer.filter(|(words, _)| !forbidden(words)));
        }
    }
    best
}

fn constraints(terms: &[(&[&[u32]], std::ops::Range<usize>)], forbidden: &[&[u32]]) -> Constraints {
    let term = |(forms, columns): &(&[&[u32]], std::ops::Range<usize>)| Term {
        forms: forms.iter().map(|form| form.to_vec()).collect(),
        columns: columns.clone(),
        is_prefix: false,
    };
    let edges = WordEdges { continues: vec![false; WORDS as usize + 1], unfinished: Vec::new() };
    Constraints {
        terms: terms.iter().map(term).collect(),
        forbidden: forbidden.iter().map(|sequence| sequence.to_vec()).collect(),
        columns: 0..2,
        edges: Arc::new(edges),
    }
}

fn cases() -> Vec<Constraints> {
    vec![
        constraints(&[(&[&[1]], 0..0)], &[]),
        constraints(&[(&[&[1, 2]], 0..1)], &[]),
        constraints(&[(&[&[1, 2]], 0..0), (&[&[1, 2]], 0..0)], &[]),
        constraints(&[(&[&[1, 2]], 0..0), (&[&[1, 3]], 0..0)], &[]),
        constraints(&[(&[&[1, 2]], 0..0), (&[&[1, 2, 3]], 0..0)], &[]),
        constraints(&[(&[&[1, 1, 2]], 0..0)], &[]),
        constraints(&[(&[&[1, 2], &[3]], 0..1), (&[&[4]], 1..2)], &[]),
        constraints(&[(&[&[1]], 0..0)], &[&[1, 2], &[3]]),
        constraints(&[], &[&[2], &[1, 1]]),
    ]
}

#[test]
fn with_places_enough_the_best_translation_is_found() {
    for (case, constraints) in cases().iter().enumerate() {
        for seed in 0..40 {
            let toy = Toy { seed };
            let found = search(&toy, constraints, WIDE).into_iter().next();
            let found = found.map(|best| (best.tokens, best.score));
            assert_eq!(found, best_of_all(&toy, constraints), "case {case}, seed {seed}");
        }
    }
}

/// Five places find a translation wherever there is one, and most often the best.
#[test]
fn few_places_find_all_terms() {
    let (mut best, mut all) = (0, 0);
    for (case, constraints) in cases().iter().enumerate() {
        for seed in 0..40 {
            let toy = Toy { seed };
            let Some((words, score)) = best_of_all(&toy, constraints) else { continue };
            let found = search(&toy, constraints, 5);
            let Some(found) = found.first() else { continue };
            let free = vec![false; found.tokens.len()];
            assert!(
                holds(&toy, constraints, &constraints.terms, &found.tokens, &free),
                "case {case}"
            );
            assert!(found.score <= score && found.ended);
            all += 1;
            best += usize::from(found.tokens == words);
        }
    }
    assert!(all > 300 && best * 10 > all * 6, "the best in {best} of {all}");
}

#[test]
fn words_end_behind_terms() {
    let mut constraints = constraints(&[(&[&[1, 2]], 0..0)], &[]);
    let continues = vec![false, false, false, true, false];
    constraints.edges = Arc::new(WordEdges { continues, unfinished: Vec::new() });
    for seed in 0..40 {
        let toy = Toy { seed };
        let best = search(&toy, &constraints, WIDE).remove(0);
        let term = best.tokens.windows(2).position(|words| words == [1, 2]).expect("the term");
        assert_ne!(best.tokens.get(term + 2), Some(&3));
        let (_, score) = best_of_all(&toy, &constraints).expect("there is one");
        assert!(best.score <= score);
    }
}

#[test]
fn what_cannot_be_met_is_not_found() {
    let toy = Toy { seed: 3 };
    assert!(search(&toy, &constraints(&[(&[&[1, 1, 1, 1, 1, 1]], 0..0)], &[]), 50).is_empty());
    assert!(search(&toy, &constraints(&[(&[&[9]], 0..0)], &[]), 50).is_empty());
    assert!(search(&toy, &constraints(&[(&[], 0..0)], &[]), 50).is_empty());
}
