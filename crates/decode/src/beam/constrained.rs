//! Beam search with terms: dynamic beam allocation.
//!
//! A hypothesis belongs to the bank of as many tokens of terms as it has met. The candidates of a step are the best words of every
//! hypothesis and all words that bring it nearer to a term. They are ranked within their bank and taken by rank, then by
//! score, so that every bank keeps its best hypotheses whatever they score beside those of other banks (Hu et al. 2019, the
//! vectorised form of Post and Vilar 2018). The cost does not depend on the number of terms.
//!
//! No hypothesis ends before it has all its terms. If none has ended at the length limit, nothing is found.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use peregrine_nn::{Candidates, Choice};

use super::{Beam, Candidate, Details, better_first};
use crate::constraints::{Constraints, State};
use crate::settings::Settings;

/// The constraints of a search and how far each open hypothesis is with them.
pub(super) struct Constrained {
    constraints: Arc<Constraints>,
    /// One for each open hypothesis.
    states: Vec<State>,
}

/// What a step found for a hypothesis: the log-probabilities of all its words, and its attention to the source.
#[derive(Clone, Copy)]
pub(crate) struct ScoredRow<'a> {
    pub(crate) candidates: Candidates<'a>,
    pub(crate) attention: &'a [f32],
}

/// A candidate and how far it is.
struct Placed {
    candidate: Candidate,
    state: State,
    bank: usize,
    rank: usize,
}

impl Constrained {
    pub(super) fn new(constraints: Arc<Constraints>) -> Constrained {
        Constrained { constraints, states: vec![State::default()] }
    }
}

impl Beam {
    /// Whether the search has constraints.
    pub(crate) fn is_constrained(&self) -> bool {
        self.constrained.is_some()
    }

    /// Goes on with the words of every open hypothesis (`rows(i)` are those of the i-th), as its constraints allow.
    /// `details` returns what to keep of each word that goes on.
    pub(crate) fn advance_constrained<'s>(
        &mut self,
        settings: &Settings,
        rows: impl Fn(usize) -> ScoredRow<'s>,
        mut details: impl FnMut(usize, Choice) -> Option<Details>,
    ) {
        let Some(mut constrained) = self.constrained.take() else { return };
        let (beam, last) = (settings.search.beam, self.at_limit());
        let placed = self.candidates_by_rank(settings, &constrained, rows);
        self.length += 1;
        let mut next = self.next_open();
        constrained.states.clear();
        for (place, Placed { candidate, state, .. }) in placed.into_iter().enumerate() {
            let ends = candidate.choice.token == settings.end;
            if ends || last {
                if ends && place < beam && constrained.constraints.all_met(&state) {
                    self.finish(settings, &candidate, details(candidate.row, candidate.choice));
                }
            } else if next.len() < beam {
                next.push(self.go_on(&candidate, details(candidate.row, candidate.choice)));
                constrained.states.push(state);
            }
        }
        self.sort_finished();
        self.finished.truncate(beam);
        let open = next.iter().map(|open| settings.search.final_score(open.score, self.length));
        let worst = self.finished.last().filter(|_| self.finished.len() == beam);
        let is_over = worst.is_some_and(|worst| open.max_by(f32::total_cmp) <= Some(worst.score));
        if is_over {
            next.clear();
        }
        self.spare = std::mem::replace(&mut self.open, next);
        self.constrained = Some(constrained);
    }

    /// The candidates of a step: the first of every bank, then the second of every bank, and so on.
    fn candidates_by_rank<'s>(
        &self,
        settings: &Settings,
        constrained: &Constrained,
        rows: impl Fn(usize) -> ScoredRow<'s>,
    ) -> Vec<Placed> {
        let Constrained { constraints, states } = constrained;
        let free = self.is_free(settings, 0);
        let mut placed = Vec::new();
        for (row, (open, state)) in self.open.iter().zip(states).enumerate() {
            let scored = rows(row);
            for mut choice in self.choices(settings, constraints, state, scored) {
                choice.score = if free { 0.0 } else { choice.score };
                let (path, order) = (open.score + choice.score, placed.len());
                let candidate = Candidate { row, choice, path, order };
                let state = match choice.token == settings.end {
                    true => state.clone(),
                    false => constraints.after(state, choice.token, scored.attention),
                };
                let bank = constraints.bank(&state);
                placed.push(Placed { candidate, state, bank, rank: 0 });
            }
        }
        let best = |a: &Placed, b: &Placed| better_first(&a.candidate, &b.candidate);
        placed.sort_unstable_by(|a, b| a.bank.cmp(&b.bank).then_with(|| best(a, b)));
        for bank in placed.chunk_by_mut(|a, b| a.bank == b.bank) {
            bank.iter_mut().enumerate().for_each(|(rank, placed)| placed.rank = rank);
        }
        placed.sort_unstable_by(|a, b| a.rank.cmp(&b.rank).then_with(|| best(a, b)));
        placed
    }

    /// The words with which a hypothesis may go on: the best ones, and those that its terms want.
    fn choices(
        &self,
        settings: &Settings,
        constraints: &Constraints,
        state: &State,
        row: ScoredRow<'_>,
    ) -> Vec<Choice> {
        let candidates = row.candidates;
        let choice = |token: u32| {
            let score = candidates.scores[candidates.column(token)?];
            Some(Choice { token, score })
        };
        if let Some(token) = self.forced(settings, self.length) {
            return vec![choice(token).unwrap_or(Choice { token, score: f32::MIN })];
        }
        let banned = self.request(settings, 0).banned;
        let last = self.at_limit();
        let allowed = |token: u32| {
            (token == settings.end || !last)
                && banned.binary_search(&token).is_err()
                && constraints.allows(state, token, settings.end)
        };
        let mut chosen = best_allowed(candidates, 2 * settings.search.beam, allowed);
        let mut wanted = Vec::new();
        constraints.wanted(state, row.attention, &mut wanted);
        wanted.retain(|&token| allowed(token) && !chosen.iter().any(|c| c.token == token));
        chosen.extend(wanted.into_iter().filter_map(choice));
        chosen.retain(|choice| !choice.score.is_nan());
        chosen
    }
}

/// The best words that are allowed; of equals the one with the lower id.
fn best_allowed(
    candidates: Candidates<'_>,
    count: usize,
    allowed: impl Fn(u32) -> bool,
) -> Vec<Choice> {
    let mut best: Vec<Choice> = Vec::with_capacity(count + 1);
    for (column, &score) in candidates.scores.iter().enumerate() {
        let floor = best.get(count - 1).map(|last| last.score);
        if score.is_nan() || floor.is_some_and(|floor| score <= floor) {
            continue;
        }
        let token = candidates.word(column);
        if allowed(token) {
            let place = best.partition_point(|choice| choice.score >= score);
            best.insert(place, Choice { token, score });
            best.truncate(count);
        }
    }
    best
}
