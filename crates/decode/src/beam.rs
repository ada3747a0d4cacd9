//! Beam search of one sentence.
//!
//! A beam is a list of open hypotheses and a list of finished ones. Each step it is given the top-k
//! words of every open hypothesis and decides which go on. It never sees another sentence.
//!
//! The three rules by which tools end a beam are [`Finish`]'s variants; with a beam of one they are
//! the same, greedy search. With early stopping (`Search::early_stop`) a beam ends as soon as no open hypothesis is
//! within a margin of the best finished one.

mod constrained;

use std::cmp::Ordering;
use std::sync::Arc;

use peregrine_model::{Bound, Finish};
use peregrine_nn::{Choice, RowRequest};

use crate::constraints::Constraints;
use crate::hypothesis::Hypothesis;
use crate::settings::Settings;
use constrained::Constrained;
pub(crate) use constrained::ScoredRow;

/// A word of some hypothesis; hypotheses are paths from a node back to the start.
struct Node {
    parent: Option<u32>,
    token: u32,
    score: f32,
}

/// What is kept of a step beside the word, if scores or alignments are wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Details {
    pub(crate) member_scores: Vec<f32>,
    pub(crate) alignment: Vec<f32>,
}

/// An open hypothesis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    node: Option<u32>,
    pub(crate) score: f32,
    /// Its row in the previous step.
    pub(crate) parent_row: Option<u32>,
}

/// A finished hypothesis.
#[derive(Debug, Clone, Copy)]
struct Finished {
    node: u32,
    path: f32,
    score: f32,
    ended: bool,
}

/// A word that could continue an open hypothesis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// Number of the open hypothesis.
    pub(crate) row: usize,
    pub(crate) choice: Choice,
    path: f32,
    /// Its index before ranking.
    order: usize,
}

/// Steps for which a search allocates memory at its start; longer ones allocate more later.
const USUAL_STEPS: usize = 256;

/// A step looks at no more candidates than this many times the beam. [`Finish::Full`] looks at the most: one for
/// each place, then one for each that ends, and each hypothesis has one word that ends it.
const LOOKED_AT: usize = 2;

/// The search of one sentence.
pub(crate) struct Beam {
    nodes: Vec<Node>,
    /// One a node, if scores or alignments are wanted.
    details: Vec<Details>,
    open: Vec<Open>,
    finished: Vec<Finished>,
    /// The candidates of a step; kept for its memory.
    candidates: Vec<Candidate>,
    spare: Vec<Open>,
    /// The number of hypotheses that may still be open: less than the beam if it shrinks.
    width: usize,
    /// Tokens produced so far.
    length: usize,
    limit: usize,
    /// Fewest tokens before the end symbol.
    minimum: usize,
    prefix: Vec<u32>,
    /// The first words of the prefix that the languages of the request give. They cost nothing and are not part of the
    /// translation.
    given: usize,
    /// Whether the best hypothesis of a step has ever ended.
    best_ended: bool,
    /// What its translation must and must not hold.
    constrained: Option<Constrained>,
}

impl Beam {
    /// A search that makes at most `limit` tokens, the first ones being `prefix`.
    pub(crate) fn new(settings: &Settings, limit: usize, prefix: Vec<u32>) -> Beam {
        let beam = settings.search.beam.max(1);
        let mut first = Vec::with_capacity(beam);
        first.push(Open { node: None, score: 0.0, parent_row: None });
        // A beam of one ranks nothing.
        let ranked = if beam == 1 { 0 } else { beam };
        Beam {
            // Enough for a search of usual length, so that its steps allocate nothing.
            nodes: Vec::with_capacity(beam * limit.min(USUAL_STEPS)),
            details: Vec::new(),
            open: first,
            finished: Vec::with_capacity(2 * beam),
            candidates: Vec::with_capacity(2 * LOOKED_AT * ranked),
            spare: Vec::with_capacity(ranked),
            width: beam,
            length: 0,
            limit: limit.max(prefix.len()),
            minimum: settings.search.min_length,
            prefix,
            given: 0,
            best_ended: false,
            constrained: None,
        }
    }

