//! A line on its way: cut into parts, each translated for itself, and put together again.

use peregrine_decode::{Done, Hypothesis, Job, Verdict};
use peregrine_text::{Split, encode_pieces, sentences};

use crate::{Options, Request, Translation, Translator};

/// What is to be done for a line.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    /// What is to be translated, each with the number of its part. Parts that are copied have none.
    pub(crate) jobs: Vec<(usize, Job)>,
}

/// A part of a line: a sentence, or a piece of one that was too long.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// What stood between this part and the one before.
    pub(crate) between: String,
    pub(crate) source_tokens: usize,
    /// Whether it is a piece of something too long.
    pub(crate) cut: bool,
    /// Text that is not translated but copied.
    pub(crate) copied: Option<String>,
    /// The words behind its source tokens, none for those of the frame; only where unknown words are
    /// to be replaced.
    pub(crate) words: Vec<Option<String>>,
    /// Its translations, when there are some.
    pub(crate) hypotheses: Vec<Hypothesis>,
    pub(crate) verdict: Verdict,
}

impl Part {
    /// Takes in what came of it.
    pub(crate) fn finish(&mut self, done: Done) {
        self.hypotheses = done.hypotheses;
        self.verdict = done.verdict;
    }
}

impl Translator {
    /// The parts of a line, framed; none if there is nothing in it.
    pub(crate) fn plan(&self, request: &Request<'_>, options: &Options) -> Plan {
        let mut plan = Plan::default();
        if options.split == Split::None {
            self.add_sentence(request.text, "", request, options, &mut plan);
        } else {
            let mut last_end = 0;
            for range in sentences(request.text) {
                let between = &request.text[last_end..range.start];
                last_end = range.end;
                self.add_sentence(&request.text[range], between, request, options, &mut plan);
            }
        }
        plan
    }

    /// Adds a sentence of a line to its plan, in pieces if it is too long for the model. The line's
    /// prefix and length belong to the first part.
    pub(crate) fn add_sentence(
        &self,
        text: &str,
        between: &str,
        request: &Request<'_>,
        options: &Options,
        plan: &mut Plan,
    ) {
        let frame = self.model().members[0].architecture.source_frame();
        let limit = self.max_source(options) - frame.len();
        let pieces = encode_pieces(&self.model().source, text, limit);
        let cut = pieces.len() > 1;
        let mut last_end = 0;
        for piece in pieces {
            // White space at the edges of a piece is between it and its neighbour.
            let inside = text[piece.range.clone()].trim();
            let start =
                piece.range.start + text[piece.range.clone()].find(inside).unwrap_or_default();
            let between = if last_end == 0 { between } else { &text[last_end.min(start)..start] };
            last_end = (start + inside.len()).max(1);
            let mut part = Part { between: between.to_owned(), cut, ..Part::default() };
            if piece.ids.is_empty() {
                part.copied = Some(inside.to_owned());
                plan.parts.push(part);
                continue;
            }
            let first = plan.jobs.is_empty();
            let prefix = request.prefix.filter(|_| first);
            let prefix = prefix.map(|p| self.model().target.encode(p).ids).unwrap_or_default();
            let source = frame.frame(&piece.ids);
            let words = self.words(&source, &prefix, options);
            part.source_tokens = source.len();
            if options.replace_unknown.is_some() {
                part.words = self.source_words(&text[piece.range], source.len());
            }
            let length = request.length.filter(|_| first);
            plan.jobs.push((plan.parts.len(), Job { source, words, prefix, length }));
            plan.parts.push(part);
        }
    }

    /// A line's translation from its finished parts.
    pub(crate) fn translation(&self, parts: &[Part], options: &Options) -> Translation {
        if parts.is_empty() {
            let frame = self.model().members[0].architecture.source_frame();
            return Translation::empty(self.model().members.len(), frame.len());
        }
        Translation::from_parts(parts, self, options)
    }
}
