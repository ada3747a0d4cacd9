//! A line of text: split into parts, each translated by itself, and joined again.

use std::ops::Range;
use std::sync::Arc;

use peregrine_decode::{Call, Done, Hypothesis, Job, Settings, Verdict};
use peregrine_model::SourceFrame;
use peregrine_text::{Piece, Split, Words, encode_pieces, trim_range};

use crate::{Error, Options, Request, Translation, Translator};

/// A line split into parts, with the jobs of those that are translated.
#[derive(Debug)]
pub(crate) struct SplitLine {
    pub(crate) parts: Parts,
    /// The jobs, each with the number of its part. Parts that are copied have none.
    pub(crate) jobs: Vec<(usize, Job)>,
}

/// The parts of a text.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) list: Vec<Part>,
    /// Whether the text has several lines, whose ends and white space are kept.
    pub(crate) keeps_lines: bool,
    /// White space behind the last part, if it is kept.
    pub(crate) after: String,
    /// Bytes of the text.
    pub(crate) source_bytes: usize,
}

/// A part of a text: a sentence, or a piece of one that was too long.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The text between this part and the one before.
    pub(crate) between: String,
    /// Its bytes of the text.
    pub(crate) source: Range<usize>,
    pub(crate) source_tokens: usize,
    /// The bytes of the text of each source token. Empty unless alignments are asked for.
    pub(crate) token_ranges: Vec<Range<usize>>,
    /// The words that its source tokens form. Empty unless alignments are asked for.
    pub(crate) source_words: Words,
    /// Whether it is a piece of something too long.
    pub(crate) cut: bool,
    /// Text that is not translated but copied.
    pub(crate) copied: Option<String>,
    /// What its source tokens came from, none for those of the frame. Empty unless unknown words are
    /// replaced.
    pub(crate) words: Vec<Option<String>>,
    /// Its translations, once it is done.
    pub(crate) hypotheses: Vec<Hypothesis>,
    pub(crate) verdict: Verdict,
}

impl SplitLine {
    /// A text that has no parts yet.
    pub(crate) fn new(text: &str) -> SplitLine {
        let parts = Parts { source_bytes: text.len(), ..Parts::default() };
        SplitLine { parts, jobs: Vec::new() }
    }
}

impl Part {
    /// Stores the part's result.
    pub(crate) fn finish(&mut self, done: Done) {
        self.hypotheses = done.hypotheses;
        self.verdict = done.verdict;
    }

    /// Notes where the tokens of a piece of `text` come from; `text` begins at byte `offset` of the request's.
    fn locate(&mut self, piece: &Piece, frame: &SourceFrame, text: &str, offset: usize) {
        let begins = usize::from(frame.begin.is_some());
        let shifted = |range: &Range<usize>| offset + range.start..offset + range.end;
        let Words { ranges, of_token } = Words::new(text, &piece.spans);
        self.source_words.ranges = ranges.iter().map(shifted).collect();
        self.source_words.of_token = vec![None; begins];
        self.source_words.of_token.extend(of_token);
        self.source_words.of_token.resize(self.source_tokens, None);
        let token = |span: &Range<usize>| shifted(&trim_range(text, span));
        self.token_ranges = vec![self.source.start..self.source.start; begins];
        self.token_ranges.extend(piece.spans.iter().map(token));
        self.token_ranges.resize(self.source_tokens, self.source.end..self.source.end);
    }
}

/// What the sentences of a request have in common.
pub(crate) struct Common<'a> {
    pub(crate) options: &'a Options,
    pub(crate) settings: Arc<Settings>,
    pub(crate) call: Arc<Call>,
}

