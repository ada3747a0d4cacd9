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

use std::ops::Range;
use std::sync::Arc;

use peregrine_decode::{Call, Hypothesis, Settings};
use peregrine_text::carry::{Carried, Link, MaskStyle};
use peregrine_text::{Tokenizer, Words};

pub(crate) use styles::Spelling;

use crate::framing::Framing;
use crate::line::{Part, Parts};
use crate::{Alternative, Options, Translator};

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

/// The state of a request that further attempts need.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) options: Options,
    settings: Arc<Settings>,
    /// The request's settings with alignments.
    linked: Arc<Settings>,
    /// The request's settings with alignments and scores, for sentences with terms.
    scored: Arc<Settings>,
    call: Arc<Call>,
    framing: Framing,
}

impl Again {
    pub(crate) fn new(
        options: &Options,
        framing: Framing,
        settings: &Arc<Settings>,
        call: &Arc<Call>,
    ) -> Again {
        let mut linked = Settings::clone(settings);
        linked.alignments = true;
        let mut scored = linked.clone();
        scored.scores = true;
        Again {
            options: options.clone(),
            settings: Arc::clone(settings),
            linked: Arc::new(linked),
            scored: Arc::new(scored),
            call: Arc::clone(call),
            framing,
        }
    }
}

/// The form in which a part's text was given to the model.
#[derive(Debug)]
pub(crate) struct Carrying {
    pub(crate) carried: Carried,
    /// The byte ranges of the part's text that are carried.
    stretches: Vec<Range<usize>>,
    /// The byte range of each token in the rewritten text, without the frame.
    pub(crate) spans: Vec<Range<usize>>,
    /// The number of frame tokens before the text's tokens.
    pub(crate) begins: usize,
    /// The byte offset of the part's text in the request's text.
    offset: usize,
    style: Option<MaskStyle>,
    /// Whether a title was converted to sentence case.
    lowers_titles: bool,
    pub(crate) attempt: Attempt,
    /// The forced prefix of the translation.
    prefix: Vec<u32>,
    pub(crate) length: Option<usize>,
    pub(crate) again: Arc<Again>,
}

/// The current attempt.
#[derive(Debug)]
pub(crate) enum Attempt {
    First,
    /// An attempt with the second mask style.
    OtherMasks,
    /// An attempt with numbers masked; holds the part before it.
    Numbers(Box<Part>),
    /// An attempt with a title in sentence case; holds the part before it.
    Title(Box<Part>),
    /// A constrained search for terms; holds the part before it.
    Terms(Box<Part>),
    /// The last attempt.
    Last,
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
