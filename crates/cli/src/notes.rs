//! Remarks about lines, on standard error: the first few in words, the rest as a number.

use peregrine::Translation;

/// Remarks of one kind that are made in words.
const MOST: u64 = 10;

/// What there is to say about the lines of a job.
pub(crate) struct Notes {
    quiet: bool,
    cut: u64,
    runaway: u64,
}

impl Notes {
    /// Nothing has been said; nothing will be if `quiet`.
    pub(crate) fn new(quiet: bool) -> Notes {
        Notes { quiet, cut: 0, runaway: 0 }
    }

    /// Says what is to be said about line `number`, counted from 0.
    pub(crate) fn look_at(&mut self, number: u64, translation: &Translation) {
        let (line, parts) = (number + 1, translation.segments);
        if translation.cut {
            self.cut += 1;
            if self.cut <= MOST && !self.quiet {
                eprintln!(
                    "peregrine: note: line {line} is too long for the model: translated in {parts} parts"
                );
            }
        }
        let why = match translation.verdict {
            verdict if verdict.is_clean() => return,
            verdict if verdict.looped => "repeated itself",
            _ => "did not come to an end",
        };
        self.runaway += 1;
        if self.runaway <= MOST && !self.quiet {
            eprintln!(
                "peregrine: note: the translation of line {line} {why}: made again with repetition \
                 banned"
            );
        }
    }

    /// Says how many there were, where not all were named.
    pub(crate) fn finish(&self) {
        let totals = [
            (self.cut, "lines were too long for the model"),
            (self.runaway, "translations were made again with repetition banned"),
        ];
        for (count, what) in totals.into_iter().filter(|(count, _)| *count > MOST && !self.quiet) {
            eprintln!("peregrine: note: in all {count} {what}");
        }
    }
}
