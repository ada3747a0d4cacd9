//! Translations on their way out, in the form asked for.

use std::io::{self, Write};
use std::ops::Range;

use peregrine::marian_format::{Fields, best_line, n_best_lines, one_line};
use peregrine::text::separator;
use peregrine::{Alternative, Flag, Quality, Search, Sentence, Term, Translation, Word, WordLink};
use serde_json::{Value, json};

use crate::io::feed::Place;
use crate::io::output::Output;

/// What is written of a translation.
pub(crate) enum Form {
    /// Its text.
    Text,
    /// Its text or tokens, and more.
    Best(Fields),
    /// Marian's list of all hypotheses.
    NBest(Fields),
    /// A JSON object, with alignments or without.
    Json {
        /// Whether attention to the source is in it.
        alignment: bool,
        /// Whether what was carried is in it.
        carry: bool,
        /// Whether what came of the terms of a glossary is in it.
        terms: bool,
    },
}

/// Writes the answers to lines, which may come in parts. Text is written as it comes; what has another form
/// is put together first.
pub(crate) struct Answers<'a> {
    form: Form,
    search: &'a Search,
    pub(crate) output: Output,
    /// Lines that are complete, those of earlier runs included.
    pub(crate) lines: u64,
    /// What there is of the line under way; without alternatives that have been written.
    begun: Option<Translation>,
    /// The last character written of it.
    last: Option<char>,
}

impl<'a> Answers<'a> {
    /// Nothing but `lines` has been written.
    pub(crate) fn new(form: Form, search: &'a Search, output: Output, lines: u64) -> Answers<'a> {
        Answers { form, search, output, lines, begun: None, last: None }
    }

    /// Takes in the translation of a line or a part of one. The line, if it ends with it, and its
    /// number, counted from 0.
    pub(crate) fn add(
        &mut self,
        mut translation: Translation,
        place: &Place,
    ) -> io::Result<Option<(u64, Translation)>> {
        let between = place.between.as_deref().unwrap_or_default();
        if matches!(self.form, Form::Text) {
            self.write_text(&translation, between)?;
            translation.alternatives.clear();
            translation.sentences.clear();
        }
        let whole = match self.begun.take() {
            None => translation,
            Some(mut begun) => {
                begun.append(translation, between, self.search);
                begun
            }
        };
        if !place.ends {
            self.begun = Some(whole);
            return Ok(None);
        }
        let number = self.lines;
        match &self.form {
            Form::Text => writeln!(self.output)?,
            Form::Best(fields) => writeln!(self.output, "{}", best_line(&whole, fields))?,
            Form::NBest(fields) => {
                for line in n_best_lines(number as usize, &whole, fields) {
                    writeln!(self.output, "{line}")?;
                }
            }
            Form::Json { alignment, carry, terms } => {
                let mut object = object(&whole, *alignment);
                if let Some(pivot) = &whole.pivot {
                    let score = pivot.alternatives.first().map(|best| best.score);
                    object["pivot"] = json!({ "text": pivot.text(), "score": score });
                }
                if *carry {
                    object["carried"] = whole.carried.into();
                    object["lost"] = whole.lost.into();
                }
                if *terms {
                    object["terms"] = whole.terms.iter().map(term).collect();
                }
                add_quality(&mut object, &whole);
                writeln!(self.output, "{object}")?;
            }
        }
        self.last = None;
        self.lines += 1;
        Ok(Some((number, whole)))
    }

    fn write_text(&mut self, translation: &Translation, between: &str) -> io::Result<()> {
        let text = one_line(translation.text());
        let tight = between.is_empty()
            && translation.copied
            && self.begun.as_ref().is_some_and(|begun| begun.copied);
        // Text that keeps its white space has the gap at its ends.
        let held =
            self.last.is_some_and(char::is_whitespace) || text.starts_with(char::is_whitespace);
        if !tight && !held {
            let left = self.last.map(String::from).unwrap_or_default();
            let gap = one_line(separator(&left, between, &text));
            self.output.write_all(gap.as_bytes())?;
        }
        self.last = text.chars().next_back().or(self.last);
        self.output.write_all(text.as_bytes())
    }

    /// Hands on what was written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// A line as JSON.
fn object(translation: &Translation, alignment: bool) -> Value {
    let alternative = |(rank, a): (usize, &Alternative)| {
        let mut object = json!({
            "text": a.text,
            "score": a.score,
            "tokens": a.tokens,
            "token_ranges": a.token_ranges.iter().map(pair).collect::<Vec<_>>(),
            "token_scores": a.token_scores,
            "ended": a.ended,
        });
        if alignment {
            object["alignment"] = json!(translation.alignment(rank));
            let links = translation.word_alignments(rank);
            object["words"] = links.iter().map(link).collect();
        }
        object
    };
    let sentence = |sentence: &Sentence| {
        let targets = sentence.targets.iter().map(|target| pair(&target.text));
        json!({ "source": pair(&sentence.source), "targets": targets.collect::<Vec<_>>() })
    };
    json!({
        "text": translation.text(),
        "source_tokens": translation.source_tokens,
        "parts": translation.segments,
        "cut": translation.cut,
        "copied": translation.copied,
        "looped": translation.verdict.looped,
        "endless": translation.verdict.endless,
        "sentences": translation.sentences.iter().map(sentence).collect::<Vec<_>>(),
        "alternatives":
            translation.alternatives.iter().enumerate().map(alternative).collect::<Vec<_>>(),
    })
}

/// Adds what is known of the quality of a line, its alternatives, sentences and words to its object, if it was asked for.
fn add_quality(object: &mut Value, translation: &Translation) {
    let Some(quality) = translation.quality() else { return };
    let score = |quality: &Quality| quality.score().map(rounded);
    let flags = |quality: &Quality| quality.flags.iter().map(Flag::name).collect::<Vec<_>>();
    object["quality"] = json!(score(quality));
    object["calibrated"] = quality.is_calibrated().into();
    object["flags"] = json!(flags(quality));
    for (rank, alternative) in translation.alternatives.iter().enumerate() {
        let own = &mut object["alternatives"][rank];
        own["quality"] = json!(alternative.quality.as_ref().and_then(score));
        own["flags"] = json!(alternative.quality.as_ref().map(flags));
        let words = translation.words(rank);
        let word = |word: &Word| json!({ "target": pair(&word.range), "quality": word.quality.map(rounded) });
        own["word_quality"] = words.iter().map(word).collect();
    }
    for (number, sentence) in translation.sentences.iter().enumerate() {
        let qualities = || sentence.targets.iter().map(|target| target.quality.as_ref());
        let own = &mut object["sentences"][number];
        own["quality"] = qualities().map(|q| json!(q.and_then(score))).collect();
        own["flags"] = qualities().map(|q| json!(q.map(flags))).collect();
    }
}

/// Three digits behind the point: a table has no more.
fn rounded(score: f32) -> f64 {
    (f64::from(score) * 1000.0).round() / 1000.0
}

/// Where a range begins and ends.
fn pair(range: &Range<usize>) -> [usize; 2] {
    [range.start, range.end]
}

/// A term and what came of it.
fn term(term: &Term) -> Value {
    json!({
        "source": pair(&term.source),
        "target": term.target.as_ref().map(pair),
        "wanted": term.wanted,
        "forbidden": term.forbidden,
        "how": term.how.name(),
        "cost": term.cost,
    })
}

/// A target word and a source word it attends to.
fn link(link: &WordLink) -> Value {
    let WordLink { source, target, weight, .. } = link;
    json!({ "source": pair(source), "target": pair(target), "weight": weight })
}
