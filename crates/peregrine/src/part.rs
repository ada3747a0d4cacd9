//! The parts of a text, and how far their translation is.

use std::ops::Range;
use std::sync::Arc;

use peregrine_decode::{Call, Done, Hypothesis, Job, Settings, Verdict};
use peregrine_text::carry::{Carried, MaskStyle};
use peregrine_text::{Words, trim_range};

use crate::Options;
use crate::framing::Framing;
use crate::glossary::term::PartTerm;
use crate::quality::Judged;

/// A sentence and its place in a text.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The sentence.
    pub(crate) text: &'a str,
    /// The byte offset of the sentence in the whole text.
    pub(crate) offset: usize,
    /// The text between the sentence and the one before.
    pub(crate) between: &'a str,
}

/// A line split into parts, with the jobs of those that are translated.
#[derive(Debug)]
pub(crate) struct SplitLine {
    pub(crate) parts: Parts,
    /// The jobs, each with the index of its part. Copied parts have none.
    pub(crate) jobs: Vec<(usize, Job)>,
}

/// The parts of a text.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) list: Vec<Part>,
    /// Whether the text has several lines, whose line breaks are preserved.
    pub(crate) keeps_lines: bool,
    /// Whether white space before the first part is preserved.
    pub(crate) keeps_space: bool,
    /// The text after the last part, which is preserved.
    pub(crate) after: String,
    /// The length of the text in bytes.
    pub(crate) source_bytes: usize,
}

/// A part of a text: a sentence, or a piece of one that was too long.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The text between this part and the one before.
    pub(crate) between: String,
    /// The part's byte range in the text.
    pub(crate) source: Range<usize>,
    pub(crate) source_tokens: usize,
    /// The byte range of each source token in the text. Empty without alignments.
    pub(crate) token_ranges: Vec<Range<usize>>,
    /// The words that the source tokens form. Empty without alignments.
    pub(crate) source_words: Words,
    /// Whether the part is a piece of a sentence that was too long.
    pub(crate) cut: bool,
    /// The text, if it is copied and not translated.
    pub(crate) copied: Option<String>,
    /// Whether the part is copied because it is too long for the model and cannot be split.
    pub(crate) too_long: bool,
    /// Whether the text between this part and the one before is preserved exactly.
    pub(crate) exact: bool,
    /// The rewritten text for the model, if the translation needs it.
    pub(crate) carrying: Option<Box<Carrying>>,
    /// The indices of the parts that replace this one.
    pub(crate) children: Vec<usize>,
    /// The index of the part that this one is a piece of.
    pub(crate) parent: Option<usize>,
    /// The number of carried stretches, and of those that the model has lost.
    pub(crate) carried: usize,
    pub(crate) lost: usize,
    /// The glossary terms in the part, and whether their outcome is known.
    pub(crate) terms: Vec<PartTerm>,
    pub(crate) terms_settled: bool,
    /// The source word of each source token, `None` for the frame. Empty unless unknown words are
    /// replaced.
    pub(crate) words: Vec<Option<String>>,
    /// The translations, once the part is done.
    pub(crate) hypotheses: Vec<Hypothesis>,
    pub(crate) verdict: Verdict,
    /// The input of quality estimation, if it is requested.
    pub(crate) judged: Option<Box<Judged>>,
}

impl SplitLine {
    /// A text without parts.
    pub(crate) fn new(text: &str) -> SplitLine {
        let parts = Parts { source_bytes: text.len(), ..Parts::default() };
        SplitLine { parts, jobs: Vec::new() }
    }
}

impl Parts {
    /// The parts that make up the translation, in order.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Part> {
        let whole = self.list.iter().filter(|part| part.parent.is_none());
        whole.flat_map(|part| self.pieces_of(part))
    }

    /// The parts that replace a part, or the part itself.
    pub(crate) fn pieces_of<'p>(&'p self, part: &'p Part) -> impl Iterator<Item = &'p Part> {
        let own = part.children.is_empty().then_some(part);
        own.into_iter().chain(part.children.iter().filter_map(|&child| self.list.get(child)))
    }
}

impl Part {
    /// Stores the part's result.
    pub(crate) fn finish(&mut self, done: Done) {
        self.hypotheses = done.hypotheses;
        self.verdict = done.verdict;
    }

    /// Records the origin of the tokens: `spans` of `text`, which begins at byte `offset` of the
    /// request's text. There are `begins` tokens of the frame before them.
    pub(crate) fn locate(
        &mut self,
        spans: &[Range<usize>],
        begins: usize,
        text: &str,
        offset: usize,
    ) {
        let shifted = |range: &Range<usize>| offset + range.start..offset + range.end;
        let Words { ranges, of_token } = Words::new(text, spans);
        self.source_words.ranges = ranges.iter().map(shifted).collect();
        self.source_words.of_token = vec![None; begins];
        self.source_words.of_token.extend(of_token);
        self.source_words.of_token.resize(self.source_tokens, None);
        let token = |span: &Range<usize>| shifted(&trim_range(text, span));
        self.token_ranges = vec![self.source.start..self.source.start; begins];
        self.token_ranges.extend(spans.iter().map(token));
        self.token_ranges.resize(self.source_tokens, self.source.end..self.source.end);
    }
}

/// The form in which a part's text was given to the model.
#[derive(Debug)]
pub(crate) struct Carrying {
    pub(crate) carried: Carried,
    /// The byte ranges of the part's text that are carried.
    pub(crate) stretches: Vec<Range<usize>>,
    /// The byte range of each token in the rewritten text, without the frame.
    pub(crate) spans: Vec<Range<usize>>,
    /// The number of frame tokens before the text's tokens.
    pub(crate) begins: usize,
    /// The byte offset of the part's text in the request's text.
    pub(crate) offset: usize,
    pub(crate) style: Option<MaskStyle>,
    /// Whether a title was converted to sentence case.
    pub(crate) lowers_titles: bool,
    pub(crate) attempt: Attempt,
    /// The forced prefix of the translation.
    pub(crate) prefix: Vec<u32>,
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

/// The state of a request that further attempts need.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) options: Options,
    pub(crate) settings: Arc<Settings>,
    /// The request's settings with alignments.
    pub(crate) linked: Arc<Settings>,
    /// The request's settings with alignments and scores, for sentences with terms.
    pub(crate) scored: Arc<Settings>,
    pub(crate) call: Arc<Call>,
    pub(crate) framing: Framing,
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
