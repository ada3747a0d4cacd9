//! Which sentences are in the batch, and when others join it (continuous batching).
//!
//! A [`Policy`] has three rules, each policy in a file of its own: in which order waiting
//! sentences are taken, when they may join the running batch, and whether the rows of a finished
//! sentence go on being computed. One loop ([`Worker::serve`](crate::Worker::serve)) applies them;
//! since no row sees another, every policy gives the same translations.
//!
//! | policy | order | joins | finished sentences |
//! |---|---|---|---|
//! | [`naive`] | arrival | an empty batch | are computed until the last one ends |
//! | [`shrink`] | arrival | an empty batch | leave at once |
//! | [`sorted`] | longest first | an empty batch | leave at once |
//! | [`top_up`] | arrival | a running batch | leave at once |
//! | [`auto`] | longest first | a running batch | leave at once |

pub mod auto;
pub mod naive;
mod queue;
pub mod shrink;
pub mod sorted;
mod source;
pub mod top_up;

pub use queue::{Bound, Queue, Refusal, SourceId};
pub(crate) use queue::{Haste, Wake};
pub use sorted::sorted_batches;
pub use source::Waiting;

/// Source tokens of an efficient encoder batch. `bench batching --encode-tokens` shows the cost of a
/// token: with fewer tokens each reads a larger share of the weights, and the activations of more do not fit the
/// cache.
pub const ENCODE_TOKENS: usize = 256;

/// How large a batch may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// The most sentences.
    pub sentences: usize,
    /// The most source tokens; a single longer sentence is a batch of its own.
    pub tokens: usize,
}

impl BatchSize {
    /// The number of first sentences, of these lengths, that make a batch: at least one, if there is
    /// one.
    pub(crate) fn fitting(&self, lengths: impl Iterator<Item = usize>) -> usize {
        let mut tokens = 0;
        let fits = |(count, length): &(usize, usize)| {
            tokens += length;
            *count == 0 || (*count < self.sentences && tokens <= self.tokens)
        };
        lengths.enumerate().take_while(fits).count()
    }
}

/// The priority of a request. Each priority has a batch of its own, and a worker steps the first batch that is
/// not empty: bulk work rests while interactive sentences are translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Priority {
    /// A request whose latency matters.
    Interactive,
    /// A request whose throughput matters.
    #[default]
    Bulk,
}

impl Priority {
    /// All priorities, the highest first.
    pub const ALL: [Priority; Priority::COUNT] = [Priority::Interactive, Priority::Bulk];
    pub(crate) const COUNT: usize = 2;
}

/// The rule that decides which sentences are in the batch at each step.
///
/// ```
/// use peregrine_decode::batching::Policy;
/// assert_eq!("top-up".parse(), Ok(Policy::TopUp));
/// assert_eq!(Policy::default().name(), "auto");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// The papers' baseline, see [`naive`].
    Naive,
    /// Finished sentences leave, see [`shrink`].
    Shrink,
    /// Maxi-batches, see [`sorted`].
    Sorted,
    /// The running batch is refilled, see [`top_up`].
    TopUp,
    /// Top-up batches of the best size, see [`auto`].
    #[default]
    Auto,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 5] =
        [Policy::Naive, Policy::Shrink, Policy::Sorted, Policy::TopUp, Policy::Auto];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Naive => "naive",
            Policy::Shrink => "shrink",
            Policy::Sorted => "sorted",
            Policy::TopUp => "top-up",
            Policy::Auto => "auto",
        }
    }

    fn rules(self) -> Rules {
        match self {
            Policy::Naive => naive::RULES,
            Policy::Shrink => shrink::RULES,
            Policy::Sorted => sorted::RULES,
            Policy::TopUp => top_up::RULES,
            Policy::Auto => auto::RULES,
        }
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Policy, String> {
        let found = Policy::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| "expected naive, shrink, sorted, top-up or auto".to_owned())
    }
}

/// The order in which waiting sentences are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The order of arrival.
    Arrival,
    /// The longest of the window first.
    LongestFirst,
}

/// A policy's rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) order: Order,
    /// Whether sentences may join a batch that is running.
    pub(crate) joins_running: bool,
    /// Whether the rows of finished sentences go on being computed until the batch is empty.
    pub(crate) computes_finished: bool,
}

/// A policy and its numbers.
#[derive(Debug, Clone, Copy)]
pub struct Batching {
    /// The policy.
    pub policy: Policy,
    /// How large the batch may be.
    pub size: BatchSize,
    /// The share of the batch that may still be running when it is refilled, for policies that refill a running
    /// batch. The draft paper's is 0.5, as its refill copies the caches; without one a free place is
    /// filled as soon as an encoded sentence waits for it.
    pub top_up_threshold: Option<f32>,
    /// The most source tokens encoded together. Enough rows for the products to be efficient; more would
    /// only cost memory and delay the decoder.
    pub encode_tokens: usize,
    /// Whether shortlists are a sentence's own or shared by a batch.
    pub scope: Scope,
}

/// The sentences whose words a shortlist has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// A sentence's shortlist has its own words.
    #[default]
    Sentence,
    /// A sentence's shortlist has the words of all sentences that join the batch with it, as in other engines. A
    /// sentence's translation then depends on the others.
    Batch,
}

impl std::str::FromStr for Scope {
    type Err = String;

    fn from_str(name: &str) -> Result<Scope, String> {
        match name {
            "sentence" => Ok(Scope::Sentence),
            "batch" => Ok(Scope::Batch),
            _ => Err("expected sentence or batch".to_owned()),
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Scope::Sentence => "sentence",
            Scope::Batch => "batch",
        })
    }
}

impl Batching {
    /// A policy with its default numbers. A batch has room for at least one sentence.
    pub fn new(policy: Policy, size: BatchSize) -> Batching {
        let size = BatchSize { sentences: size.sentences.max(1), tokens: size.tokens.max(1) };
        Batching {
            policy,
            size,
            top_up_threshold: None,
            encode_tokens: ENCODE_TOKENS,
            scope: Scope::Sentence,
        }
    }

    pub(crate) fn rules(&self) -> Rules {
        self.policy.rules()
    }

    /// Whether sentences may join a batch of `running` sentences.
    pub(crate) fn admits(&self, running: usize) -> bool {
        if running == 0 {
            return true;
        }
        let most = match self.top_up_threshold {
            Some(share) => (f64::from(share) * self.size.sentences as f64) as usize,
            None => self.size.sentences - 1,
        };
        self.rules().joins_running && running <= most.min(self.size.sentences.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("best".parse::<Policy>().is_err());
    }

    #[test]
    fn who_may_join() {
        let size = BatchSize { sentences: 8, tokens: 100 };
        for policy in [Policy::Naive, Policy::Shrink, Policy::Sorted] {
            let batching = Batching::new(policy, size);
            assert!(batching.admits(0) && !batching.admits(1));
        }
        let mut batching = Batching::new(Policy::TopUp, size);
        assert!(batching.admits(7) && !batching.admits(8));
        batching.top_up_threshold = Some(0.5);
        assert!(batching.admits(4) && !batching.admits(5));
    }

    #[test]
    fn a_batch_of_none_is_a_batch_of_one() {
        for policy in Policy::ALL {
            let batching = Batching::new(policy, BatchSize { sentences: 0, tokens: 0 });
            assert!(batching.admits(0) && !batching.admits(1));
            assert_eq!(batching.size, BatchSize { sentences: 1, tokens: 1 });
        }
    }
}