    /// The same search, not begun yet, with constraints.
    pub(crate) fn with_constraints(self, constraints: Option<Arc<Constraints>>) -> Beam {
        Beam { constrained: constraints.map(Constrained::new), ..self }
    }

    /// The same search with the first `given` words of its prefix given by languages.
    pub(crate) fn with_given(self, given: usize) -> Beam {
        Beam { given, ..self }
    }

    /// The number of words that the languages of the request give.
    pub(crate) fn given(&self) -> usize {
        self.given
    }

    /// The same search with no end before `minimum` tokens.
    pub(crate) fn with_minimum(self, minimum: usize) -> Beam {
        Beam { minimum, ..self }
    }

    pub(crate) fn open(&self) -> &[Open] {
        &self.open
    }

    /// The last word of an open hypothesis.
    pub(crate) fn last_token(&self, open: &Open) -> Option<u32> {
        open.node.map(|node| self.nodes[node as usize].token)
    }

    /// A search of `width` that is over and found nothing. It has no memory.
    pub(crate) fn closed(width: usize) -> Beam {
        Beam {
            nodes: Vec::new(),
            details: Vec::new(),
            open: Vec::new(),
            finished: Vec::new(),
            candidates: Vec::new(),
            spare: Vec::new(),
            width,
            length: 0,
            limit: 1,
            minimum: 0,
            prefix: Vec::new(),
            given: 0,
            best_ended: false,
            constrained: None,
        }
    }

    /// The most tokens it makes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// All words of an open hypothesis.
    pub(crate) fn tokens(&self, open: &Open) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(self.length);
        let path = std::iter::successors(open.node, |&n| self.nodes[n as usize].parent);
        tokens.extend(path.map(|n| self.nodes[n as usize].token));
        tokens.reverse();
        tokens
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Whether the next token is the last one allowed.
    fn at_limit(&self) -> bool {
        self.length + 1 >= self.limit
    }

    fn forced(&self, settings: &Settings, length: usize) -> Option<u32> {
        let at_end = (length + 1 >= self.limit && settings.forces_end()).then_some(settings.end);
        self.prefix.get(length).copied().or(at_end)
    }

    /// Whether `length` tokens are just those of a prefix, so that the next one is the first to be searched for.
    fn is_after_prefix(&self, length: usize) -> bool {
        length > 0 && length == self.prefix.len()
    }

    /// Whether the next step follows [`Finish::Full`]'s rule for the first token after a prefix, which a device does not know.
    pub(crate) fn has_rule_after_prefix(&self, settings: &Settings) -> bool {
        let full = settings.search.finish == Finish::Full && settings.search.beam > 1;
        full && self.is_after_prefix(self.length)
    }

    /// Whether the next token ends every hypothesis, whatever it is.
    pub(crate) fn ends_next(&self, settings: &Settings) -> bool {
        self.at_limit() || self.forced(settings, self.length) == Some(settings.end)
    }

