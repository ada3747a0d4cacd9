//! The default: top-up batches from sorted read-ahead, with auto-tuning of the batch size.
//!
//! Refilling keeps the batch full while there are sentences to refill it with; taking the longest
//! first makes the end of a text short, when there are none.
//!
//! A `Trial` measures how many sentences are best: weights that all rows share are read once a
//! step, so more rows are cheaper each; but every sentence adds its KV cache and perhaps a shortlist
//! of its own, and once those do not fit the caches of the CPU each row costs more. The best size depends
//! on the model, the machine and its load.

use std::time::Duration;

use super::{Order, Rules};

pub(super) const RULES: Rules =
    Rules { order: Order::LongestFirst, joins_running: true, computes_finished: false };

/// The smallest batch tried; each next one is twice as large.
const SMALLEST: usize = 4;
/// Steps measured of each size: enough for a median that a few disturbed ones do not move.
const STEPS: usize = 21;
/// Steps after which the trial is repeated.
const LASTS: u64 = 8192;
/// A trial pays if at least this many full batches wait.
const WORTH: usize = 3;

/// Measures at which batch size a row is cheapest, each size in turn for some steps.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The most sentences allowed when the trial began.
    most: usize,
    /// The seconds a row took in the sizes tried so far, smallest first.
    tried: Vec<f64>,
    /// The seconds a row took in each step of the size being tried.
    costs: Vec<f64>,
    /// Whether the next step is part of the trial.
    trying: bool,
    found: Option<usize>,
    /// Steps since the best size was found.
    age: u64,
}

impl Trial {
    /// The number of sentences of the next step, of `most` allowed, when `waiting` wait.
    pub(crate) fn sentences(&mut self, most: usize, waiting: usize) -> usize {
        if self.most != most || self.age > LASTS {
            *self = Trial { most, ..Trial::default() };
        }
        self.trying = self.found.is_none() && waiting >= WORTH.saturating_mul(most);
        match self.found {
            Some(found) => found,
            None if self.trying => self.size(),
            None => most,
        }
    }

    /// The size being tried.
    fn size(&self) -> usize {
        (SMALLEST << self.tried.len()).min(self.most)
    }

    /// Records a step.
    pub(crate) fn count(&mut self, sentences: usize, rows: usize, time: Duration) {
        self.age += u64::from(self.found.is_some());
        let size = self.size();
        // Steps while the batch fills or empties do not count.
        if !self.trying || sentences > size || 4 * sentences < 3 * size {
            return;
        }
        self.costs.push(time.as_secs_f64() / rows.max(1) as f64);
        if self.costs.len() < STEPS {
            return;
        }
        self.costs.sort_by(f64::total_cmp);
        self.tried.push(self.costs[STEPS / 2]);
        self.costs.clear();
        if size == self.most {
            let costs = self.tried.iter().enumerate();
            let least = costs.min_by(|(_, a), (_, b)| a.total_cmp(b));
            self.found = least.map(|(place, _)| (SMALLEST << place).min(self.most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found where a step of so many rows takes so long.
    fn found(most: usize, microseconds: impl Fn(usize) -> u64) -> usize {
        let mut trial = Trial::default();
        for _ in 0..1000 {
            let size = trial.sentences(most, usize::MAX);
            trial.count(size, size, Duration::from_micros(microseconds(size)));
        }
        trial.sentences(most, 0)
    }

    #[test]
    fn shared_weights_want_large_batches() {
        assert_eq!(found(64, |rows| 20_000 + 1500 * rows as u64), 64);
        assert_eq!(found(50, |rows| 20_000 + 1500 * rows as u64), 50);
    }

    #[test]
    fn where_every_row_costs_the_same_small_ones_will_do() {
        assert_eq!(found(64, |rows| (rows * (100 + rows)) as u64), 4);
        assert_eq!(found(3, |rows| 100 * rows as u64), 3);
    }

    #[test]
    fn the_cache_sets_a_limit() {
        let cost = |rows: usize| if rows > 16 { 200 * rows } else { 300 + 100 * rows };
        assert_eq!(found(64, |rows| cost(rows) as u64), 16);
    }

    #[test]
    fn short_texts_are_not_worth_a_trial() {
        let mut trial = Trial::default();
        assert_eq!(trial.sentences(64, 100), 64);
        assert_eq!(trial.sentences(64, 200), 4);
    }
}
