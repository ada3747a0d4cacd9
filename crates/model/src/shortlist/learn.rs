//! Translation probabilities of words from parallel text: IBM model 1, by expectation maximisation.
//!
//! Every target word of a pair was made by one of its source words or by nothing, all equally likely
//! beforehand: `p(t, s) = p(t | s) / (source words + 1)`. A round shares each target word out among
//! the source words of its pair as the probabilities have it so far, and counts. What a round does
//! for one target word depends on no other, so that the words are dealt out to shards, each with a
//! table of its own: several threads make the same numbers as one.
//!
//! The table holds a number for every pair of words seen together, about 30 bytes each. Past
//! `most_entries` the rarest pairs of a shard are forgotten (see [`Progress::forgotten`]), so that
//! memory stays bounded whatever the text.

use rustc_hash::FxHashMap;

/// Tables the target words are dealt out to; the same whatever the number of threads.
const SHARDS: usize = 16;

/// Source and target ids of many lines, end to end.
#[derive(Debug, Clone, Default)]
pub struct ParallelText {
    sides: [Vec<u32>; 2],
    /// Where the lines end on each side.
    ends: Vec<[usize; 2]>,
}

impl ParallelText {
    /// Adds a pair of lines.
    pub fn push(&mut self, source: &[u32], target: &[u32]) {
        self.sides[0].extend(source);
        self.sides[1].extend(target);
        self.ends.push([self.sides[0].len(), self.sides[1].len()]);
    }

    /// The same text in the other direction.
    pub fn reversed(self) -> ParallelText {
        let [source, target] = self.sides;
        let ends = self.ends.into_iter().map(|[source, target]| [target, source]).collect();
        ParallelText { sides: [target, source], ends }
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn pairs(&self) -> impl Iterator<Item = (&[u32], &[u32])> {
        let mut start = [0, 0];
        self.ends.iter().map(move |&[source, target]| {
            let pair = (&self.sides[0][start[0]..source], &self.sides[1][start[1]..target]);
            start = [source, target];
            pair
        })
    }
}

/// How a lexicon is learned.
#[derive(Debug, Clone, Copy)]
pub struct Learning {
    /// Rounds over the text.
    pub rounds: usize,
    /// Translations kept for a word.
    pub best: usize,
    /// The probability that a translation must exceed to be kept.
    pub prune: f32,
    /// The most pairs of words in memory; beyond it the rarest are dropped.
    pub most_entries: usize,
    /// The number of threads.
    pub threads: usize,
}

impl Default for Learning {
    fn default() -> Learning {
        Learning { rounds: 5, best: 100, prune: 1e-4, most_entries: 60_000_000, threads: 1 }
    }
}

/// How far learning has come.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Rounds done.
    pub round: usize,
    /// Mean of the negative log2 of a target word's probability, before this round.
    pub bits: f64,
    /// Pairs of words in the table.
    pub entries: usize,
    /// Pairs dropped to bound the memory.
    pub forgotten: usize,
}

/// Translations of every source word and how probable they are, falling; ties by id.
pub type Lexicon = Vec<Vec<(u32, f32)>>;

/// Learns the translations of `source_size` words. `report` is called after every round.
pub fn learn(
    text: &ParallelText,
    source_size: usize,
    learning: &Learning,
    mut report: impl FnMut(Progress),
) -> Lexicon {
    let mut shards: Vec<Shard> = (0..SHARDS).map(Shard::new).collect();
    let most = (learning.most_entries / SHARDS).max(1);
    let tokens = text.sides[1].len().max(1);
    for round in 0..learning.rounds.max(1) {
        let per_thread = SHARDS.div_ceil(learning.threads.clamp(1, SHARDS));
        std::thread::scope(|scope| {
            for group in shards.chunks_mut(per_thread) {
                let work = move || group.iter_mut().for_each(|s| s.count(text, round == 0, most));
                scope.spawn(work);
            }
        });
        let mut totals = vec![0.0_f64; source_size + 1];
        shards.iter().for_each(|shard| shard.add_totals(&mut totals));
        shards.iter_mut().for_each(|shard| shard.divide(&totals));
        report(Progress {
            round: round + 1,
            bits: shards.iter().map(|shard| shard.bits).sum::<f64>() / tokens as f64,
            entries: shards.iter().map(|shard| shard.table.len()).sum(),
            forgotten: shards.iter().map(|shard| shard.forgotten).sum(),
        });
    }
    let mut lexicon: Lexicon = vec![Vec::new(); source_size];
    for (&(source, target), entry) in shards.iter().flat_map(|shard| &shard.table) {
        if entry.probability > learning.prune
            && let Some(list) = lexicon.get_mut(source as usize)
        {
            list.push((target, entry.probability));
        }
    }
    for list in &mut lexicon {
        list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        list.truncate(learning.best);
    }
    lexicon
}

/// Stands for no source word.
const NOTHING: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    probability: f32,
    count: f32,
}

/// The target words whose ids leave one remainder, with all their source words.
struct Shard {
    remainder: u32,
    table: FxHashMap<(u32, u32), Entry>,
    /// Where a sentence's entries were found.
    found: Vec<f32>,
    bits: f64,
    forgotten: usize,
}