    /// The top-k request of each open hypothesis, `offset` tokens from now.
    pub(crate) fn request<'a>(&self, settings: &'a Settings, offset: usize) -> RowRequest<'a> {
        let length = self.length + offset;
        let count = match settings.search.finish {
            _ if settings.search.beam == 1 => 1,
            Finish::Shrink => self.width,
            Finish::Full | Finish::FullBounded => 2 * settings.search.beam,
        };
        let too_short = length < self.minimum;
        let bans = settings.bans();
        let banned = if too_short { &bans.without_end } else { &bans.always };
        let (forced, scoring) = (self.forced(settings, length), settings.scoring());
        RowRequest { count, banned, forced, scoring, path: 0.0 }
    }

    /// The number of hypotheses that may go on from the next word.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Goes on with the top-k words of every open hypothesis (`choices[i]` are those of the i-th).
    /// `details` returns what to keep of each word that goes on.
    pub(crate) fn advance<'c>(
        &mut self,
        settings: &Settings,
        choices: impl Iterator<Item = &'c [Choice]>,
        mut details: impl FnMut(usize, Choice) -> Option<Details>,
    ) {
        if settings.search.beam == 1 {
            return self.advance_greedily(settings, choices, details);
        }
        self.rank(settings, choices);
        let candidates = std::mem::take(&mut self.candidates);
        let last = self.at_limit();
        self.length += 1;
        let going_on = match settings.search.finish {
            Finish::Shrink => self.shrink(settings, &candidates, last, &mut details),
            Finish::Full => self.full(settings, &candidates, last, &mut details),
            Finish::FullBounded => self.bounded(settings, &candidates, last, &mut details),
        };
        self.candidates = candidates;
        self.spare = std::mem::replace(&mut self.open, going_on);
        if settings.search.early_stop.is_some_and(|delta| self.is_hopeless(delta)) {
            self.open.clear();
        }
    }

    /// Goes on with a beam of one, where there is nothing to rank.
    fn advance_greedily<'c>(
        &mut self,
        settings: &Settings,
        mut choices: impl Iterator<Item = &'c [Choice]>,
        mut details: impl FnMut(usize, Choice) -> Option<Details>,
    ) {
        let free = self.is_free(settings, 0);
        let last = self.at_limit();
        self.length += 1;
        let Some(&choice) = choices.next().and_then(<[Choice]>::first) else {
            return self.open.clear();
        };
        let choice = if free { Choice { score: 0.0, ..choice } } else { choice };
        let path = self.open[0].score + choice.score;
        let candidate = Candidate { row: 0, choice, path, order: 0 };
        let kept = details(0, choice);
        if choice.token == settings.end || last {
            self.finish(settings, &candidate, kept);
            self.open.clear();
        } else {
            self.open[0] = self.go_on(&candidate, kept);
        }
    }

    /// Whether the score of the token that is `offset` tokens from now counts as 0, as it is forced.
    pub(crate) fn is_free(&self, settings: &Settings, offset: usize) -> bool {
        let length = self.length + offset;
        let in_prefix = length < self.prefix.len();
        length < self.given
            || (in_prefix && !settings.search.score_prefix)
            || (!in_prefix && self.forced(settings, length).is_some())
    }

    /// Early stopping: whether no open hypothesis is within `delta` of the best finished one.
    fn is_hopeless(&self, delta: f32) -> bool {
        let best = |scores: &mut dyn Iterator<Item = f32>| scores.max_by(f32::total_cmp);
        let open = best(&mut self.open.iter().map(|open| open.score));
        let finished = best(&mut self.finished.iter().map(|finished| finished.path));
        matches!((open, finished), (Some(open), Some(finished)) if open < finished - delta)
    }

    /// Ranks the candidates that may be looked at, best path first; of equals the one of the earlier hypothesis, then
    /// the one with the lower word id.
    ///
    /// A beam of B has up to 2 B² candidates, so all but the best are dropped on the way.
    fn rank<'c>(&mut self, settings: &Settings, choices: impl Iterator<Item = &'c [Choice]>) {
        let free = self.is_free(settings, 0);
        let kept = LOOKED_AT * settings.search.beam;
        let Beam { candidates, open, .. } = self;
        candidates.clear();
        let (mut order, mut worst) = (0, None);
        for (row, choices) in choices.enumerate() {
            for &choice in choices {
                let choice = if free { Choice { score: 0.0, ..choice } } else { choice };
                let path = open[row].score + choice.score;
                order += 1;
                // Of equals the earlier one is kept.
                if worst.is_some_and(|worst| path.total_cmp(&worst).is_le()) {
                    continue;
                }
                candidates.push(Candidate { row, choice, path, order });
                if candidates.len() == 2 * kept {
                    worst = Some(candidates.select_nth_unstable_by(kept - 1, better_first).1.path);
                    candidates.truncate(kept);
                }
            }
        }
        // The stable sort would allocate memory.
        candidates.sort_unstable_by(better_first);
    }

    /// An empty list for the hypotheses that go on.
    fn next_open(&mut self) -> Vec<Open> {
        let mut next = std::mem::take(&mut self.spare);
        next.clear();
        next
    }

    fn push(&mut self, candidate: &Candidate, details: Option<Details>) -> u32 {
        let parent = self.open[candidate.row].node;
        let Choice { token, score } = candidate.choice;
        self.nodes.push(Node { parent, token, score });
        self.details.extend(details);
        self.nodes.len() as u32 - 1
    }

    fn finish(&mut self, settings: &Settings, candidate: &Candidate, details: Option<Details>) {
        let node = self.push(candidate, details);
        let score = settings.search.final_score(candidate.path, self.length);
        let ended = candidate.choice.token == settings.end;
        self.finished.push(Finished { node, path: candidate.path, score, ended });
    }

    fn go_on(&mut self, candidate: &Candidate, details: Option<Details>) -> Open {
        let node = self.push(candidate, details);
        let parent_row = Some(candidate.row as u32);
        Open { node: Some(node), score: candidate.path, parent_row }
    }

    /// Marian's rule: a hypothesis that ends leaves, and the beam is one narrower from then on.
    fn shrink(
        &mut self,
        settings: &Settings,
        candidates: &[Candidate],
        last: bool,
        details: &mut impl FnMut(usize, Choice) -> Option<Details>,
    ) -> Vec<Open> {
        let mut next = self.next_open();
        for candidate in candidates.iter().take(self.width) {
            let kept = details(candidate.row, candidate.choice);
            if candidate.choice.token == settings.end || last {
                self.finish(settings, candidate, kept);
                self.width -= 1;
            } else {
                next.push(self.go_on(candidate, kept));
            }
        }
        next
    }

    /// CTranslate2's rule: the best of 2 B candidates fill the beam, and one that ends is
    /// replaced by the next that does not.
    fn full(
        &mut self,
        settings: &Settings,
        candidates: &[Candidate],
        last: bool,
        details: &mut impl FnMut(usize, Choice) -> Option<Details>,
    ) -> Vec<Open> {
        let beam = settings.search.beam;
        let ends = |c: &Candidate| c.choice.token == settings.end;
        let after_prefix = self.is_after_prefix(self.length - 1);
        let mut next = self.next_open();
        let mut reserve = candidates.iter().skip(beam).filter(|c| !ends(c));
        for (place, candidate) in candidates.iter().take(beam).enumerate() {
            // The library gives such a candidate up, and its place stays empty for a step.
            if after_prefix && place > 0 && ends(candidate) {
                continue;
            }
            let mut chosen = Some(candidate);
            if ends(candidate) || last {
                self.finish(settings, candidate, details(candidate.row, candidate.choice));
                self.best_ended |= place == 0;
                chosen = reserve.next();
            }
            if let Some(candidate) = chosen.filter(|_| !last) {
                let kept = details(candidate.row, candidate.choice);
                next.push(self.go_on(candidate, kept));
            }
        }
        let enough = if settings.search.normalize == 0.0 {
            self.best_ended && self.finished.len() >= settings.n_best
        } else {
            self.finished.len() >= beam
        };
        if enough { Vec::new() } else { next }
    }

    /// Hugging Face's rule: only the best `beam` candidates may end, the best finished ones are kept, and the
    /// search is over when no open hypothesis could still enter a full list.
    fn bounded(
        &mut self,
        settings: &Settings,
        candidates: &[Candidate],
        last: bool,
        details: &mut impl FnMut(usize, Choice) -> Option<Details>,
    ) -> Vec<Open> {
        let beam = settings.search.beam;
        let ends = |c: &Candidate| last || c.choice.token == settings.end;
        for candidate in candidates.iter().take(beam).filter(|c| ends(c)) {
            self.finish(settings, candidate, details(candidate.row, candidate.choice));
        }
        self.sort_finished();
        self.finished.truncate(beam);
        let open = candidates.iter().take(2 * beam).filter(|c| !ends(c)).take(beam);
        let mut next = self.next_open();
        for candidate in open {
            let kept = details(candidate.row, candidate.choice);
            next.push(self.go_on(candidate, kept));
        }
        let Some(worst) = self.finished.last().filter(|_| self.finished.len() == beam) else {
            return next;
        };
        let length = match settings.search.bound {
            Bound::List => return Vec::new(),
            Bound::LengthLimit if settings.search.normalize > 0.0 => self.limit,
            Bound::Length | Bound::LengthLimit => self.length,
        };
        let best = next.first().map(|open| settings.search.final_score(open.score, length));
        if best.is_some_and(|best| best <= worst.score) { Vec::new() } else { next }
    }

    /// Best first; of equals the one that finished first.
    fn sort_finished(&mut self) {
        self.finished.sort_by(|a, b| b.score.total_cmp(&a.score));
    }

    /// The translations, best first.
    pub(crate) fn into_hypotheses(mut self, count: usize, members: usize) -> Vec<Hypothesis> {
        self.sort_finished();
        self.finished.truncate(count);
        let finished = std::mem::take(&mut self.finished);
        finished.iter().map(|one| self.trace(one, members, finished.len() == 1)).collect()
    }

    /// The translation of a finished hypothesis. With `only`, its alignment is not copied: no other one shares it.
    fn trace(&mut self, finished: &Finished, members: usize, only: bool) -> Hypothesis {
        let path = std::iter::successors(Some(finished.node), |&n| self.nodes[n as usize].parent);
        let mut path: Vec<usize> = path.map(|n| n as usize).collect();
        path.reverse();
        path.drain(..self.given.min(path.len()));
        let words = path.len() - usize::from(finished.ended);
        let details = || path.iter().filter_map(|&n| self.details.get(n));
        let member = |m: usize| details().filter_map(|d| d.member_scores.get(m)).sum();
        let member_scores = (0..members).map(member).collect();
        let alignment = match only {
            true => {
                let row =
                    |&n: &usize| self.details.get_mut(n).map(|d| std::mem::take(&mut d.alignment));
                path.iter().filter_map(row).filter(|row| !row.is_empty()).collect()
            }
            false => details().map(|d| d.alignment.clone()).filter(|row| !row.is_empty()).collect(),
        };
        Hypothesis {
            tokens: path[..words].iter().map(|&n| self.nodes[n].token).collect(),
            ended: finished.ended,
            path_score: finished.path,
            score: finished.score,
            token_scores: path.iter().map(|&n| self.nodes[n].score).collect(),
            member_scores,
            alignment,
        }
    }
}

