//! A line of text: split into parts, each translated by itself, and joined again.

use std::sync::Arc;

use peregrine_decode::{Call, Done, Hypothesis, Job, Settings, Verdict};
use peregrine_text::{Split, encode_pieces, sentences};

use crate::{Error, Options, Request, Translation, Translator};

/// A line split into parts, with the jobs of those that are translated.
#[derive(Debug, Default)]
pub(crate) struct SplitLine {
    pub(crate) parts: Vec<Part>,
    /// The jobs, each with the number of its part. Parts that are copied have none.
    pub(crate) jobs: Vec<(usize, Job)>,
}

/// A part of a text: a sentence, or a piece of one that was too long.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The text between this part and the one before.
    pub(crate) between: String,
    pub(crate) source_tokens: usize,
    /// Whether it is a piece of something too long.
    pub(crate) cut: bool,
    /// Text that is not translated but copied.
    pub(crate) copied: Option<String>,
    /// The words of its source tokens, none for those of the frame. Empty unless unknown words are
    /// replaced.
    pub(crate) words: Vec<Option<String>>,
    /// Its translations, once it is done.
    pub(crate) hypotheses: Vec<Hypothesis>,
    pub(crate) verdict: Verdict,
}

impl Part {
    /// Stores the part's result.
    pub(crate) fn finish(&mut self, done: Done) {
        self.hypotheses = done.hypotheses;
        self.verdict = done.verdict;
    }
}

/// What the sentences of a request have in common.
pub(crate) struct Common<'a> {
    pub(crate) options: &'a Options,
    pub(crate) settings: Arc<Settings>,
    pub(crate) call: Arc<Call>,
}

impl Translator {
    /// What requests with these options have in common, if they cannot be cancelled.
    pub(crate) fn common<'a>(&self, options: &'a Options) -> Common<'a> {
        Common { options, settings: Arc::new(self.settings(options)), call: Arc::default() }
    }

    /// Splits a text into parts, framed; an empty text has none.
    pub(crate) fn split_line(
        &self,
        request: &Request<'_>,
        common: &Common<'_>,
    ) -> Result<SplitLine, Error> {
        let mut split = SplitLine::default();
        if common.options.split == Split::None {
            self.add_sentence(request.text, "", request, common, &mut split)?;
            return Ok(split);
        }
        let mut last_end = 0;
        for range in sentences(request.text) {
            let between = &request.text[last_end..range.start];
            last_end = range.end;
            self.add_sentence(&request.text[range], between, request, common, &mut split)?;
        }
        Ok(split)
    }

    /// Adds a sentence to a split line, in pieces if it is too long for the model. The text's
    /// prefix and length belong to the first part.
    pub(crate) fn add_sentence(
        &self,
        text: &str,
        between: &str,
        request: &Request<'_>,
        common: &Common<'_>,
        split: &mut SplitLine,
    ) -> Result<(), Error> {
        let options = common.options;
        let frame = self.model().members[0].architecture.source_frame();
        let most = self.max_source(options);
        let pieces = encode_pieces(&self.model().source, text, most - frame.len());
        let cut = pieces.len() > 1;
        if options.refuse_long && (cut || pieces.iter().any(|piece| piece.ids.is_empty())) {
            let tokens = self.model().source.encode(text).ids.len() + frame.len();
            return Err(Error::TooLong { tokens, most });
        }
        let mut last_end = 0;
        for piece in pieces {
            // White space at the edges of a piece belongs to the text between it and its neighbour.
            let inside = text[piece.range.clone()].trim();
            let start =
                piece.range.start + text[piece.range.clone()].find(inside).unwrap_or_default();
            let between = if last_end == 0 { between } else { &text[last_end.min(start)..start] };
            last_end = (start + inside.len()).max(1);
            let mut part = Part { between: between.to_owned(), cut, ..Part::default() };
            if piece.ids.is_empty() {
                part.copied = Some(inside.to_owned());
                split.parts.push(part);
                continue;
            }
            let first = split.jobs.is_empty();
            let prefix = request.prefix.filter(|_| first);
            let prefix = prefix.map(|p| self.model().target.encode(p).ids).unwrap_or_default();
            let source = frame.frame(&piece.ids);
            let words = self.words(&source, &prefix, options);
            part.source_tokens = source.len();
            if options.replace_unknown.is_some() {
                part.words = self.source_words(&text[piece.range], source.len());
            }
            let length = request.length.filter(|_| first);
            let job = Job::new(source, &common.settings, &common.call);
            split.jobs.push((split.parts.len(), Job { words, prefix, length, ..job }));
            split.parts.push(part);
        }
        Ok(())
    }

    /// A text's translation from its finished parts.
    pub(crate) fn translation(&self, parts: &[Part], options: &Options) -> Translation {
        if parts.is_empty() {
            let frame = self.model().members[0].architecture.source_frame();
            return Translation::empty(self.model().members.len(), frame.len());
        }
        Translation::from_parts(parts, self, options)
    }
}
