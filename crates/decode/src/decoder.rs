//! Steps all sentences of a batch together, until the last one ends.

use peregrine_nn::{Ask, Choices, Sentence};

use crate::beam::{Banned, Beam, Details};
use crate::hypothesis::Hypothesis;
use crate::scorer::{Member, PlannedRow, Scorer, Slots};
use crate::settings::Settings;

/// A sentence to translate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Job {
    /// Source ids with their frame.
    pub source: Vec<u32>,
    /// Target words allowed, sorted and holding the end symbol; all if there is no list.
    pub words: Option<Vec<u32>>,
    /// The first target words; the search goes on from there. If the end symbol is among them the
    /// whole translation is given, and only its scores are worked out.
    pub prefix: Vec<u32>,
}

/// One worker: a model's networks and a batch.
pub struct Decoder {
    scorer: Scorer,
    /// Memory for the lists of a step.
    rows: Vec<PlannedRow<'static>>,
    asks: Vec<Ask<'static>>,
}

/// A sentence in the batch.
struct Running<'j> {
    /// Its place among the jobs.
    index: usize,
    job: &'j Job,
    slots: Slots,
    beam: Beam,
    /// Where its rows began in the last step.
    first_row: u32,
}

impl Decoder {
    /// A worker for a model of one or several networks.
    pub fn new(members: Vec<Member>) -> Decoder {
        Decoder { scorer: Scorer::new(members), rows: Vec::new(), asks: Vec::new() }
    }

    /// Translates a batch. For each job, in order, its translations, best first. A sentence's
    /// result does not depend on the others.
    pub fn run(&mut self, jobs: &[Job], settings: &Settings) -> Vec<Vec<Hypothesis>> {
        let mut results = vec![Vec::new(); jobs.len()];
        let banned = Banned::new(settings);
        let mut running = self.admit(jobs, settings);
        let mut choices = Choices::default();
        while !running.is_empty() {
            self.step(&mut running, settings, &banned, &mut choices);
            // Finished sentences leave at once.
            running.retain_mut(|sentence| {
                if !sentence.beam.open().is_empty() {
                    return true;
                }
                self.scorer.release(&sentence.slots);
                let empty = Beam::new(settings, 1, Vec::new());
                let beam = std::mem::replace(&mut sentence.beam, empty);
                results[sentence.index] =
                    beam.into_hypotheses(settings.n_best, self.scorer.members());
                false
            });
        }
        results
    }

    fn admit<'j>(&mut self, jobs: &'j [Job], settings: &Settings) -> Vec<Running<'j>> {
        let sentences: Vec<Sentence<'_>> = jobs
            .iter()
            .map(|job| Sentence { source: &job.source, words: job.words.as_deref() })
            .collect();
        if sentences.is_empty() {
            return Vec::new();
        }
        let position_limit = self.scorer.position_limit();
        let slots = self.scorer.admit(&sentences);
        let sentence = |(index, (job, slots)): (usize, (&'j Job, Slots))| {
            let limit = settings.limit(job.source.len(), position_limit);
            let mut prefix = job.prefix.clone();
            prefix.truncate(position_limit);
            let beam = Beam::new(settings, limit, prefix);
            Running { index, job, slots, beam, first_row: 0 }
        };
        jobs.iter().zip(slots).enumerate().map(sentence).collect()
    }

    fn step(
        &mut self,
        running: &mut [Running<'_>],
        settings: &Settings,
        banned: &Banned,
        choices: &mut Choices,
    ) {
        let (mut rows, mut asks) =
            (recycled(std::mem::take(&mut self.rows)), recycled(std::mem::take(&mut self.asks)));
        plan(running, settings, banned, &mut rows, &mut asks);
        self.scorer.step(&rows, settings.alignments);
        self.scorer.best(&rows, &asks, settings.scoring(), choices);
        (self.rows, self.asks) = (recycled(rows), recycled(asks));
        let mut first_row = 0;
        for sentence in running {
            let count = sentence.beam.open().len();
            let words = sentence.job.words.as_deref();
            let scorer = &self.scorer;
            let details = |row: usize, choice| Details {
                member_scores: if settings.scores {
                    scorer.member_scores(first_row + row, words, choice)
                } else {
                    Vec::new()
                },
                alignment: if settings.alignments {
                    scorer.alignment(first_row + row).to_vec()
                } else {
                    Vec::new()
                },
            };
            let of_rows = (first_row..first_row + count).map(|row| choices.of(row));
            sentence.beam.advance(settings, of_rows, details);
            sentence.first_row = first_row as u32;
            first_row += count;
        }
    }
}

/// The rows of a step, those of a sentence together, and what each asks.
fn plan<'a>(
    running: &'a [Running<'_>],
    settings: &Settings,
    banned: &'a Banned,
    rows: &mut Vec<PlannedRow<'a>>,
    asks: &mut Vec<Ask<'a>>,
) {
    for sentence in running {
        let beam = &sentence.beam;
        for open in beam.open() {
            rows.push(PlannedRow {
                slots: &sentence.slots,
                words: sentence.job.words.as_deref(),
                parent: open.parent_row.map(|row| sentence.first_row + row),
                token: beam.last_token(open),
                position: beam.length() as u32,
            });
            asks.push(beam.ask(settings, banned));
        }
    }
}

/// An empty list in the memory of another, whose entries differ in lifetime only.
fn recycled<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}
