//! A line of text: split into parts, each translated by itself, and joined again.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use peregrine_decode::{Call, Done, Job, Settings};
use peregrine_text::{Encoded, Piece, Split, encode_pieces, trim_range};

use crate::framing::Framing;
use crate::part::SplitLine;
use crate::part::{Again, Part, Parts, Place};
use crate::{Carry, Error, Options, Request, Translation, Translator};

impl Parts {
    /// Stores a part's result. Returns the further jobs that its translation needs, with the
    /// indices of their parts.
    pub(crate) fn finish(
        &mut self,
        number: usize,
        done: Done,
        translator: &Translator,
    ) -> Vec<(usize, Job)> {
        let Some(part) = self.list.get_mut(number) else { return Vec::new() };
        part.finish(done);
        if part.carrying.is_none() {
            return Vec::new();
        }
        let jobs = translator.attempt_again(self, number);
        if jobs.is_empty() { translator.pursue_terms(self, number) } else { jobs }
    }
}

/// The state that the sentences of a request share.
pub(crate) struct Common<'a> {
    pub(crate) options: &'a Options,
    pub(crate) settings: Arc<Settings>,
    pub(crate) call: Arc<Call>,
    /// What the languages add to each sentence.
    pub(crate) framing: Framing,
    /// The state for further attempts, if they are possible.
    pub(crate) again: Option<Arc<Again>>,
}

impl Common<'_> {
    /// Whether carry-through is on.
    fn carries(&self) -> bool {
        self.options.carry == Carry::On
    }
}

