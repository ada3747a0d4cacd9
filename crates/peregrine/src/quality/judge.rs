//! Quality estimation: flags of a pair of texts, and calibration of a model.

use std::path::Path;
use std::sync::Arc;

use peregrine_model::Model;
use peregrine_text::check::{LengthRange, is_copy, length_ratio, numbers_agree, repeats_itself};

use super::calibration::Samples;
use super::{Calibration, Flag, Flags, Quality};
use crate::part::Part;
use crate::registry::{Pair, languages_of};
use crate::{Alternative, Error, Options, Request, Translation, Translator, Workers, builtin};

/// The number of lines translated at a time for calibration.
const LINES_AT_A_TIME: usize = 4096;

/// The input of quality estimation for a part.
#[derive(Debug)]
pub(crate) struct Judged {
    /// The part's source text.
    pub(crate) text: String,
    /// Whether the model's input has unknown tokens.
    pub(crate) unknown: bool,
}

/// The expectations for translations between two languages.
struct Usual<'a> {
    lengths: LengthRange,
    #[cfg_attr(not(feature = "detect"), expect(dead_code))]
    languages: Option<&'a Pair>,
}

impl Usual<'_> {
    /// The flags of a translation, by the two texts alone.
    fn check(&self, source: &str, translation: &str) -> Flags {
        let mut flags = Flags::default();
        let copied = is_copy(source, translation) || self.is_in_source_language(translation);
        flags.set(Flag::Looped, repeats_itself(source, translation));
        flags.set(Flag::Untranslated, copied);
        flags.set(Flag::Numbers, !numbers_agree(source, translation));
        flags.set(Flag::Length, !self.lengths.fits(source, translation));
        flags
    }

    /// Whether a translation seems to be in the language of its source.
    #[cfg(feature = "detect")]
    fn is_in_source_language(&self, translation: &str) -> bool {
        /// The fewest words for language identification.
        const ENOUGH: usize = 4;
        let Some(Pair { from, to }) = self.languages else { return false };
        if from == to || peregrine_text::check::word_count(translation) < ENOUGH {
            return false;
        }
        peregrine_text::is_rather(translation, from, to)
    }

    #[cfg(not(feature = "detect"))]
    fn is_in_source_language(&self, _: &str) -> bool {
        false
    }
}

impl Calibration {
    /// The table of a model: the one beside it, or the default. An unreadable table gets a note.
    pub(crate) fn of_model(model: &mut Model) -> Calibration {
        // The log-probabilities of an ensemble differ from those of its members.
        let [member] = &model.members[..] else { return Calibration::default() };
        let read = match builtin::table_of(&member.path) {
            Some(table) => Calibration::from_json(table),
            None => {
                let file = Calibration::beside(&member.path);
                match file.is_file() {
                    true => Calibration::read(&file).map_err(|error| error.to_string()),
                    false => return Calibration::default(),
                }
            }
        };
        read.unwrap_or_else(|problem| {
            model.notes.push(format!("quality scores are uncalibrated: {problem}"));
            Calibration::default()
        })
    }
}

/// The languages of a model's file, by its metadata or its name.
pub(crate) fn languages(network: &Path) -> Option<Pair> {
    match network.is_file() {
        true => languages_of(network),
        false => builtin::languages_of(network),
    }
}

impl Translator {
    /// The table for quality scores. [`Calibration::own`] says whether it was made for this model.
    pub fn calibration(&self) -> &Calibration {
        self.table()
    }

    /// Makes a table from ordinary text, a sentence a line. Text and [`Options`] (search,
    /// shortlist) should be like those of later translations. Fewer than
    /// [`Calibration::LEAST_SENTENCES`] are [`Error::TooFewSentences`].
    pub fn calibrate(
        &self,
        lines: &[String],
        options: &Options,
        workers: &Workers,
    ) -> Result<Calibration, Error> {
        let options = Options { quality: true, n_best: 1, ..options.clone() };
        let mut samples = Samples::default();
        for lines in lines.chunks(LINES_AT_A_TIME) {
            let requests: Vec<Request<'_>> = lines.iter().map(|line| Request::new(line)).collect();
            let translations = self.translate_batch_with(&requests, &options, workers, None)?;
            for (line, translation) in lines.iter().zip(&translations) {
                samples.add(line, translation);
            }
        }
        let found = samples.sentences.len().min(samples.words.len());
        let table = Calibration::of(samples);
        let table = table.filter(|_| found >= Calibration::LEAST_SENTENCES);
        let mut table = table.ok_or(Error::TooFewSentences(found))?;
        self.precision().clone_into(&mut table.precision);
        table.shortlist = self.has_shortlist(&options);
        table.beam = options.search.beam;
        Ok(table)
    }

