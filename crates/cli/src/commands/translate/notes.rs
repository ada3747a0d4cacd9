//! Remarks about lines, on standard error: the first few in words, the rest as a number.

use std::sync::atomic::{AtomicUsize, Ordering};

use peregrine::{Flag, How, Model, Term, Translation};

use peregrine_args::console::remark;

/// Remarks of one kind that are made in words.
const MOST: u64 = 10;

/// What there is to say about the lines of a job.
#[derive(Default)]
pub(crate) struct Notes {
    quiet: bool,
    cut: u64,
    copied: u64,
    lost: u64,
    runaway: u64,
    /// How many terms of a glossary there were of each kind; none without a glossary.
    terms: Option<[u64; How::ALL.len()]>,
    /// Lines with terms that are missing.
    missing: u64,
    /// Lines that were judged, those by no table of their model, those with a flag, and how many have each.
    judged: u64,
    uncalibrated: u64,
    flagged: u64,
    flags: [u64; Flag::ALL.len()],
}

impl Notes {
    /// Nothing has been said; nothing will be if `quiet`.
    pub(crate) fn new(quiet: bool, glossary: bool) -> Notes {
        let terms = glossary.then(Default::default);
        Notes { quiet, terms, ..Notes::default() }
    }

    /// Says what is to be said about line `number`, counted from 0.
    pub(crate) fn look_at(&mut self, number: u64, translation: &Translation) {
        let (line, parts) = (number + 1, translation.segments);
        if translation.cut {
            self.cut += 1;
            if self.cut <= MOST && !self.quiet {
                remark!("note: line {line} is too long for the model: translated in {parts} parts");
            }
        }
        if translation.copied {
            self.copied += 1;
            if self.copied <= MOST && !self.quiet {
                remark!(
                    "note: line {line} has a stretch too long for the model and without a place to cut: copied"
                );
            }
        }
        if translation.lost > 0 {
            self.lost += 1;
            if self.lost <= MOST && !self.quiet {
                let lost = translation.lost;
                remark!(
                    "note: line {line}: the model lost {lost} of what was carried; put where attention says"
                );
            }
        }
        self.count_terms(line, &translation.terms);
        if let Some(quality) = translation.quality() {
            self.judged += 1;
            self.uncalibrated += u64::from(!quality.is_calibrated());
            self.flagged += u64::from(!quality.flags.is_empty());
            let counts = self.flags.iter_mut().zip(Flag::ALL);
            counts.for_each(|(count, flag)| *count += u64::from(quality.flags.has(flag)));
        }
        let why = match translation.verdict {
            verdict if verdict.is_clean() => return,
            verdict if verdict.looped => "repeated itself",
            _ => "did not come to an end",
        };
        self.runaway += 1;
        if self.runaway <= MOST && !self.quiet {
            remark!(
                "note: the translation of line {line} {why}: made again with repetition \
                 banned"
            );
        }
    }

    /// Counts the terms of a line, and says which are missing.
    fn count_terms(&mut self, line: u64, terms: &[Term]) {
        let Some(counts) = &mut self.terms else { return };
        for (how, count) in How::ALL.iter().zip(counts) {
            *count += terms.iter().filter(|term| term.how == *how).count() as u64;
        }
        let Some(missing) = terms.iter().find(|term| term.how == How::Missing) else { return };
        self.missing += 1;
        if self.missing <= MOST && !self.quiet {
            let (wanted, fate) =
                (&missing.wanted, if missing.forbidden { "there" } else { "missing" });
            remark!("note: line {line}: the term `{wanted}` is {fate}");
        }
    }

    /// Says how many there were, where not all were named, and whether the shortlist fits the text.
    pub(crate) fn finish(&self, coverage: &Coverage<'_>) {
        if self.quiet {
            return;
        }
        if let Some(share) = coverage.absurd() {
            let percent = 100.0 * share;
            remark!(
                "note: the shortlist has no words for {percent:.0} % of the source tokens: is it another \
                 model's, or the text in another language?"
            );
        }
        if self.uncalibrated > 0 {
            remark!(
                "note: quality scores are uncalibrated: `peregrine calibrate` makes a table for this model \
                 and its shortlist"
            );
        }
        if self.flagged > 0 {
            let counts = self.flags.iter().zip(Flag::ALL).filter(|(count, _)| **count > 0);
            let counts: Vec<String> =
                counts.map(|(count, flag)| format!("{} {count}", flag.name())).collect();
            let (flagged, judged) = (self.flagged, self.judged);
            remark!("note: {flagged} of {judged} lines have flags: {}", counts.join(", "));
        }
        let totals = [
            (self.cut, "lines were too long for the model"),
            (self.copied, "lines have stretches that were copied"),
            (self.lost, "lines have carried stretches that the model lost"),
            (self.runaway, "translations were made again with repetition banned"),
            (self.missing, "lines miss terms of the glossary"),
        ];
        for (count, what) in totals.into_iter().filter(|(count, _)| *count > MOST) {
            remark!("note: in all {count} {what}");
        }
        if let Some(counts) = self.terms {
            let all: u64 = counts.iter().sum();
            let parts = How::ALL.iter().zip(counts).filter(|(_, count)| *count > 0);
            let parts: String = parts.map(|(how, count)| format!(", {count} {how}")).collect();
            let terms = if all == 1 { "term" } else { "terms" };
            remark!("{all} {terms}{parts}");
        }
    }
}

/// How much of a text a shortlist knows, by its first lines.
pub(crate) struct Coverage<'a> {
    model: &'a Model,
    lines: AtomicUsize,
    tokens: AtomicUsize,
    unlisted: AtomicUsize,
}

impl<'a> Coverage<'a> {
    /// Lines that are looked at: enough to tell, and tokenised twice in no time.
    const LINES: usize = 100;
    /// Tokens that tell something.
    const ENOUGH: usize = 100;
    /// A share of tokens without words of their own that no table of the right model leaves.
    const ABSURD: f64 = 0.5;

    /// Of a model's shortlist.
    pub(crate) fn new(model: &'a Model) -> Coverage<'a> {
        let zero = AtomicUsize::default;
        Coverage { model, lines: zero(), tokens: zero(), unlisted: zero() }
    }

    /// Counts the tokens of a line.
    pub(crate) fn look_at(&self, line: &str) {
        let Some(shortlist) = &self.model.shortlist else { return };
        if self.lines.fetch_add(1, Ordering::Relaxed) >= Coverage::LINES {
            return;
        }
        let ids = self.model.source.encode(line).ids;
        let unlisted = ids.iter().filter(|&&id| shortlist.list(id).is_empty()).count();
        self.tokens.fetch_add(ids.len(), Ordering::Relaxed);
        self.unlisted.fetch_add(unlisted, Ordering::Relaxed);
    }

    /// The share of tokens without words of their own, if it cannot be right.
    fn absurd(&self) -> Option<f64> {
        let tokens = self.tokens.load(Ordering::Relaxed);
        let share = self.unlisted.load(Ordering::Relaxed) as f64 / tokens.max(1) as f64;
        (tokens >= Coverage::ENOUGH && share > Coverage::ABSURD).then_some(share)
    }
}
