//! What benchmarks measure by.

use std::path::Path;

use peregrine::Translation;

use peregrine_args::lines::Lines;

/// Target lengths, one a line: a number, or text whose words are counted with the end symbol.
pub(crate) fn read_lengths(path: &Path) -> anyhow::Result<Vec<usize>> {
    let lines = Lines::read_all(path)?;
    let length = |line: &String| match line.trim().parse::<usize>() {
        Ok(number) => number.max(1),
        Err(_) => line.split_whitespace().count() + 1,
    };
    Ok(lines.iter().map(length).collect())
}

/// Tokens of the best translation, end symbol included if it has one.
pub(crate) fn count_tokens(translation: &Translation) -> usize {
    translation.alternatives.first().map_or(0, |best| best.tokens.len() + usize::from(best.ended))
}

/// Processor time of all threads so far, those that have ended included: what to compare on a busy
/// machine.
pub(crate) fn cpu_time() -> Option<f64> {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
    }
    #[cfg(not(unix))]
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_threads_that_have_ended_counts() {
        let Some(start) = cpu_time() else { return };
        let begun = std::time::Instant::now();
        let work = || while begun.elapsed().as_millis() < 50 {};
        std::thread::scope(|scope| drop(scope.spawn(work)));
        assert!(cpu_time().is_some_and(|end| end - start > 0.005));
    }
}
