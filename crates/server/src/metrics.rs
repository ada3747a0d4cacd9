//! Metrics for Prometheus. Labels never contain input of clients: only existing routes, pairs and
//! models.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Upper bounds of the duration buckets, in seconds.
const BUCKETS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];

/// A histogram of durations.
#[derive(Debug, Default, Clone)]
pub(crate) struct Histogram {
    /// The number of durations in each bucket; the last has no upper bound.
    counts: [u64; BUCKETS.len() + 1],
    seconds: f64,
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BUCKETS.iter().position(|&end| seconds <= end).unwrap_or(BUCKETS.len());
        self.counts[bucket] += 1;
        self.seconds += seconds;
    }
}

/// The server's own counters. Those of a model's service are read for each scrape.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, &'static str, u16), u64>>,
    durations: Mutex<BTreeMap<(&'static str, &'static str), Histogram>>,
    rejected: Mutex<BTreeMap<&'static str, u64>>,
    characters: Mutex<BTreeMap<String, u64>>,
    pub(crate) in_flight: AtomicU64,
    /// Requests whose client disconnected before the answer.
    pub(crate) abandoned: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) cache_hits: AtomicU64,
    pub(crate) cache_misses: AtomicU64,
    /// Texts that joined the running translation of an equal one.
    pub(crate) coalesced: AtomicU64,
    pub(crate) panics: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    pub(crate) fn answered(
        &self,
        api: &'static str,
        route: &'static str,
        status: u16,
        time: Duration,
    ) {
        *lock(&self.requests).entry((api, route, status)).or_default() += 1;
        lock(&self.durations).entry((api, route)).or_default().add(time);
    }

    pub(crate) fn rejected(&self, reason: &'static str) {
        *lock(&self.rejected).entry(reason).or_default() += 1;
    }

    pub(crate) fn translated(&self, pair: &str, characters: usize) {
        let mut counts = lock(&self.characters);
        match counts.get_mut(pair) {
            Some(count) => *count += characters as u64,
            None => drop(counts.insert(pair.to_owned(), characters as u64)),
        }
    }

    /// Writes the server's own counters.
    pub(crate) fn write(&self, page: &mut Exposition) {
        page.family("peregrine_http_requests_total", "counter", "Requests answered");
        for ((api, route, status), count) in lock(&self.requests).iter() {
            page.sample("", &[("api", api), ("route", route), ("status", &status)], count);
        }
        page.family(
            "peregrine_http_request_duration_seconds",
            "histogram",
            "Time from head to answer",
        );
        for ((api, route), histogram) in lock(&self.durations).iter() {
            page.histogram(&[("api", api), ("route", route)], histogram);
        }
        page.family("peregrine_rejected_total", "counter", "Requests refused or failed, by reason");
        for (reason, count) in lock(&self.rejected).iter() {
            page.sample("", &[("reason", reason)], count);
        }
        page.family(
            "peregrine_source_characters_total",
            "counter",
            "Characters of texts accepted for translation",
        );
        for (pair, count) in lock(&self.characters).iter() {
            page.sample("", &[("pair", pair)], count);
        }
        for (name, kind, help, value) in [
            ("peregrine_requests_in_flight", "gauge", "Requests being answered", &self.in_flight),
            ("peregrine_connections", "gauge", "Open connections", &self.connections),
            (
                "peregrine_abandoned_total",
                "counter",
                "Requests whose client left before the answer",
                &self.abandoned,
            ),
            ("peregrine_cache_hits_total", "counter", "Texts found in the cache", &self.cache_hits),
            (
                "peregrine_cache_misses_total",
                "counter",
                "Texts not found in the cache",
                &self.cache_misses,
            ),
            (
                "peregrine_coalesced_total",
                "counter",
                "Texts that joined an equal one in flight",
                &self.coalesced,
            ),
            ("peregrine_panics_total", "counter", "Requests that hit a bug", &self.panics),
        ] {
            page.family(name, kind, help);
            page.sample("", &[], value.load(Relaxed));
        }
    }
}

/// A page in the text format of Prometheus.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
    name: &'static str,
}

impl Exposition {
    /// Begins the samples of a metric.
    pub(crate) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the current metric. Label values are names of this program or of its models.
    pub(crate) fn sample(
        &mut self,
        suffix: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (number, (key, label)) in labels.iter().enumerate() {
            let label =
                label.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{}{key}=\"{label}\"", if number == 0 { '{' } else { ',' });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    fn histogram(&mut self, labels: &[(&str, &dyn Display)], histogram: &Histogram) {
        let mut below = 0;
        for (index, count) in histogram.counts.iter().enumerate() {
            below += count;
            let end: &dyn Display = BUCKETS.get(index).map_or(&"+Inf", |end| end);
            let mut all = labels.to_vec();
            all.push(("le", end));
            self.sample("_bucket", &all, below);
        }
        self.sample("_sum", labels, histogram.seconds);
        self.sample("_count", labels, below);
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_count_up() {
        let metrics = Metrics::default();
        for millis in [1, 3, 300, 500_000] {
            metrics.answered("native", "/v1/translate", 200, Duration::from_millis(millis));
        }
        let mut page = Exposition::default();
        metrics.write(&mut page);
        let text = page.finish();
        let line = |end: &str| {
            format!(
                "duration_seconds_bucket{{api=\"native\",route=\"/v1/translate\",le=\"{end}\"}} "
            )
        };
        assert!(text.contains(&format!("{}1\n", line("0.001"))), "{text}");
        assert!(
            text.contains(&format!("{}3\n", line("120")))
                && text.contains(&format!("{}4\n", line("+Inf"))),
            "{text}"
        );
    }
}
