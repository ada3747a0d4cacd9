//! A sentence in the batch: its search, its slots in the caches, and further attempts after runaway output.

use peregrine_model::Finish;
use peregrine_nn::{DeviceBeam, MOST_PLACES, Origin, RowRequest, RunAhead, Scoring};

use crate::beam::Beam;
use crate::guard::{ATTEMPTS, Guard, Verdict, ban_repetition};
use crate::hypothesis::Hypothesis;
use crate::job::Job;
use crate::scorer::{EnsembleRow, Slots};

/// The rows of a step of all sentences.
#[derive(Default)]
pub(crate) struct StepRows<'a> {
    pub(crate) rows: Vec<EnsembleRow<'a>>,
    /// The top-k request of each row.
    pub(crate) requests: Vec<RowRequest<'a>>,
    /// The device beam of each sentence.
    pub(crate) device_beams: Vec<DeviceBeam>,
}

/// A sentence in the batch.
pub(crate) struct Running {
    pub(crate) ticket: u64,
    pub(crate) job: Job,
    pub(crate) slots: Slots,
    pub(crate) beam: Beam,
    pub(crate) verdict: Verdict,
    /// Whether its translation has been reported, and the naive policy still computes its rows.
    pub(crate) over: bool,
    /// The first of its rows in the last step.
    pub(crate) first_row: u32,
    /// The first of its places in the last top-k request.
    pub(crate) first_place: u32,
    /// The first of its rows in the step whose top-k result is pending, if it is in that step.
    pub(crate) awaited: Option<u32>,
    /// The number of its rows in the step being made, those of ended hypotheses included.
    pub(crate) rows: usize,
    /// Steps since it began.
    steps: u32,
    position_limit: usize,
    guard: Option<Guard>,
    /// The number of attempts that ended in runaway output.
    attempt: usize,
    /// The words that each open hypothesis of a further attempt may not go on with.
    bans: Vec<Vec<u32>>,
}

impl Running {
    pub(crate) fn new(ticket: u64, job: Job, slots: Slots, position_limit: usize) -> Running {
        let settings = &*job.settings;
        // Forced words cannot be runaway output.
        let forced = job.length.is_some() || job.prefix.contains(&settings.end);
        let guard = settings.guard.filter(|_| !forced && job.constraints.is_none());
        let beam = beam(&job, guard, 0, position_limit);
        Running {
            ticket,
            job,
            slots,
            beam,
            verdict: Verdict::default(),
            over: false,
            first_row: 0,
            first_place: 0,
            awaited: None,
            rows: 0,
            steps: 0,
            position_limit,
            guard,
            attempt: 0,
            bans: Vec::new(),
        }
    }

    /// Sets the number of rows and the bans of the next step. With `constant`, ended hypotheses keep their rows.
    pub(crate) fn prepare(&mut self, constant: bool) {
        let settings = &*self.job.settings;
        let open = self.beam.open();
        let full = if self.steps == 0 { 1 } else { settings.search.beam };
        let ends = self.beam.ends_next(settings);
        self.rows = match (constant, self.awaited) {
            (true, _) => open.len().max(full),
            (false, Some(_)) if ends => 0,
            // Which hypotheses go on is not known yet, but their greatest number is.
            (false, Some(_)) => self.beam.width(),
            (false, None) => open.len(),
        };
        self.bans.clear();
        if self.attempt > 0 {
            let always = self.beam.request(settings, 0).banned;
            self.bans.extend(open.iter().map(|open| {
                let mut banned = always.to_vec();
                ban_repetition(&self.beam.tokens(open), self.attempt, &mut banned);
                banned
            }));
        }
    }

    /// Whether a step may begin before the last top-k result is collected: not if bans depend on the words so far, nor if a device
    /// would go on with other words.
    pub(crate) fn may_run_ahead(&self) -> bool {
        self.attempt == 0 && !self.beam.has_rule_after_prefix(&self.job.settings)
    }

    /// The kind of run-ahead that its search needs; none if it cannot run ahead.
    pub(crate) fn needed_run_ahead(&self) -> Option<RunAhead> {
        let settings = &self.job.settings;
        match settings.search.beam {
            _ if settings.alignments || self.job.constraints.is_some() => None,
            1 => Some(RunAhead::Greedy),
            2..=MOST_PLACES => Some(RunAhead::Beams),
            _ => None,
        }
    }

    /// The word that was added last, with its position, if the search is greedy.
    pub(crate) fn latest(&self) -> Option<(usize, u32)> {
        let open = self.beam.open().first().filter(|_| self.job.settings.search.beam == 1)?;
        let position = self.beam.length().checked_sub(1 + self.beam.given())?;
        Some((position, self.beam.last_token(open)?))
    }

