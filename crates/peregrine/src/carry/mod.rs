//! Carry-through: text that a model cannot spell survives a translation.
//!
//! Before a sentence is translated, [`peregrine_text::carry`] rewrites it so that the model can
//! read all of it. The output is verified. If a mask is missing, the sentence is translated again
//! with another mask style, then in parts around the carried stretches. If a number has changed or
//! a title was not translated, there is another attempt too, and the better translation is used.
//! Further attempts are further jobs of the same request.

mod attempts;
mod styles;
mod write;

use peregrine_decode::Hypothesis;
use peregrine_text::carry::Link;
use peregrine_text::{Tokenizer, Words};

pub(crate) use styles::Spelling;

use crate::part::{Carrying, Part, Parts};
use crate::{Alternative, Translator};

/// Whether text that a model cannot spell is carried through a translation: addresses,
/// placeholders, code, emoji, foreign scripts, capitals, typographic characters, white space.
///
/// ```
/// use peregrine::{Carry, Request, Translator};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = Translator::builtin()?;
/// let options = translator.options().with_carry(Carry::On);
/// let request = Request::new("Hello {name}, how are you?");
/// let translation = translator.translate_batch(&[request], &options)?.remove(0);
/// assert!(translation.text().contains("{name}"));
/// assert_eq!((translation.carried, translation.lost), (1, 0));
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Carry {
    /// The model gets each sentence unchanged.
    #[default]
    Off,
    /// The model gets each sentence with masks for what it cannot spell, which are replaced in the
    /// translation.
    On,
}

impl Carrying {
    /// The source word that each word of a hypothesis attends to. Empty without attention weights.
    pub(crate) fn links(&self, hypothesis: &Hypothesis, target: &Tokenizer) -> Vec<Link> {
        if hypothesis.alignment.is_empty() {
            return Vec::new();
        }
        let source = Words::new(self.carried.text(), &self.spans);
        let decoded = target.decode_with_ranges(&hypothesis.tokens);
        let words = Words::new(&decoded.text, &decoded.ranges);
        let mut links = Vec::new();
        for (number, range) in words.ranges.iter().enumerate() {
            let mut weights = vec![0.0; source.ranges.len()];
            let rows = words.of_token.iter().zip(&hypothesis.alignment);
            for (_, row) in rows.filter(|(word, _)| **word == Some(number)) {
                for (weight, word) in row.iter().skip(self.begins).zip(&source.of_token) {
                    if let Some(sum) = word.and_then(|word| weights.get_mut(word)) {
                        *sum += weight;
                    }
                }
            }
            let best = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b]));
            links.extend(best.map(|best| Link {
                source: source.ranges[best].clone(),
                target: range.clone(),
                weight: weights[best],
            }));
        }
        links
    }
}

impl Translator {
    /// The best translation of a part, joined from the parts that replace it.
    pub(crate) fn text_of_part(&self, parts: &Parts, number: usize) -> String {
        let Some(part) = parts.list.get(number) else { return String::new() };
        let mut text = String::new();
        for piece in parts.pieces_of(part) {
            if !text.is_empty() {
                text.push_str(&piece.between);
            }
            let best = piece.hypotheses.first().map(|best| self.best_text(piece, best));
            text.push_str(&best.or_else(|| piece.copied.clone()).unwrap_or_default());
        }
        text
    }

    /// The text of a part's hypothesis.
    fn best_text(&self, part: &Part, hypothesis: &Hypothesis) -> String {
        let target = &self.model().target;
        let mut alternative = Alternative::from_hypothesis(hypothesis, target, false, true);
        if let Some(carrying) = &part.carrying {
            carrying.restore(&part.terms, &mut alternative, hypothesis, target);
        }
        alternative.text
    }
}

impl Parts {
    /// A partial translation of a part with its masks replaced.
    pub(crate) fn preview(&self, part: usize, text: String) -> String {
        match self.list.get(part).and_then(|part| part.carrying.as_ref()) {
            Some(carrying) => carrying.carried.preview(&text),
            None => text,
        }
    }
}