    /// The flags of a given translation.
    pub fn check(&self, source: &str, translation: &str) -> Flags {
        let mut flags = self.usual().check(source, translation);
        let encoded = self.model().source.encode(source);
        flags.set(Flag::Unknown, self.is_unspelt(&encoded.ids, &encoded.spans));
        flags
    }

    /// The input of quality estimation, if it is requested.
    pub(crate) fn judged(
        &self,
        text: &str,
        ids: &[u32],
        spans: &[std::ops::Range<usize>],
        options: &Options,
    ) -> Option<Box<Judged>> {
        let judged = || Judged { text: text.to_owned(), unknown: self.is_unspelt(ids, spans) };
        options.quality.then(|| Box::new(judged()))
    }

    /// The quality of an alternative of a part, if it is requested.
    pub(crate) fn quality(
        &self,
        part: &Part,
        alternative: &Alternative,
        options: &Options,
    ) -> Option<Quality> {
        if !options.quality {
            return None;
        }
        let mut flags = match (&part.judged, &part.copied) {
            (Some(judged), _) => self.usual().check(&judged.text, &alternative.text),
            _ => Flags::default(),
        };
        // A part that is copied on purpose has no fault; one that was too long has.
        let copied = part.copied.as_deref().filter(|_| part.too_long);
        flags.set(Flag::Untranslated, copied.is_some_and(|text| is_copy(text, text)));
        flags.set(Flag::Unknown, part.judged.as_ref().is_some_and(|judged| judged.unknown));
        flags.set(Flag::Looped, part.verdict.looped);
        flags.set(Flag::Endless, part.verdict.endless || !alternative.ended);
        flags.set(Flag::Cut, part.cut);
        flags.set(Flag::Lost, part.lost > 0);
        let table = self.table();
        Some(Quality {
            flags,
            path_score: alternative.path_score,
            scored: alternative.scored,
            calibrated: table.own && table.shortlist == self.has_shortlist(options),
            table: Arc::clone(table),
        })
    }

    fn usual(&self) -> Usual<'_> {
        Usual { lengths: self.calibration().lengths, languages: self.languages() }
    }

    fn is_unspelt(&self, ids: &[u32], spans: &[std::ops::Range<usize>]) -> bool {
        !self.speller().unspelt(ids, spans).is_empty()
    }

    fn has_shortlist(&self, options: &Options) -> bool {
        options.shortlist && self.model().shortlist.is_some()
    }
}

impl Samples {
    /// Adds the sentences of a line.
    fn add(&mut self, line: &str, translation: &Translation) {
        let Some(best) = translation.alternatives.first() else { return };
        for sentence in &translation.sentences {
            let Some(target) = sentence.targets.first() else { continue };
            let mean = target.quality.as_ref().and_then(Quality::mean_log_probability);
            // Leave out translations that loop or do not end.
            if !target.ended || !sentence.verdict.is_clean() {
                continue;
            }
            self.sentences.extend(mean);
            let texts = line.get(sentence.source.clone()).zip(best.text.get(target.text.clone()));
            self.lengths.extend(texts.and_then(|(source, target)| length_ratio(source, target)));
        }
        let words = translation.words(0);
        let means = words.iter().filter(|word| !word.tokens.is_empty());
        self.words.extend(means.map(|word| word.score / word.tokens.len() as f32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(source: &str, translation: &str) -> String {
        let lengths = LengthRange { least: 0.8, greatest: 1.4 };
        let languages = Pair::new("en", "pt");
        Usual { lengths, languages: Some(&languages) }.check(source, translation).to_string()
    }

    #[test]
    fn faults_have_names() {
        let source = "In 1987 the tower was 147 metres high and nobody lived in it.";
        let good = "Em 1987 a torre tinha 147 metros de altura e ninguém morava nela.";
        assert_eq!(flags(source, good), "");
        assert_eq!(flags(source, &good.replace("147", "122")), "numbers");
        assert_eq!(flags(source, source), "untranslated");
        assert_eq!(flags(source, "Em 1987 a torre tinha 147 metros."), "length");
        let twice = format!("{good} {good}");
        assert_eq!(flags(source, &twice), "looped,length");
        assert_eq!(flags(source, ""), "numbers,length");
        assert_eq!(flags("Yes.", "Sim."), "");
    }

    #[cfg(feature = "detect")]
    #[test]
    fn the_language_of_the_source_is_no_translation() {
        let (source, other) = (
            "Nobody has lived in the old tower for many years.",
            "For a long time now there has been no one in that building.",
        );
        assert!(flags(source, other).contains("untranslated"));
        let nobody = Usual { lengths: LengthRange::default(), languages: None };
        assert!(nobody.check(source, other).is_empty());
    }
}