    /// Adds its rows and their top-k requests to a step, and its device beam if there are any.
    pub(crate) fn add_rows<'a>(&'a self, step: &mut StepRows<'a>, device_beams: bool) {
        let settings = &*self.job.settings;
        if self.rows == 0 {
            return;
        }
        let offset = usize::from(self.awaited.is_some());
        step.device_beams.extend(device_beams.then(|| DeviceBeam {
            rows: self.rows as u32,
            follows: self.awaited.map(|_| self.first_place),
            width: self.beam.width() as u32,
            free: self.beam.is_free(settings, offset),
            beam: settings.search.beam as u32,
            // With one place all rules are the same, and this one needs one candidate.
            finish: match settings.search.beam {
                1 => Finish::Shrink,
                _ => settings.search.finish,
            },
            end: settings.end,
        }));
        if self.awaited.is_some() {
            return self.add_rows_ahead(step);
        }
        let request = self.beam.request(settings, 0);
        for (i, open) in self.beam.open().iter().enumerate() {
            let from = match (open.parent_row, self.beam.last_token(open)) {
                (Some(row), Some(token)) => Origin::Row { row: self.first_row + row, token },
                _ => Origin::Start(self.job.start),
            };
            let row = self.row(from, self.beam.length() as u32);
            if self.beam.is_constrained() {
                step.rows.push(EnsembleRow { scored: Some(request), ..row });
                step.requests.push(RowRequest {
                    count: 1,
                    scoring: Scoring::Logit,
                    forced: None,
                    ..request
                });
                continue;
            }
            step.rows.push(row);
            let banned = self.bans.get(i).map_or(request.banned, Vec::as_slice);
            step.requests.push(RowRequest { banned, path: open.score, ..request });
        }
        for _ in self.beam.open().len()..self.rows {
            let from = Origin::Row { row: self.first_row, token: settings.end };
            step.rows.push(self.row(from, self.steps.min(self.position_limit as u32 - 1)));
            step.requests.push(RowRequest { forced: None, ..request });
        }
    }

    /// Adds its rows to a step that runs ahead of the last top-k result: they go on from places.
    fn add_rows_ahead<'a>(&'a self, step: &mut StepRows<'a>) {
        let request = self.beam.request(&self.job.settings, 1);
        for place in self.first_place..self.first_place + self.rows as u32 {
            step.rows.push(self.row(Origin::Place(place), self.beam.length() as u32 + 1));
            step.requests.push(request);
        }
    }

    fn row(&self, from: Origin, position: u32) -> EnsembleRow<'_> {
        let words = self.job.words.as_deref();
        EnsembleRow { slots: &self.slots, words, from, position, scored: None }
    }

    /// Notes that a step has begun, and where its rows and places are in it.
    pub(crate) fn stepped(&mut self, first_row: u32, first_place: u32) {
        self.awaited = Some(first_row);
        self.first_row = first_row;
        self.first_place = first_place;
        self.steps += 1;
    }

    /// The guard that looks at the search so far for repetition, if one does at this length.
    fn looking_guard(&self) -> Option<Guard> {
        let may_repeat = self.attempt + 1 < ATTEMPTS;
        self.guard.filter(|guard| may_repeat && guard.looks_at(self.beam.length()))
    }

    /// Whether [`Self::is_finished`] has anything to do.
    pub(crate) fn may_be_finished(&self) -> bool {
        self.beam.open().is_empty() || self.looking_guard().is_some()
    }

    /// Whether its search is over. A search that repeats itself begins again.
    pub(crate) fn is_finished(&mut self) -> bool {
        if self.beam.open().is_empty() {
            return true;
        }
        if let Some(guard) = self.looking_guard() {
            let loops = |open| guard.is_loop(&self.beam.tokens(open), &self.job.source);
            if self.beam.open().iter().all(loops) {
                self.begin_again(Verdict { looped: true, endless: false });
            }
        }
        false
    }

    /// The translations of a search that is over; none if the guards rejected them and it has begun again.
    pub(crate) fn finish(&mut self, members: usize) -> Option<Vec<Hypothesis>> {
        let settings = &*self.job.settings;
        let beam = std::mem::replace(&mut self.beam, Beam::closed(settings.search.beam.max(1)));
        let at_limit = beam.length() >= beam.limit();
        let hypotheses = beam.into_hypotheses(settings.n_best, members);
        let (Some(guard), Some(best)) = (self.guard, hypotheses.first()) else {
            return Some(hypotheses);
        };
        if self.attempt + 1 >= ATTEMPTS {
            return Some(hypotheses);
        }
        // An end symbol that was forced at the limit does not count as an end.
        let cut = at_limit && (!best.ended || settings.forces_end());
        let verdict = Verdict {
            looped: guard.is_loop(&best.tokens, &self.job.source),
            endless: cut && guard.is_endless(best.tokens.len()),
        };
        if verdict.is_clean() {
            return Some(hypotheses);
        }
        self.begin_again(verdict);
        None
    }

    /// Begins the next attempt in the same slots: a row without a parent starts from the encoded source.
    fn begin_again(&mut self, verdict: Verdict) {
        self.attempt += 1;
        self.beam = beam(&self.job, self.guard, self.attempt, self.position_limit);
        self.verdict.looped |= verdict.looped;
        self.verdict.endless |= verdict.endless;
        self.steps = 0;
        // A pending top-k result belongs to the attempt before.
        self.awaited = None;
    }
}

fn beam(job: &Job, guard: Option<Guard>, attempt: usize, position_limit: usize) -> Beam {
    let settings = &*job.settings;
    let given = usize::from(job.language.is_some());
    let mut prefix: Vec<u32> = job.language.into_iter().chain(job.prefix.iter().copied()).collect();
    prefix.truncate(position_limit);
    let (limit, minimum) = match job.length {
        Some(length) => ((length + given).clamp(1, position_limit), length + given),
        None => {
            let limit = settings.limit(job.source.len(), position_limit);
            let limit = guard.map_or(limit, |guard| guard.limit(job.source.len(), limit, attempt));
            (limit, settings.search.min_length)
        }
    };
    let beam = Beam::new(settings, limit, prefix).with_given(given).with_minimum(minimum);
    beam.with_constraints(job.constraints.clone())
}
