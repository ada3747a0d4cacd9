//! Carry-through: what a model cannot spell survives a translation.
//!
//! Before a sentence is translated, [`peregrine_text::carry`] writes it so that the model can read all of it. What comes back is
//! verified. If a mask is missing, the sentence is translated again with another one, then in parts around what is carried. If a
//! number has changed, or a title was not translated, it is tried again too, and the better translation counts. Further attempts
//! are further jobs of the same request.

mod attempts;
mod styles;
mod write;

use std::ops::Range;
use std::sync::Arc;

use peregrine_decode::{Call, Hypothesis, Settings};
use peregrine_text::carry::{Carried, Link, MaskStyle};
use peregrine_text::{Tokenizer, Words};

pub(crate) use styles::Spelling;

use crate::line::{Part, Parts};
use crate::{Alternative, Options, Translator};

/// Whether what a model cannot spell is carried through a translation: addresses, placeholders, code, emoji, foreign scripts,
/// capitals, typographic characters, white space.
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
    /// A model gets each sentence as it is.
    #[default]
    Off,
    /// A model gets each sentence as it can read it, and what it cannot spell is put back.
    On,
}

/// What further attempts need to know of a request.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) options: Options,
    settings: Arc<Settings>,
    /// The same settings with alignments.
    linked: Arc<Settings>,
    /// The same settings with alignments and scores, for sentences with terms.
    scored: Arc<Settings>,
    call: Arc<Call>,
}

impl Again {
    pub(crate) fn new(options: &Options, settings: &Arc<Settings>, call: &Arc<Call>) -> Again {
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
        }
    }
}

/// How a part's text was written for the model.
#[derive(Debug)]
pub(crate) struct Carrying {
    pub(crate) carried: Carried,
    /// Stretches of the part's text that are carried.
    stretches: Vec<Range<usize>>,
    /// The bytes of the written text of each token, frame left out.
    pub(crate) spans: Vec<Range<usize>>,
    /// Tokens of the frame before them.
    pub(crate) begins: usize,
    /// The byte of the request's text at which the part's text begins.
    offset: usize,
    style: Option<MaskStyle>,
    /// Whether a title was put in sentence case.
    lowers_titles: bool,
    pub(crate) attempt: Attempt,
    /// The prefix of its translation.
    prefix: Vec<u32>,
    pub(crate) length: Option<usize>,
    pub(crate) again: Arc<Again>,
}

/// The attempt that is made.
#[derive(Debug)]
pub(crate) enum Attempt {
    First,
    /// With other masks.
    OtherMasks,
    /// With numbers masked. What came before.
    Numbers(Box<Part>),
    /// With a title in sentence case. What came before.
    Title(Box<Part>),
    /// With terms searched for. What came before.
    Terms(Box<Part>),
    /// There will be no other.
    Last,
}

impl Carrying {
    /// The source word that each word of a hypothesis attends to; none where its attention is not known.
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
    /// The best translation of a part, with the parts that stand for it.
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

    /// A hypothesis of a part as text.
    fn best_text(&self, part: &Part, hypothesis: &Hypothesis) -> String {
        let target = &self.model().target;
        let mut alternative = Alternative::from_hypothesis(hypothesis, target, false);
        if let Some(carrying) = &part.carrying {
            carrying.restore(&part.terms, &mut alternative, hypothesis, target);
        }
        alternative.text
    }
}

impl Parts {
    /// The beginning of a part's translation with what is carried in its place.
    pub(crate) fn preview(&self, part: usize, text: String) -> String {
        match self.list.get(part).and_then(|part| part.carrying.as_ref()) {
            Some(carrying) => carrying.carried.preview(&text),
            None => text,
        }
    }
}