impl Translator {
    /// The shared state of requests that cannot be cancelled.
    pub(crate) fn common<'a>(
        &self,
        options: &'a Options,
        request: Option<&Request<'_>>,
    ) -> Result<Common<'a>, Error> {
        Ok(self.common_of(options, self.framing(request, options)?, Arc::default()))
    }

    /// The shared state of the sentences of a call.
    pub(crate) fn common_of<'a>(
        &self,
        options: &'a Options,
        framing: Framing,
        call: Arc<Call>,
    ) -> Common<'a> {
        let settings = Arc::new(self.settings(options));
        let needs_again = options.carry == Carry::On || options.glossary.is_some();
        let again = needs_again.then(|| Again::new(options, framing, &settings, &call));
        Common { options, settings, call, framing, again: again.map(Arc::new) }
    }

    /// Splits a text into parts; an empty text has none.
    pub(crate) fn split_line(
        &self,
        request: &Request<'_>,
        common: &Common<'_>,
    ) -> Result<SplitLine, Error> {
        let text = request.text;
        let how = common.options.split;
        let mut split = SplitLine::new(text);
        let may_have_lines = how != Split::None || request.sentences.is_some();
        split.parts.keeps_lines = may_have_lines && text.contains('\n');
        split.parts.keeps_space =
            split.parts.keeps_lines || common.carries() || request.sentences.is_some();
        if split.parts.keeps_space {
            self.split_lines(request, common, &mut split)?;
            return Ok(split);
        }
        let mut last_end = 0;
        for range in request.sentences(how)?.iter() {
            let between = &text[last_end..range.start];
            last_end = range.end;
            let place = Place { offset: range.start, text: &text[range.clone()], between };
            self.add_sentence(place, request, common, &mut split)?;
        }
        Ok(split)
    }

    /// Splits a text and preserves the white space between sentences.
    fn split_lines(
        &self,
        request: &Request<'_>,
        common: &Common<'_>,
        split: &mut SplitLine,
    ) -> Result<(), Error> {
        let text = request.text;
        let mut between = String::new();
        let mut last_end = 0;
        for range in request.sentences(common.options.split)?.iter() {
            between.push_str(&text[last_end..range.start]);
            last_end = range.end;
            let sentence = match split.parts.keeps_lines {
                true => Cow::Owned(text[range.clone()].replace('\n', " ")),
                false => Cow::Borrowed(&text[range.clone()]),
            };
            let place = Place { text: &sentence, offset: range.start, between: &between };
            let parts = split.parts.list.len();
            self.add_sentence(place, request, common, split)?;
            // Of a sentence without tokens only the white space around it remains.
            if split.parts.list.len() > parts || common.carries() {
                between.clear();
            }
        }
        between.push_str(&text[last_end..]);
        split.parts.after.push_str(&between);
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
        if let Some(again) = &common.again {
            let glossary = common.options.glossary.as_ref();
            if common.carries() {
                return self.add_carried(sentence, request, again, split);
            } else if glossary.is_some_and(|terms| !terms.find(sentence.text).is_empty()) {
                return self.add_segment(sentence, false, request, again, split);
            }
        }
        let Place { text, offset, between } = sentence;
        let options = common.options;
        let framing = &common.framing;
        let frame = framing.frame;
        let most = self.max_source(options);
        let pieces = self.source_pieces(text, most - frame.len(), options);
        let cut = pieces.len() > 1;
        if options.refuse_long && (cut || pieces.iter().any(|piece| piece.ids.is_empty())) {
            let tokens = self.source_tokens(text, options).ids.len() + frame.len();
            return Err(Error::TooLong { tokens, most });
        }
        let mut last_end = None;
        for piece in pieces {
            // White space at the ends of a piece belongs to the text between pieces.
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
                part.too_long = true;
                split.parts.list.push(part);
                continue;
            }
            let first = split.jobs.is_empty();
            let prefix = request.prefix.filter(|_| first);
            let prefix = prefix.map(|p| self.target_tokens(p, options).ids).unwrap_or_default();
            let job = framing.job(&piece.ids, &common.settings, &common.call);
            let words = self.words(&job.source, &prefix, options);
            part.source_tokens = job.source.len();
            part.judged = self.judged(&text[inside], &piece.ids, &piece.spans, options);
            if options.alignments {
                part.locate(&piece.spans, framing.begins(), text, offset);
            }
            if options.replace_unknown.is_some() {
                let word = |span: &Range<usize>| text.get(span.clone()).map(str::to_owned);
                part.words = frame.begin.map(|_| None).into_iter().collect();
                part.words.extend(piece.spans.iter().map(word));
                part.words.resize(job.source.len(), None);
            }
            let length = request.length.filter(|_| first);
            split.jobs.push((split.parts.list.len(), Job { words, prefix, length, ..job }));
            split.parts.list.push(part);
        }
        Ok(())
    }

    /// The tokens of a sentence, in pieces of at most `limit`. Given tokens have no better places to be cut than others.
    fn source_pieces(&self, text: &str, limit: usize, options: &Options) -> Vec<Piece> {
        if !options.tokens {
            return encode_pieces(&self.model().source, text, limit);
        }
        let Encoded { ids, spans } = self.source_tokens(text, options);
        let pieces = ids.chunks(limit).zip(spans.chunks(limit));
        let range = |spans: &[Range<usize>]| spans[0].start..spans[spans.len() - 1].end;
        let piece = |(ids, spans): (&[u32], &[Range<usize>])| Piece {
            ids: ids.to_vec(),
            range: range(spans),
            spans: spans.to_vec(),
        };
        pieces.map(piece).collect()
    }

    /// The tokens of a source, or of a text that lists them.
    pub(crate) fn source_tokens(&self, text: &str, options: &Options) -> Encoded {
        let source = &self.model().source;
        if options.tokens { source.encode_tokens(text) } else { source.encode(text) }
    }

    /// The tokens of a translation, or of a text that lists them.
    pub(crate) fn target_tokens(&self, text: &str, options: &Options) -> Encoded {
        let target = &self.model().target;
        if options.tokens { target.encode_tokens(text) } else { target.encode(text) }
    }

    /// The translation of a text from its finished parts.
    pub(crate) fn translation(&self, parts: &Parts, options: &Options) -> Translation {
        if parts.list.is_empty() {
            let frame = self.model().members[0].architecture.source_frame();
            let members = self.model().members.len();
            let mut empty = Translation::empty(members, frame.len(), parts);
            for alternative in &mut empty.alternatives {
                alternative.quality = self.quality(&Part::default(), alternative, options);
            }
            return empty;
        }
        Translation::from_parts(parts, self, options)
    }
}