/// The order of candidates, in which no two are equal.
fn better_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.path.total_cmp(&a.path).then(a.order.cmp(&b.order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use peregrine_model::{Dialect, Search};

    fn settings(beam: usize) -> Settings {
        let search = Search { beam, ..Search::of(Dialect::Marian) };
        let mut settings = Settings::new(search, 0, None);
        settings.scores = true;
        settings
    }

    /// Scores of few kinds, so that many are equal, and some that are no numbers.
    #[test]
    fn the_best_candidates_are_those_of_a_full_sort() {
        let mut state = 1u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for width in (2..40).chain([100]) {
            let settings = settings(width);
            let mut beam = Beam::new(&settings, 10, Vec::new());
            let open = |score| Open { node: None, score, parent_row: None };
            beam.open = (0..width).map(|_| open(-(random(8) as f32))).collect();
            let mut score = |_| match random(40) {
                0 => f32::NAN,
                kind => -(kind as f32) / 4.0,
            };
            let choices: Vec<Vec<Choice>> = (0..width)
                .map(|_| {
                    (0..2 * width as u32).map(|token| Choice { token, score: score(()) }).collect()
                })
                .collect();
            let mut all: Vec<(usize, u32, f32)> = Vec::new();
            for (row, choices) in choices.iter().enumerate() {
                let path = |choice: &Choice| beam.open[row].score + choice.score;
                all.extend(choices.iter().map(|choice| (row, choice.token, path(choice))));
            }
            all.sort_by(|a, b| b.2.total_cmp(&a.2));
            beam.rank(&settings, choices.iter().map(Vec::as_slice));
            let of = |c: &Candidate| (c.row, c.choice.token, c.path.to_bits());
            let got: Vec<_> = beam.candidates.iter().map(of).take(LOOKED_AT * width).collect();
            let best = all.iter().take(LOOKED_AT * width);
            let expected: Vec<_> =
                best.map(|&(row, token, path)| (row, token, path.to_bits())).collect();
            assert_eq!(got, expected, "beam {width}");
            assert_eq!(
                beam.candidates.capacity(),
                2 * LOOKED_AT * width,
                "no more memory is asked for"
            );
        }
    }
}
