//! What the benchmarks have in common: requests, clocks, and rounds of several contestants in turns.

use std::path::Path;
use std::time::{Duration, Instant};

use peregrine::measure::of_length;
use peregrine::{Request, Stats, Translation, Translator};
use peregrine_args::lines::Lines;
use peregrine_args::search::Setup;

use crate::plot::{Plot, Series};

/// Target lengths, one a line: a number, or text whose words are counted with the end symbol.
pub(crate) fn read_lengths(path: &Path) -> anyhow::Result<Vec<usize>> {
    let lines = Lines::read_all(path)?;
    let length = |line: &String| match line.trim().parse::<usize>() {
        Ok(number) => number.max(1),
        Err(_) => line.split_whitespace().count() + 1,
    };
    Ok(lines.iter().map(length).collect())
}

/// A request for each line, with a target length where `lengths` has one.
pub(crate) fn requests<'a>(lines: &'a [String], lengths: &[usize]) -> Vec<Request<'a>> {
    let lengths = lengths.iter().map(Some).chain(std::iter::repeat(None));
    let request = |(line, length): (&'a String, Option<&usize>)| match length {
        Some(&length) => of_length(line, length),
        None => Request::new(line),
    };
    lines.iter().zip(lengths).map(request).collect()
}

/// Tokens of the best translation, end symbol included if it has one.
pub(crate) fn count_tokens(translation: &Translation) -> usize {
    translation.alternatives.first().map_or(0, |best| best.tokens.len() + usize::from(best.ended))
}

/// Seconds of processor time of all threads so far, those that have ended included. Unlike wall
/// time, it hardly depends on what else runs on the machine.
pub(crate) fn cpu_time() -> Option<f64> {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
    }
    #[cfg(not(unix))]
    None
}

/// A translator and its options, to be compared with others.
pub(crate) struct Contestant<'a> {
    pub(crate) name: &'static str,
    pub(crate) translator: &'a Translator,
    pub(crate) setup: Setup,
}

/// The measurements of one contestant.
#[derive(Default)]
pub(crate) struct Measured {
    /// Seconds of each round.
    pub(crate) seconds: Vec<f64>,
    /// Target tokens of a round.
    pub(crate) tokens: usize,
    /// Statistics of the fastest round, which other programs have disturbed least.
    pub(crate) stats: Stats,
}

impl Measured {
    /// The median of the rounds, in seconds.
    pub(crate) fn median(&self) -> f64 {
        quantile(&self.seconds, 2)
    }

    /// Target tokens a second.
    pub(crate) fn speed(&self) -> f64 {
        self.tokens as f64 / self.median()
    }

    /// Milliseconds of each step.
    pub(crate) fn step_times(&self) -> Vec<f64> {
        self.stats.trace.iter().map(|step| milliseconds(step.time)).collect()
    }
}

/// Measures all contestants in turns, `rounds` times each, by processor time with one worker and by
/// wall time with several. On a GPU by wall time without tokenisation, after two rounds of warm-up:
/// the second time the same work is recorded as a CUDA graph.
pub(crate) fn measure(
    contestants: &[Contestant<'_>],
    requests: &[Request<'_>],
    rounds: usize,
    on_gpu: bool,
) -> anyhow::Result<Vec<Measured>> {
    let warm_up = if on_gpu { 2 } else { 0 };
    let mut results: Vec<Measured> = contestants.iter().map(|_| Measured::default()).collect();
    for round in 0..warm_up + rounds.max(1) {
        for (contestant, result) in contestants.iter().zip(&mut results) {
            let mut stats = Stats { tracing: true, ..Stats::default() };
            let (start, cpu_start) = (Instant::now(), cpu_time());
            let translations =
                contestant.setup.measure(contestant.translator, requests, &mut stats)?;
            let wall = start.elapsed();
            let cpu = cpu_time().zip(cpu_start).map(|(end, start)| end - start);
            if round < warm_up {
                continue;
            }
            let seconds = match cpu.filter(|_| contestant.setup.workers.threads == 1) {
                _ if on_gpu => (wall - stats.tokenise - stats.detokenise).as_secs_f64(),
                Some(cpu) => cpu,
                None => wall.as_secs_f64(),
            };
            if result.seconds.iter().all(|&other| seconds < other) {
                result.stats = stats;
            }
            result.seconds.push(seconds);
            result.tokens = translations.iter().map(count_tokens).sum();
        }
    }
    Ok(results)
}

/// The time of each step of a batch, as measured with each contestant.
pub(crate) fn plot_steps(
    title: String,
    contestants: &[Contestant<'_>],
    measured: &[Measured],
) -> Plot {
    let series = contestants.iter().zip(measured).map(|(contestant, measured)| {
        let steps = measured.step_times().into_iter().enumerate();
        let points = steps.map(|(i, time)| (i as f64 + 1.0, time)).collect();
        Series { name: contestant.name.to_owned(), points }
    });
    Plot {
        title,
        x_label: "step".to_owned(),
        y_label: "milliseconds".to_owned(),
        logarithmic: false,
        series: series.collect(),
    }
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// The means of the first, the second and the last third of some values.
pub(crate) fn thirds(values: &[f64]) -> [f64; 3] {
    [0, 1, 2].map(|i| {
        let third = &values[i * values.len() / 3..(i + 1) * values.len() / 3];
        third.iter().sum::<f64>() / third.len().max(1) as f64
    })
}

/// The value that one in `parts` of the values lies below: 2 gives the median, 4 the lower quartile.
pub(crate) fn quantile(values: &[f64], parts: usize) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / parts).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_threads_that_have_ended_counts() {
        let Some(start) = cpu_time() else { return };
        let begun = Instant::now();
        let work = || while begun.elapsed().as_millis() < 50 {};
        std::thread::scope(|scope| drop(scope.spawn(work)));
        assert!(cpu_time().is_some_and(|end| end - start > 0.005));
    }
}