/// A sentence and its place in a text.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The sentence.
    pub(crate) text: &'a str,
    /// The byte of the whole text at which it begins.
    pub(crate) offset: usize,
    /// The text between it and the sentence before.
    pub(crate) between: &'a str,
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
        let text = request.text;
        let how = common.options.split;
        let mut split = SplitLine::new(text);
        split.parts.keeps_lines = how != Split::None && text.contains('\n');
        if split.parts.keeps_lines {
            self.split_lines(request, common, &mut split)?;
            return Ok(split);
        }
        let mut last_end = 0;
        for range in how.sentences(text) {
            let between = &text[last_end..range.start];
            last_end = range.end;
            let place = Place { offset: range.start, text: &text[range], between };
            self.add_sentence(place, request, common, &mut split)?;
        }
        Ok(split)
    }

    /// Splits a text of several lines. All white space but that within sentences is kept.
    fn split_lines(
        &self,
        request: &Request<'_>,
        common: &Common<'_>,
        split: &mut SplitLine,
    ) -> Result<(), Error> {
        let text = request.text;
        let mut between = String::new();
        let mut last_end = 0;
        for range in common.options.split.sentences(text) {
            between.push_str(&text[last_end..range.start]);
            last_end = range.end;
            let sentence = text[range.clone()].replace('\n', " ");
            let place = Place { text: &sentence, offset: range.start, between: &between };
            let parts = split.parts.list.len();
            self.add_sentence(place, request, common, split)?;
            // Of a sentence without tokens nothing is left but the white space around it.
            if split.parts.list.len() > parts {
                between.clear();
            }
        }
        between.push_str(&text[last_end..]);
        split.parts.after = between;
        Ok(())
    }

    /// Adds a sentence to a split line, in pieces if it is too long for the model. The text's
    /// prefix and length belong to the first part.
    pub(crate) fn add_sentence(
        &self,
        sentence: Place<'_>,
        request: &Request<'_>,
        common: &Common<'_>,
        split: &mut SplitLine,
    ) -> Result<(), Error> {
        let Place { text, offset, between } = sentence;
        let options = common.options;
        let frame = self.model().members[0].architecture.source_frame();
        let most = self.max_source(options);
        let pieces = encode_pieces(&self.model().source, text, most - frame.len());
        let cut = pieces.len() > 1;
        if options.refuse_long && (cut || pieces.iter().any(|piece| piece.ids.is_empty())) {
            let tokens = self.model().source.encode(text).ids.len() + frame.len();
            return Err(Error::TooLong { tokens, most });
        }
        let mut last_end = None;
        for piece in pieces {
            // White space at the edges of a piece belongs to the text between it and its neighbour.
            let inside = trim_range(text, &piece.range);
            let between =
                last_end.map_or(between, |end: usize| &text[end.min(inside.start)..inside.start]);
            last_end = Some(inside.end);
            let mut part = Part {
                between: between.to_owned(),
                source: offset + inside.start..offset + inside.end,
                cut,
                ..Part::default()
            };
            if piece.ids.is_empty() {
                part.copied = Some(text[inside].to_owned());
                split.parts.list.push(part);
                continue;
            }
            let first = split.jobs.is_empty();
            let prefix = request.prefix.filter(|_| first);
            let prefix = prefix.map(|p| self.model().target.encode(p).ids).unwrap_or_default();
            let source = frame.frame(&piece.ids);
            let words = self.words(&source, &prefix, options);
            part.source_tokens = source.len();
            if options.alignments {
                part.locate(&piece, frame, text, offset);
            }
            if options.replace_unknown.is_some() {
                let word = |span: &Range<usize>| text.get(span.clone()).map(str::to_owned);
                part.words = frame.begin.map(|_| None).into_iter().collect();
                part.words.extend(piece.spans.iter().map(word));
                part.words.resize(source.len(), None);
            }
            let length = request.length.filter(|_| first);
            let job = Job::new(source, &common.settings, &common.call);
            split.jobs.push((split.parts.list.len(), Job { words, prefix, length, ..job }));
            split.parts.list.push(part);
        }
        Ok(())
    }

    /// A text's translation from its finished parts.
    pub(crate) fn translation(&self, parts: &Parts, options: &Options) -> Translation {
        if parts.list.is_empty() {
            let frame = self.model().members[0].architecture.source_frame();
            let members = self.model().members.len();
            return Translation::empty(members, frame.len(), parts);
        }
        Translation::from_parts(parts, self, options)
    }
}
