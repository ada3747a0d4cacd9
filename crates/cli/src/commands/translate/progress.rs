//! The progress line of a job.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use peregrine::Translation;

/// A line on the terminal: lines, tokens a second, time left.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    start: Instant,
    lines: usize,
    tokens: usize,
}

impl Progress {
    /// The progress through an input of so many bytes. Where translations scroll by on the same terminal (`to_file` is false), they are progress
    /// enough.
    pub(super) fn new(quiet: bool, to_file: bool, total_bytes: Option<u64>) -> Progress {
        let visible = std::io::stderr().is_terminal()
            && !quiet
            && (to_file || !std::io::stdout().is_terminal());
        let bar = visible.then(|| match total_bytes {
            Some(total) => ProgressBar::new(total).with_style(style("{bar:24} {msg}, {eta} left")),
            None => ProgressBar::no_length().with_style(style("{spinner} {msg}")),
        });
        Progress { bar, start: Instant::now(), lines: 0, tokens: 0 }
    }

    /// Counts a translated line.
    pub(super) fn advance(&mut self, translation: &Translation, bytes_read: u64) {
        let Some(bar) = &self.bar else { return };
        self.lines += 1;
        self.tokens += translation.alternatives.first().map_or(0, |best| best.scored);
        let speed = self.tokens as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        bar.set_message(format!("{} lines, {speed:.0} tokens/s", self.lines));
        bar.set_position(bytes_read);
    }

    /// Leaves the line as it is.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
