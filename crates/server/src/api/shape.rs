//! The JSON form of translations in the server's own API.

use std::ops::Range;
use std::time::Instant;

use peregrine::Flag;
use peregrine::text::{Detection, Offsets, Unit};
use serde_json::{Value, json};

use crate::dispatch::Translated;

/// The options of an answer's form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) unit: Unit,
    pub(crate) sentences: bool,
    pub(crate) scores: bool,
    pub(crate) alignments: bool,
    pub(crate) n_best: usize,
}

/// The whole answer.
pub(crate) fn answer(
    texts: &[String],
    translated: &[Translated],
    shape: Shape,
    start: Instant,
) -> Value {
    let translations: Value = texts
        .iter()
        .zip(translated)
        .map(|(text, translated)| shape.write(text, translated))
        .collect();
    let took = (start.elapsed().as_secs_f64() * 1e4).round() / 1e4;
    json!({"translations": translations, "took": took})
}

impl Shape {
    fn write(self, text: &str, translated: &Translated) -> Value {
        let translation = &translated.translation;
        let mut answer = json!({"text": translated.text(), "from": translated.from, "to": translated.to, "model": translated.model});
        if let Some(detected) = &translated.detected {
            answer["detected"] = detection(detected);
        }
        let flags = [
            ("cut", translation.cut),
            ("copied", translation.copied),
            ("looped", translation.verdict.looped),
            ("endless", translation.verdict.endless),
        ];
        let mut names: Vec<&str> =
            flags.iter().filter(|(_, holds)| *holds).map(|(name, _)| *name).collect();
        if let Some(quality) = translation.quality() {
            answer["quality"] = json!({"score": quality.score().map(rounded), "calibrated": quality.is_calibrated()});
            names.extend(Flag::ALL.iter().filter(|f| quality.flags.has(**f)).map(|f| f.name()));
            names.sort_unstable();
            names.dedup();
        }
        if !names.is_empty() {
            answer["flags"] = names.into();
        }
        if !translation.terms.is_empty() {
            answer["terms"] = self.terms(text, translated);
        }
        if self.n_best > 1 {
            let all = translation.alternatives.iter();
            answer["alternatives"] =
                all.map(|one| json!({"text": one.text, "score": rounded(one.score)})).collect();
        }
        if self.sentences {
            answer["sentences"] = self.sentences(text, translated);
        }
        answer
    }

    /// The glossary terms of a text and whether each was applied.
    fn terms(self, text: &str, translated: &Translated) -> Value {
        let source = Offsets::new(text, self.unit);
        let target = Offsets::new(translated.text(), self.unit);
        let pair = |range: Range<usize>| json!([range.start, range.end]);
        let term = |term: &peregrine::Term| {
            let place = term.target.as_ref().map(|range| pair(target.range(range)));
            json!({"source": pair(source.range(&term.source)), "target": place, "how": term.how.name()})
        };
        translated.translation.terms.iter().map(term).collect()
    }

    fn sentences(self, text: &str, translated: &Translated) -> Value {
        let translation = &translated.translation;
        let source = Offsets::new(text, self.unit);
        let target = Offsets::new(translated.text(), self.unit);
        let pair = |range: Range<usize>| json!([range.start, range.end]);
        let words = if self.scores { translation.words(0) } else { Vec::new() };
        let links = if self.alignments { translation.word_alignments(0) } else { Vec::new() };
        let sentence = |sentence: &peregrine::Sentence| {
            let Some(best) = sentence.targets.first() else { return Value::Null };
            let within =
                |range: &Range<usize>| best.text.start <= range.start && range.end <= best.text.end;
            let mut written = json!({"source": pair(source.range(&sentence.source)), "target": pair(target.range(&best.text))});
            if self.scores || self.n_best > 1 {
                written["score"] = rounded(best.score);
            }
            if self.scores {
                let words = words.iter().filter(|word| within(&word.range));
                written["words"] = words.map(|word| json!({"target": pair(target.range(&word.range)), "score": rounded(word.score)})).collect();
            }
            if self.alignments {
                let links = links.iter().filter(|link| within(&link.target));
                written["alignments"] = links
                    .map(|link| {
                        let (from, to) = (source.range(&link.source), target.range(&link.target));
                        json!({"source": pair(from), "target": pair(to), "weight": rounded(link.weight)})
                    })
                    .collect();
            }
            if self.n_best > 1 {
                let all = sentence.targets.iter().zip(&translation.alternatives);
                written["alternatives"] = all
                    .map(|(target, line)| json!({"text": line.text.get(target.text.clone()), "score": rounded(target.score)}))
                    .collect();
            }
            written
        };
        translation.sentences.iter().map(sentence).collect()
    }
}

/// A score rounded to four decimal places, to save bytes.
fn rounded(score: f32) -> Value {
    json!((f64::from(score) * 1e4).round() / 1e4)
}

pub(crate) fn detection(detected: &Detection) -> Value {
    json!({"language": detected.language, "confidence": rounded(detected.confidence), "reliable": detected.reliable})
}
