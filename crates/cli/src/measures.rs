//! What benchmarks measure by.

use std::path::Path;

use peregrine::Translation;

use crate::lines::Lines;

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

/// Processor time of all threads so far, where the system tells: what to compare on a busy machine.
pub(crate) fn cpu_time() -> Option<f64> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let nanoseconds = threads.flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(nanoseconds.sum::<u64>() as f64 / 1e9)
}
