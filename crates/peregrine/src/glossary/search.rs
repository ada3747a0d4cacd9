//! The constrained search for terms that the unconstrained translation lacks.

use std::sync::Arc;

use peregrine_decode::{Constraints, Hypothesis, Job, LEAST_ATTENTION, Settings, Term};
use peregrine_text::carry::missing_numbers;

use super::place::places_of;
use super::{GlossaryMode, How, Kind};
use crate::Translator;
use crate::part::{Attempt, Carrying, Part, Parts};

/// The smallest beam of a constrained search. A beam of 10 is no better.
const LEAST_BEAM: usize = 5;

/// The highest cost of a constrained search: the difference of the mean log-probabilities of a
/// token. Beyond it the model does not know the term and breaks the sentence around it.
const MOST_COST: f32 = 1.0;

impl Translator {
    /// Checks whether a part's translation has its terms. Returns the job of a constrained search
    /// for those it lacks.
    pub(crate) fn pursue_terms(&self, parts: &mut Parts, number: usize) -> Vec<(usize, Job)> {
        let part = &mut parts.list[number];
        let is_over = part.terms.is_empty() || part.terms_settled || !part.children.is_empty();
        if is_over || part.hypotheses.is_empty() {
            return Vec::new();
        }
        part.terms_settled = true;
        self.judge_terms(part, How::Already, LEAST_ATTENTION);
        if part.terms.iter().all(|term| term.how != How::Missing) {
            return Vec::new();
        }
        match self.search_for_terms(part) {
            Some(job) => vec![(number, job)],
            None => {
                self.replace_missing(part);
                Vec::new()
            }
        }
    }

    /// Records which of a part's missing terms its translation has.
    fn judge_terms(&self, part: &mut Part, how: How, least: f32) {
        let Part { carrying: Some(carrying), hypotheses, terms, .. } = part else { return };
        let Some(best) = hypotheses.first() else { return };
        let output = self.model().target.decode_with_ranges(&best.tokens);
        let places = carrying.locate(terms, &output, best, least);
        for (number, place) in places.iter().enumerate() {
            let term = &terms[number];
            let is_there = match term.kind {
                Kind::Wanted => place.is_some(),
                Kind::Forbidden => {
                    let one = std::slice::from_ref(term);
                    places_of(one, Kind::Forbidden, &output.text).is_empty()
                }
                Kind::Masked => continue,
            };
            if is_there && terms[number].how == How::Missing {
                terms[number].how = how;
            }
        }
    }

    /// Replaces a part by a constrained search for its terms. The earlier part is used if the
    /// search finds nothing better.
    fn search_for_terms(&self, part: &mut Part) -> Option<Job> {
        let carrying = part.carrying.as_ref()?;
        if carrying.again.options.glossary_mode == GlossaryMode::Replace
            || carrying.length.is_some()
        {
            return None;
        }
        let free = part.hypotheses.first()?;
        let attempted = carrying.attempted(&part.terms);
        let (new, job) = self.attempt(&attempted, None, Attempt::Last)?;
        let new = new.in_place_of(part);
        let constraints = self.constraints(&new)?;
        let longest = |term: &Term| term.forms.iter().map(Vec::len).max().unwrap_or(0);
        let wanted: usize = constraints.terms.iter().map(longest).sum();
        let mut settings = Settings::clone(&job.settings);
        settings.search.beam = settings.search.beam.max(LEAST_BEAM);
        let limit = free.tokens.len() * 3 / 2 + wanted + 8;
        settings.search.max_length = Some(settings.search.max_length.unwrap_or(limit).min(limit));
        settings.search.max_length_factor = None;
        let earlier = Box::new(std::mem::replace(part, new));
        part.carrying.as_mut()?.attempt = Attempt::Terms(earlier);
        part.terms_settled = true;
        let constraints = Some(Arc::new(constraints));
        Some(Job { constraints, settings: Arc::new(settings), ..job })
    }

    fn constraints(&self, part: &Part) -> Option<Constraints> {
        let carrying: &Carrying = part.carrying.as_ref()?;
        let target = &self.model().target;
        let of_kind = |kind: Kind| part.terms.iter().filter(move |term| term.kind == kind);
        let ids = |form: &String| target.spellings(form);
        let term = |term: &super::PartTerm| Term {
            forms: term.forms.iter().flat_map(ids).collect(),
            columns: carrying.columns(&term.range),
            is_prefix: term.is_prefix,
        };
        Some(Constraints {
            terms: of_kind(Kind::Wanted).map(term).collect(),
            forbidden: of_kind(Kind::Forbidden)
                .flat_map(|term| term.forms.iter().flat_map(ids))
                .collect(),
            columns: carrying.all_columns(),
            edges: self.word_edges(),
        })
    }

    /// Chooses between the result of a constrained search and the earlier part.
    pub(crate) fn choose_terms(&self, part: &mut Part, earlier: Part) {
        let cost = match (part.hypotheses.first(), earlier.hypotheses.first()) {
            (Some(found), Some(free)) => mean_score(free) - mean_score(found),
            _ => f32::INFINITY,
        };
        let lost = self.losses_beside(part, &earlier);
        let Some(lost) = lost.filter(|_| cost <= MOST_COST) else {
            *part = earlier;
            return self.replace_missing(part);
        };
        part.lost = lost;
        self.judge_terms(part, How::Constrained, 0.0);
        for term in part.terms.iter_mut().filter(|term| term.how == How::Constrained) {
            term.cost = cost;
        }
    }

    /// The number of masks that a part has lost; `None` if it has lost more masks or numbers than
    /// another translation of the same text.
    fn losses_beside(&self, part: &Part, other: &Part) -> Option<usize> {
        let (new, old) = (self.outcome(part)?, self.outcome(other)?);
        let missing = |text: &str| missing_numbers(&old.source, text).len();
        let is_as_whole = new.lost <= old.lost && missing(&new.text) <= missing(&old.text);
        is_as_whole.then_some(new.lost)
    }

    /// Marks missing terms to replace the words aligned with them.
    fn replace_missing(&self, part: &mut Part) {
        let Part { carrying: Some(carrying), hypotheses, terms, .. } = part else { return };
        let Some(best) = hypotheses.first() else { return };
        let output = self.model().target.decode_with_ranges(&best.tokens);
        let places = carrying.locate(terms, &output, best, LEAST_ATTENTION);
        let words = carrying.words_for(terms, &places, &output, best);
        for (term, words) in terms.iter_mut().zip(words) {
            if term.how == How::Missing && words.is_some() {
                term.how = How::Replaced;
            }
        }
    }
}

/// The mean log-probability of a token, the end symbol included.
fn mean_score(hypothesis: &Hypothesis) -> f32 {
    let tokens = hypothesis.tokens.len() + usize::from(hypothesis.ended);
    hypothesis.path_score / tokens.max(1) as f32
}
