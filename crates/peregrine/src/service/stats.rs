//! The statistics of a service.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use peregrine_decode::Counts;

/// A snapshot of a service: the queue, and counters since its start.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ServiceStats {
    /// Queued sentences of interactive requests.
    pub waiting_interactive: usize,
    /// Queued sentences of bulk requests.
    pub waiting_bulk: usize,
    /// Bytes of the queue.
    pub waiting_bytes: usize,
    /// Requests that have not ended.
    pub open: usize,
    /// Requests accepted.
    pub accepted: u64,
    /// Requests answered with a translation or a score.
    pub answered: u64,
    /// Requests cancelled by their caller.
    pub cancelled: u64,
    /// Requests whose deadline passed.
    pub late: u64,
    /// Requests refused because the queue was full.
    pub refused: u64,
    /// Requests that failed otherwise.
    pub failed: u64,
    /// Steps, rows and tokens. Batches were filled with `sentences / steps` sentences on average.
    pub counts: Counts,
    /// The latencies of answered requests, from acceptance to answer.
    pub latencies: Latencies,
    /// Bytes of memory of this process, if the system reports them.
    pub memory: Option<u64>,
}

/// A histogram of times, with eight buckets for each power of two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    counts: Vec<u64>,
}

/// The number of buckets: eight for each power of two microseconds, up to 2³⁶ (19 hours).
const BUCKETS: usize = 8 * 33;

fn bucket(time: Duration) -> usize {
    let micros = time.as_micros().clamp(8, u128::from(u64::MAX)) as u64;
    let power = 63 - micros.leading_zeros() as usize;
    let eighth = (micros >> (power - 3)) as usize & 7;
    (8 * (power - 3) + eighth).min(BUCKETS - 1)
}

/// The upper bound of a bucket.
fn end_of(bucket: usize) -> Duration {
    let (power, eighth) = (bucket / 8 + 3, bucket as u64 % 8);
    Duration::from_micros(((9 + eighth) << (power - 3)) - 1)
}

impl Latencies {
    /// A quantile of the times: 0.95 gives the 95th percentile.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let all: u64 = self.counts.iter().sum();
        let wanted = (share * all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(end_of)
    }

    /// The number of times in the histogram.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// The counters of a service.
pub(super) struct Tally {
    pub(super) accepted: AtomicU64,
    pub(super) answered: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) failed: AtomicU64,
    latencies: Vec<AtomicU64>,
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally {
            accepted: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            late: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            latencies: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn answered_after(&self, time: Duration) {
        self.answered.fetch_add(1, Relaxed);
        self.latencies[bucket(time)].fetch_add(1, Relaxed);
    }

    pub(super) fn latencies(&self) -> Latencies {
        Latencies { counts: self.latencies.iter().map(|count| count.load(Relaxed)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_an_eighth_wide() {
        for micros in (1..4096).chain([10_000, 999_999, 3_600_000_000]) {
            let time = Duration::from_micros(micros);
            let end = end_of(bucket(time));
            assert!(end >= time && end.as_micros() as f64 <= micros.max(8) as f64 * 1.13);
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles() {
        let tally = Tally::new();
        (1..=100).for_each(|ms| tally.answered_after(Duration::from_millis(ms)));
        let latencies = tally.latencies();
        let at = |share| latencies.quantile(share).map_or(0, |time| time.as_millis());
        assert!((50..=57).contains(&at(0.5)) && (95..=107).contains(&at(0.95)), "{latencies:?}");
        assert_eq!((latencies.count(), Latencies::default().quantile(0.5)), (100, None));
    }
}