impl Shard {
    fn new(remainder: usize) -> Shard {
        let remainder = remainder as u32;
        let (table, found) = (FxHashMap::default(), Vec::new());
        Shard { remainder, table, found, bits: 0.0, forgotten: 0 }
    }

    /// Shares the target words out among the source words. In the first round all are alike.
    fn count(&mut self, text: &ParallelText, first: bool, most: usize) {
        self.bits = 0.0;
        for (source, target) in text.pairs() {
            for &word in target.iter().filter(|&&w| w % SHARDS as u32 == self.remainder) {
                if first {
                    let share = 1.0 / (source.len() + 1) as f32;
                    for &source in source.iter().chain([&NOTHING]) {
                        self.table.entry((source, word)).or_default().count += share;
                    }
                    continue;
                }
                self.found.clear();
                let probability = |source: &u32| {
                    self.table.get(&(*source, word)).map_or(0.0, |entry| entry.probability)
                };
                self.found.extend(source.iter().chain([&NOTHING]).map(probability));
                let sum: f32 = self.found.iter().sum();
                if sum <= 0.0 {
                    continue; // all its pairs were forgotten
                }
                self.bits -= f64::from(sum / (source.len() + 1) as f32).log2();
                for (&source, share) in source.iter().chain([&NOTHING]).zip(&self.found) {
                    if let Some(entry) = self.table.get_mut(&(source, word)) {
                        entry.count += share / sum;
                    }
                }
            }
            if first && self.table.len() > most {
                self.forget(most / 2);
            }
        }
    }

    /// Forgets the rarest pairs until few enough are left.
    fn forget(&mut self, kept: usize) {
        let mut counts: Vec<f32> = self.table.values().map(|entry| entry.count).collect();
        let place = counts.len().saturating_sub(kept).min(counts.len() - 1);
        let (_, &mut least, _) = counts.select_nth_unstable_by(place, f32::total_cmp);
        let before = self.table.len();
        // Where many are alike, those beyond the number go too: what is left must be few.
        self.table.retain(|_, entry| entry.count > least);
        self.forgotten += before - self.table.len();
    }

    /// The order of the table is that of what was put in: it does not differ from run to run.
    fn add_totals(&self, totals: &mut [f64]) {
        let last = totals.len() - 1;
        for (&(source, _), entry) in &self.table {
            totals[(source as usize).min(last)] += f64::from(entry.count);
        }
    }

    fn divide(&mut self, totals: &[f64]) {
        let last = totals.len() - 1;
        self.table.retain(|(source, _), entry| {
            let total = totals[(*source as usize).min(last)];
            entry.probability = (f64::from(entry.count) / total.max(f64::MIN_POSITIVE)) as f32;
            entry.count = 0.0;
            // What has all but vanished only costs memory.
            entry.probability > 1e-7
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small language: word n is n + 10, in any order.
    fn text() -> ParallelText {
        let mut text = ParallelText::default();
        for i in 0..200_u32 {
            let source: Vec<u32> = (0..3).map(|j| (i * 7 + j * j * 3 + i / 5 * 2) % 9).collect();
            let target: Vec<u32> = source.iter().rev().map(|word| word + 10).collect();
            text.push(&source, &target);
        }
        text
    }

    #[test]
    fn translations_are_found() {
        let mut bits = Vec::new();
        let lexicon = learn(&text(), 9, &Learning::default(), |p| bits.push(p.bits));
        for (word, list) in lexicon.iter().enumerate() {
            assert_eq!(list[0].0, word as u32 + 10, "{list:?}");
            assert!(list.iter().map(|(_, p)| p).sum::<f32>() < 1.0001);
        }
        assert!(
            bits[1..].is_sorted_by(|a, b| a >= b),
            "no round makes the text less likely: {bits:?}"
        );
    }

    #[test]
    fn threads_make_the_same_numbers() {
        let one = learn(&text(), 9, &Learning::default(), |_| {});
        let learning = Learning { threads: 3, ..Learning::default() };
        assert_eq!(learn(&text(), 9, &learning, |_| {}), one);
    }

    #[test]
    fn memory_is_bounded_and_lists_are_short() {
        let learning = Learning { most_entries: 16 * 2, best: 2, ..Learning::default() };
        let mut last = None;
        let lexicon = learn(&text(), 9, &learning, |progress| last = Some(progress));
        let last = last.unwrap();
        assert!(last.entries <= 16 * 2 && last.forgotten > 0, "{last:?}");
        assert!(lexicon.iter().all(|list| list.len() <= 2));
    }

    #[test]
    fn odd_texts_do_no_harm() {
        let mut text = ParallelText::default();
        assert!(learn(&text, 3, &Learning::default(), |_| {}).iter().all(Vec::is_empty));
        text.push(&[], &[1]);
        text.push(&[2], &[]);
        text.push(&[u32::MAX - 1], &[5]);
        let lexicon = learn(&text, 3, &Learning::default(), |_| {});
        assert_eq!(lexicon.len(), 3);
        let reversed = text.reversed();
        assert_eq!(reversed.len(), 3);
        learn(&reversed, 3, &Learning::default(), |_| {});
    }
}
