//! Further attempts at sentences whose translation has lost something.

use std::ops::Range;

use peregrine_decode::Job;
use peregrine_text::carry::{copied_share, missing_numbers};

use super::write::Attempted;
use crate::glossary::term::PartTerm;
use crate::part::{Attempt, Carrying, Part, Parts};
use crate::{Carry, Translator};

/// If at least this share of a title's words is untranslated, it is translated again in sentence
/// case.
const UNTRANSLATED: f32 = 0.4;

/// The most pieces in which a sentence is translated.
const MOST_PIECES: usize = 64;

/// The result of an attempt.
pub(crate) struct Outcome {
    pub(crate) source: String,
    /// The translation after masks, capitals and white space are restored.
    pub(crate) text: String,
    is_title: bool,
    /// The number of masks that did not come back exactly once.
    pub(crate) lost: usize,
}

impl Outcome {
    fn missing_numbers(&self) -> Vec<Range<usize>> {
        missing_numbers(&self.source, &self.text)
    }

    fn copied_share(&self) -> f32 {
        copied_share(&self.source, &self.text)
    }
}

impl Carrying {
    /// The part before this attempt, if this is a constrained search for terms.
    fn take_earlier(&mut self) -> Option<Part> {
        match std::mem::replace(&mut self.attempt, Attempt::Last) {
            Attempt::Terms(earlier) => Some(*earlier),
            other => {
                self.attempt = other;
                None
            }
        }
    }

    /// The part's text, for a further attempt.
    pub(crate) fn attempted(&self, terms: &[PartTerm]) -> Attempted<'_> {
        Attempted {
            text: self.carried.original(),
            offset: self.offset,
            stretches: self.stretches.clone(),
            terms: terms.to_vec(),
            style: self.style,
            lowers_titles: self.lowers_titles,
            prefix: self.prefix.clone(),
            length: self.length,
            again: &self.again,
        }
    }
}

impl Translator {
    /// Examines the result of a part. Returns the jobs of a further attempt if one is needed.
    pub(crate) fn attempt_again(&self, parts: &mut Parts, number: usize) -> Vec<(usize, Job)> {
        let part = &mut parts.list[number];
        if let Some(earlier) = part.carrying.as_mut().and_then(|carrying| carrying.take_earlier()) {
            self.choose_terms(part, earlier);
            return Vec::new();
        }
        let Some(outcome) = self.outcome(part) else { return Vec::new() };
        part.lost = outcome.lost;
        let attempt = part
            .carrying
            .as_mut()
            .map(|carrying| std::mem::replace(&mut carrying.attempt, Attempt::Last));
        let job = match attempt {
            Some(Attempt::First) if outcome.lost > 0 => self.with_other_masks(part),
            Some(Attempt::First) => self.for_better(part, &outcome),
            Some(Attempt::Numbers(earlier)) => {
                if outcome.lost > 0 || !outcome.missing_numbers().is_empty() {
                    *part = *earlier;
                }
                return Vec::new();
            }
            Some(Attempt::Title(earlier)) => {
                let before = self.outcome(&earlier).map_or(0.0, |before| before.copied_share());
                if outcome.copied_share() >= before {
                    *part = *earlier;
                }
                return Vec::new();
            }
            _ => None,
        };
        match job {
            Some(job) => vec![(number, job)],
            None if outcome.lost > 0 => self.in_parts(parts, number),
            None => Vec::new(),
        }
    }

    /// The outcome of a part's best translation.
    pub(crate) fn outcome(&self, part: &Part) -> Option<Outcome> {
        let carried = &part.carrying.as_ref()?.carried;
        let best = part.hypotheses.first()?;
        let restored = carried.restore(&self.model().target.decode(&best.tokens), &[]);
        Some(Outcome {
            source: carried.original().to_owned(),
            text: restored.text.text,
            is_title: carried.is_title(),
            lost: restored.lost,
        })
    }

    /// Another attempt with the second mask style.
    fn with_other_masks(&self, part: &mut Part) -> Option<Job> {
        let carrying = part.carrying.as_ref()?;
        let style = Some(self.mask_style(1)?);
        let attempted = Attempted { style, ..carrying.attempted(&part.terms) };
        let (new, job) = self.attempt(&attempted, None, Attempt::OtherMasks)?;
        *part = new.in_place_of(part);
        Some(job)
    }

    /// Another attempt with changed numbers masked, or with a title in sentence case. The better of
    /// the two translations is used.
    fn for_better(&self, part: &mut Part, outcome: &Outcome) -> Option<Job> {
        let carrying = part.carrying.as_ref()?;
        if carrying.again.options.carry == Carry::Off {
            return None;
        }
        let mut attempted = carrying.attempted(&part.terms);
        let numbers = outcome.missing_numbers();
        let is_about_numbers = !numbers.is_empty();
        if is_about_numbers {
            attempted.style.as_ref()?;
            // A number within a term is not masked.
            let overlaps = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
            let is_free = |number: &Range<usize>| {
                !attempted.terms.iter().any(|term| overlaps(&term.range, number))
            };
            attempted.stretches.extend(numbers.into_iter().filter(is_free));
            attempted.stretches.sort_by_key(|range| range.start);
        } else if outcome.is_title && outcome.copied_share() > UNTRANSLATED {
            attempted.lowers_titles = true;
        } else {
            return None;
        }
        let (new, job) = self.attempt(&attempted, None, Attempt::Last)?;
        let new = new.in_place_of(part);
        let earlier = Box::new(std::mem::replace(part, new));
        part.carrying.as_mut()?.attempt = match is_about_numbers {
            true => Attempt::Numbers(earlier),
            false => Attempt::Title(earlier),
        };
        Some(job)
    }

    /// The last attempt: the text in parts around the carried stretches. If that is impossible,
    /// lost masks are placed by attention.
    fn in_parts(&self, parts: &mut Parts, number: usize) -> Vec<(usize, Job)> {
        let part = &parts.list[number];
        let Some(carrying) = &part.carrying else { return Vec::new() };
        let segments = carrying.carried.in_parts();
        let forced = !carrying.prefix.is_empty() || carrying.length.is_some();
        if forced || segments.len() > MOST_PIECES {
            return Vec::new();
        }
        let mut made = self.parts_around(&carrying.attempted(&part.terms), segments);
        if let Some((first, _)) = made.first_mut() {
            first.between.clone_from(&part.between);
            first.exact = part.exact;
        }
        let mut jobs = Vec::new();
        for (child, job) in made {
            let place = parts.list.len();
            let cut = parts.list[number].cut && child.copied.is_none();
            parts.list.push(Part { parent: Some(number), cut, ..child });
            parts.list[number].children.push(place);
            jobs.extend(job.map(|job| (place, job)));
        }
        jobs
    }
}

impl Part {
    /// This part with the position of another one.
    pub(crate) fn in_place_of(self, other: &Part) -> Part {
        let between = other.between.clone();
        Part { between, exact: other.exact, cut: other.cut, parent: other.parent, ..self }
    }
}
