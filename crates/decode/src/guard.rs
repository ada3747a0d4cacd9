//! Guards against runaway output.
//!
//! Networks sometimes fall into a loop: they repeat the same few words until a limit
//! cuts them short. A guarded search detects this, stops, and begins again with a ban on repeated n-grams, which
//! is stricter the second time; the sentence's [`Verdict`] says so. Other sentences of the batch are not affected.

/// What counts as runaway output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    /// Whether repetition counts.
    pub loops: bool,
    /// The most target tokens for each source token, beyond [`SLACK`]; none if length does not count.
    pub length_ratio: Option<f32>,
}

/// Target tokens that any sentence may have, as the length ratio of short sources varies most.
pub const SLACK: usize = 24;

/// The number of last tokens in which repetition is counted.
const LOOKBACK: usize = 48;

/// Length of the n-grams that are counted.
const ORDER: usize = 3;

/// Length of the n-grams that each further attempt may not repeat. Good sentences repeat three tokens
/// now and then, and two more often, so the stricter ban comes last.
const BANNED_ORDERS: [usize; 2] = [3, 2];

/// Attempts at a sentence.
pub(crate) const ATTEMPTS: usize = 1 + BANNED_ORDERS.len();

/// The most target tokens for each source token, beyond [`SLACK`], of further attempts.
const LAST_RATIO: f32 = 1.5;

/// Tokens between two checks.
const INTERVAL: usize = 8;

impl Default for Guard {
    fn default() -> Guard {
        Guard { loops: true, length_ratio: Some(3.0) }
    }
}

/// What the guards found in a sentence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The first attempt repeated itself.
    pub looped: bool,
    /// The first attempt did not come to an end.
    pub endless: bool,
}

impl Verdict {
    /// Whether nothing was found.
    pub fn is_clean(self) -> bool {
        self == Verdict::default()
    }
}

impl Guard {
    /// The limit of a sentence's target in an attempt, counted from 0. `limit` is the limit without this
    /// guard.
    pub(crate) fn limit(&self, source_length: usize, limit: usize, attempt: usize) -> usize {
        let ratio = self.length_ratio.unwrap_or(f32::INFINITY);
        let ratio = if attempt > 0 { ratio.min(LAST_RATIO) } else { ratio };
        // A float cast saturates.
        limit.min(((ratio * source_length as f32) as usize).saturating_add(SLACK))
    }

    /// Whether a translation of that length is checked for repetition.
    pub(crate) fn looks_at(&self, length: usize) -> bool {
        self.loops && length >= LOOKBACK && length.is_multiple_of(INTERVAL)
    }

    /// Whether a translation of that length that stopped without an end symbol is runaway output.
    pub(crate) fn is_endless(&self, length: usize) -> bool {
        self.length_ratio.is_some() && length >= SLACK
    }

    /// Whether a translation repeats itself, and its source does not.
    ///
    /// ```
    /// use peregrine_decode::Guard;
    /// let (source, words): (Vec<u32>, Vec<u32>) = ((0..20).collect(), (0..60).collect());
    /// assert!(!Guard::default().is_loop(&words, &source));
    /// let round_and_round: Vec<u32> = (0..60).map(|i| i % 7).collect();
    /// assert!(Guard::default().is_loop(&round_and_round, &source));
    /// ```
    pub fn is_loop(&self, target: &[u32], source: &[u32]) -> bool {
        self.loops
            && target.len() >= LOOKBACK
            && repeated(target) * 2 >= LOOKBACK - ORDER
            && repeated(source) * 4 < source.len().min(LOOKBACK)
    }
}

/// How many n-grams among the last tokens have occurred before.
fn repeated(tokens: &[u32]) -> usize {
    let recent = tokens.len().saturating_sub(LOOKBACK);
    // An n-gram and its place are one number: equal ones stand together, in order.
    let number = |(place, gram): (usize, &[u32])| {
        let gram = gram.iter().fold(0, |number: u128, &token| number << 32 | u128::from(token));
        gram << 32 | place as u128
    };
    let mut grams: Vec<u128> = tokens.windows(ORDER).enumerate().map(number).collect();
    grams.sort_unstable();
    let is_again = |pair: &&[u128]| pair[0] >> 32 == pair[1] >> 32;
    let place = |pair: &[u128]| pair[1] as u32 as usize;
    grams.windows(2).filter(is_again).filter(|pair| place(pair) >= recent).count()
}

/// Adds to `banned`, sorted, the words with which `tokens` would repeat an n-gram that the attempt
/// may not repeat.
pub(crate) fn ban_repetition(tokens: &[u32], attempt: usize, banned: &mut Vec<u32>) {
    let order = attempt.checked_sub(1).and_then(|attempt| BANNED_ORDERS.get(attempt));
    let Some(&order) = order else { return };
    let Some(start) = tokens.len().checked_sub(order - 1) else { return };
    let last = &tokens[start..];
    let repeats = tokens.windows(order).filter(|gram| gram[..order - 1] == *last);
    banned.extend(repeats.map(|gram| gram[order - 1]));
    banned.sort_unstable();
    banned.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_again_and_again_is_a_loop() {
        let target = vec![5; 60];
        assert!(Guard::default().is_loop(&target, &[1, 2, 3]));
        assert!(!Guard { loops: false, ..Guard::default() }.is_loop(&target, &[1, 2, 3]));
    }

    #[test]
    fn a_source_that_repeats_itself_may_be_translated_so() {
        let laughter = vec![7; 60];
        assert!(!Guard::default().is_loop(&laughter, &laughter));
    }

    #[test]
    fn a_fresh_ending_after_some_repetition_is_no_loop() {
        let target: Vec<u32> = (0..60).map(|i| if i < 20 { i % 5 } else { i }).collect();
        assert!(!Guard::default().is_loop(&target, &[1, 2, 3]));
    }

    #[test]
    fn the_word_that_would_repeat_is_banned() {
        let mut banned = vec![9];
        ban_repetition(&[1, 2, 3, 4, 1, 2], 1, &mut banned);
        assert_eq!(banned, [3, 9]);
        ban_repetition(&[1], 1, &mut banned);
        ban_repetition(&[5, 2, 7, 2], 0, &mut banned);
        assert_eq!(banned, [3, 9]);
        ban_repetition(&[5, 2, 7, 2], 2, &mut banned);
        assert_eq!(banned, [3, 7, 9]);
    }

    #[test]
    fn repetition_is_counted_as_defined() {
        let mut state = 1u32;
        for length in 0..120 {
            for words in [2, 3, 5, 40] {
                let mut word = || {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if state >> 31 == 0 { u32::MAX - (state >> 16) % words } else { state >> 16 }
                };
                let tokens: Vec<u32> = (0..length).map(|_| word()).collect();
                let mut seen = std::collections::HashSet::new();
                let recent = tokens.len().saturating_sub(LOOKBACK);
                let grams = tokens.windows(ORDER).enumerate();
                let again = grams.filter(|(place, gram)| !seen.insert(*gram) && *place >= recent);
                assert_eq!(repeated(&tokens), again.count(), "{tokens:?}");
            }
        }
    }

    #[test]
    fn limits_leave_short_sentences_room() {
        let guard = Guard::default();
        assert_eq!(guard.limit(2, 1000, 0), 30);
        assert_eq!(guard.limit(100, 250, 0), 250);
        assert_eq!(Guard { length_ratio: None, ..guard }.limit(2, 1000, 0), 1000);
    }
}
