//! Reports of measurements, for people and programs.

use std::time::Duration;

use peregrine::Stats;
use serde_json::{Value, json};

/// The statistics of a run that took `wall` time, as JSON.
pub fn describe(stats: &Stats, wall: Duration) -> Value {
    let seconds = |time: Duration| time.as_secs_f64();
    let share = |part: u64, whole: u64| part as f64 / (whole as f64).max(1.0);
    let parts: serde_json::Map<String, Value> =
        stats.parts.iter().map(|(name, time)| (name.clone(), json!(seconds(*time)))).collect();
    json!({
        "seconds": seconds(wall),
        "phases": {
            "tokenise": seconds(stats.tokenise),
            "encode": seconds(stats.encode),
            "decode": seconds(stats.decode),
            "output": seconds(stats.output),
            "bookkeeping": seconds(stats.search),
            "detokenise": seconds(stats.detokenise),
            "waiting": seconds(stats.waiting),
        },
        "parts": parts,
        "steps": stats.steps,
        "batch": {
            "rows": stats.rows,
            "rows_a_step": share(stats.rows, stats.steps),
            "sentences_a_step": share(stats.sentences, stats.steps),
            "full": share(stats.sentences, stats.places),
            "occupancy": stats.occupancy,
        },
        "padding": {
            "dead_rows": stats.dead_rows,
            "dead_share": share(stats.dead_rows, stats.rows),
            "empty_places": stats.places - stats.sentences.min(stats.places),
            "source_tokens": stats.source_tokens,
            "source_padding_avoided": stats.source_padding,
            "source_reads": stats.source_reads,
            "read_padding_avoided": stats.read_padding,
        },
        "encoder": {
            "runs": stats.encodings,
            "tokens_a_run": share(stats.source_tokens, stats.encodings),
        },
        "queue": {
            "mean": share(stats.queue_sum, stats.queue_looks),
            "most": stats.queue_most,
        },
        "peak_memory_mb": peak_memory_mb(),
    })
}

/// The peak memory of this process, where the system reports it.
pub fn peak_memory_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}

/// Parses a number of bytes with a unit: `300MB`, `1.5G`, `64MiB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text[..text.len() - unit.len()]
        .parse()
        .map_err(|_| "expected a number of bytes such as 300MB".to_owned())?;
    let factor = match unit.trim().to_ascii_lowercase().trim_end_matches('b') {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "ki" => 1024.0,
        "mi" => 1024.0 * 1024.0,
        "gi" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err("expected a unit of kB, MB, GB, KiB, MiB or GiB".to_owned()),
    };
    let bytes = number * factor;
    if bytes < 1e6 && factor == 1.0 && number >= 1.0 {
        return Err(format!("{bytes} bytes are too few: did you mean {number}MB?"));
    }
    if bytes < 1e6 {
        return Err("expected at least 1MB".to_owned());
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_units() {
        assert_eq!(parse_bytes("300MB"), Ok(300_000_000));
        assert_eq!(parse_bytes("1.5g"), Ok(1_500_000_000));
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("60000000"), Ok(60_000_000));
        assert_eq!(parse_bytes("300").unwrap_err(), "300 bytes are too few: did you mean 300MB?");
        assert_eq!(parse_bytes("0").unwrap_err(), "expected at least 1MB");
        assert_eq!(parse_bytes("900kB").unwrap_err(), "expected at least 1MB");
        for bad in ["", "MB", "300", "3 apples", "-5MB", "1e9"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
