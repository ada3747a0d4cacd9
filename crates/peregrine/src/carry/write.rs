//! Rewriting of sentences for the model.

use std::ops::Range;
use std::sync::Arc;

use peregrine_decode::Job;
use peregrine_text::carry::{Carried, MaskStyle, Segment, has_words, segments, segments_around};
use peregrine_text::{LONGEST, Piece, encode_pieces, trim_range};

use crate::glossary::term::{PartTerm, terms_within};
use crate::part::{Again, Attempt, Carrying, Part, Place, SplitLine};
use crate::{Carry, Error, Request, Translator};

/// A text to be translated as one part.
pub(crate) struct Attempted<'a> {
    pub(super) text: &'a str,
    /// The byte offset of the text in the request's text.
    pub(super) offset: usize,
    /// The byte ranges that are carried, and their mask style.
    pub(super) stretches: Vec<Range<usize>>,
    /// The glossary terms in the text.
    pub(super) terms: Vec<PartTerm>,
    pub(super) style: Option<MaskStyle>,
    /// Whether a title is converted to sentence case.
    pub(super) lowers_titles: bool,
    /// The forced prefix and length of the translation.
    pub(super) prefix: Vec<u32>,
    pub(super) length: Option<usize>,
    pub(super) again: &'a Arc<Again>,
}

impl SplitLine {
    fn push(&mut self, part: Part, job: Option<Job>) {
        self.jobs.extend(job.map(|job| (self.parts.list.len(), job)));
        self.parts.list.push(part);
    }
}

impl Part {
    /// A part that is copied. Its text begins at byte `offset` of the request's text and has
    /// `carried` carried stretches.
    fn kept(text: &str, offset: usize, carried: usize, terms: Vec<PartTerm>) -> Part {
        let part = Part { source: offset..offset + text.len(), carried, ..Part::default() };
        part.with_copied_terms(text, terms)
    }
}

/// The byte ranges of the original for tokens of the rewritten text, in ascending order: the first
/// token of a mask has the whole stretch, the others none.
fn source_spans(carried: &Carried, spans: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut end = 0;
    let span = |span: &Range<usize>| {
        let old = carried.source_range(&trim_range(carried.text(), span));
        let old = old.start.max(end)..old.end.max(end);
        end = old.end;
        old
    };
    spans.iter().map(span).collect()
}

impl Translator {
    /// Adds a sentence with carry-through.
    pub(crate) fn add_carried(
        &self,
        sentence: Place<'_>,
        request: &Request<'_>,
        again: &Arc<Again>,
        split: &mut SplitLine,
    ) -> Result<(), Error> {
        let Place { text, offset, between } = sentence;
        // Text was kept after the previous sentence, so the text between is exact.
        let mut exact = !split.parts.after.is_empty();
        let mut kept = std::mem::take(&mut split.parts.after);
        kept.push_str(between);
        for segment in segments(text) {
            match segment {
                Segment::Kept(range) => {
                    exact |= !split.parts.list.is_empty() || !text[range.clone()].trim().is_empty();
                    kept.push_str(&text[range]);
                }
                Segment::Text(range) => {
                    let between = std::mem::take(&mut kept);
                    let place = Place {
                        text: &text[range.clone()],
                        offset: offset + range.start,
                        between: &between,
                    };
                    self.add_segment(place, std::mem::take(&mut exact), request, again, split)?;
                }
            }
        }
        split.parts.after = kept;
        Ok(())
    }

    /// Adds a segment of a sentence.
    pub(crate) fn add_segment(
        &self,
        place: Place<'_>,
        exact: bool,
        request: &Request<'_>,
        again: &Arc<Again>,
        split: &mut SplitLine,
    ) -> Result<(), Error> {
        let Place { text, offset, between } = place;
        let speller = self.speller();
        let pieces = self.pieces(text, again)?;
        let unspelt = pieces.iter().flat_map(|piece| speller.unspelt(&piece.ids, &piece.spans));
        let mut stretches = match again.options.carry {
            Carry::On => speller.stretches(text, &unspelt.collect::<Vec<_>>()),
            Carry::Off => Vec::new(),
        };
        let keep = request.keep_within(offset..offset + text.len());
        let terms = self.terms_in(text, keep, again, &mut stretches);
        let number = split.parts.list.len();
        // Run the trial of mask styles here, not in a worker, if a number may need a mask later.
        let has_number = again.options.carry == Carry::On
            && text.as_bytes().windows(3).any(|w| w.iter().all(u8::is_ascii_digit));
        let may_need_mask = has_words(text, &stretches) && (has_number || !stretches.is_empty());
        let style = may_need_mask.then(|| self.mask_style(0)).flatten();
        let (prefix, length) = self.forced(request, split.jobs.is_empty());
        let attempted = Attempted {
            text,
            offset,
            stretches,
            terms,
            style,
            lowers_titles: false,
            prefix,
            length,
            again,
        };
        if pieces.is_empty() || !has_words(text, &attempted.stretches) {
            let carried = attempted.stretches.len();
            split.parts.list.push(Part::kept(text, offset, carried, attempted.terms));
        } else if style.is_none() && !attempted.stretches.is_empty() {
            let segments = segments_around(text, &attempted.stretches);
            for (part, job) in self.parts_around(&attempted, segments) {
                split.push(part, job);
            }
        } else {
            let fits = pieces.len() == 1 && !pieces[0].ids.is_empty();
            let piece = pieces.into_iter().next().filter(|_| fits);
            // Masks may make it short enough.
            let may_fit = fits || text.len() <= LONGEST && !attempted.stretches.is_empty();
            let attempt = || self.attempt(&attempted, piece, Attempt::First);
            match may_fit.then(attempt).flatten() {
                Some((part, job)) => split.push(part, Some(job)),
                None => self.add_long(&attempted, split),
            }
        }
        if let Some(part) = split.parts.list.get_mut(number) {
            (part.between, part.exact) = (between.to_owned(), exact);
        }
        Ok(())
    }

    /// The pieces of a text that are short enough for the model.
    fn pieces(&self, text: &str, again: &Again) -> Result<Vec<Piece>, Error> {
        let frame = again.framing.frame;
        let most = self.max_source(&again.options);
        let pieces = encode_pieces(&self.model().source, text, most - frame.len());
        let long = pieces.len() > 1 || pieces.iter().any(|piece| piece.ids.is_empty());
        if again.options.refuse_long && long {
            let tokens = self.model().source.encode(text).ids.len() + frame.len();
            return Err(Error::TooLong { tokens, most });
        }
        Ok(pieces)
    }

    /// The forced prefix and length, which belong to a text's first part.
    fn forced(&self, request: &Request<'_>, first: bool) -> (Vec<u32>, Option<usize>) {
        let prefix = request.prefix.filter(|_| first);
        let prefix = prefix.map(|prefix| self.model().target.encode(prefix).ids);
        (prefix.unwrap_or_default(), request.length.filter(|_| first))
    }

    /// Adds a text that is too long for the model as separate pieces.
    fn add_long(&self, whole: &Attempted<'_>, split: &mut SplitLine) {
        let Attempted { text, offset, .. } = *whole;
        let carried = self.carried(whole);
        let most = self.max_source(&whole.again.options);
        let most = most - whole.again.framing.frame.len();
        let mut end = 0;
        for piece in encode_pieces(&self.model().source, carried.text(), most) {
            let inside = carried.source_range(&trim_range(carried.text(), &piece.range));
            let inside = trim_range(text, &(inside.start.max(end)..inside.end.max(end)));
            let between = text[end..inside.start].to_owned();
            end = inside.end;
            let within =
                |stretch: &Range<usize>| inside.start <= stretch.start && stretch.end <= inside.end;
            let own = whole.stretches.iter().filter(|stretch| within(stretch));
            let first = split.jobs.is_empty();
            let attempted = Attempted {
                text: &text[inside.clone()],
                offset: offset + inside.start,
                stretches: own.map(|s| s.start - inside.start..s.end - inside.start).collect(),
                terms: terms_within(&whole.terms, &inside),
                style: whole.style,
                lowers_titles: false,
                prefix: whole.prefix.iter().copied().filter(|_| first).collect(),
                length: whole.length.filter(|_| first),
                again: whole.again,
            };
            let attempt = || self.attempt(&attempted, None, Attempt::First);
            let made = (!piece.ids.is_empty()).then(attempt).flatten();
            let (part, job) = match made {
                Some((part, job)) => (part, Some(job)),
                None => (Part::kept(attempted.text, attempted.offset, 0, attempted.terms), None),
            };
            let too_long = job.is_none();
            split.push(Part { cut: true, too_long, between, ..part }, job);
        }
    }

    /// A text rewritten for the model.
    fn carried(&self, text: &Attempted<'_>) -> Carried {
        let Attempted { stretches, style, lowers_titles, .. } = text;
        let carried = match text.again.options.carry {
            Carry::On => self.speller().write(text.text, stretches, *style, *lowers_titles),
            Carry::Off => Carried::masked(text.text, stretches, *style),
        };
        let returning = |carried: Carried, term: &PartTerm| match term.back() {
            Some(back) if text.text[term.range.clone()] != *back => {
                carried.returning(&term.range, back)
            }
            _ => carried,
        };
        text.terms.iter().fold(carried, returning)
    }

    /// The part of a text and its job; `None` if it is too long for the model. `piece` has the
    /// tokens of the original text.
    pub(crate) fn attempt(
        &self,
        text: &Attempted<'_>,
        piece: Option<Piece>,
        attempt: Attempt,
    ) -> Option<(Part, Job)> {
        let model = self.model();
        let options = &text.again.options;
        let framing = &text.again.framing;
        let frame = framing.frame;
        let carried = self.carried(text);
        let (ids, spans) = match piece.filter(|_| carried.is_plain()) {
            Some(piece) => (piece.ids, piece.spans),
            None => {
                let encoded = model.source.encode(carried.text());
                (encoded.ids, encoded.spans)
            }
        };
        if ids.is_empty() || ids.len() + frame.len() > self.max_source(options) {
            return None;
        }
        let source = frame.frame(&ids);
        let mut allowed = text.prefix.clone();
        allowed.extend(carried.mask_texts().flat_map(|mask| model.target.encode(mask).ids));
        let forms = text.terms.iter().flat_map(PartTerm::wanted);
        allowed.extend(forms.flat_map(|form| model.target.spellings(form).concat()));
        let end = text.offset + text.text.len();
        let mut part = Part {
            source: text.offset..end,
            source_tokens: source.len(),
            carried: carried.masks(),
            terms: text.terms.clone(),
            judged: self.judged(text.text, &ids, &spans, options),
            ..Part::default()
        };
        if options.alignments {
            let spans = source_spans(&carried, &spans);
            part.locate(&spans, framing.begins(), text.text, text.offset);
        }
        if options.replace_unknown.is_some() {
            let word = |span: &Range<usize>| carried.text().get(span.clone()).map(str::to_owned);
            part.words = frame.begin.map(|_| None).into_iter().collect();
            part.words.extend(spans.iter().map(word));
            part.words.resize(source.len(), None);
        }
        let is_first = matches!(attempt, Attempt::First);
        // Alignments are computed only if needed, because they slow the whole batch down and masks
        // mostly come back.
        let needs_links = carried.has_spaces() || matches!(attempt, Attempt::OtherMasks);
        let settings = match needs_links {
            _ if text.terms.iter().any(PartTerm::is_searched) => &text.again.scored,
            true => &text.again.linked,
            false => &text.again.settings,
        };
        let words = self.words(&source, &allowed, options);
        let job = framing.job(&ids, settings, &text.again.call);
        let job = Job { words, prefix: text.prefix.clone(), length: text.length, ..job };
        let may_lose_numbers =
            options.carry == Carry::On && text.text.bytes().any(|byte| byte.is_ascii_digit());
        let is_special = !carried.is_plain() || carried.is_title() || !text.terms.is_empty();
        if !is_first || is_special || may_lose_numbers {
            part.carrying = Some(Box::new(Carrying {
                carried,
                stretches: text.stretches.clone(),
                spans,
                begins: framing.begins(),
                offset: text.offset,
                style: text.style,
                lowers_titles: text.lowers_titles,
                attempt,
                prefix: text.prefix.clone(),
                length: text.length,
                again: Arc::clone(text.again),
            }));
        }
        Some((part, job))
    }

    /// The parts of a text around its carried stretches, with their jobs.
    pub(super) fn parts_around(
        &self,
        whole: &Attempted<'_>,
        segments: Vec<Segment>,
    ) -> Vec<(Part, Option<Job>)> {
        let mut made: Vec<(Part, Option<Job>)> = Vec::new();
        let mut end = 0;
        let mut prefix = whole.prefix.clone();
        for segment in segments {
            let (Segment::Text(range) | Segment::Kept(range)) = &segment;
            let range = trim_range(whole.text, range);
            if range.is_empty() {
                continue;
            }
            let (text, offset) = (&whole.text[range.clone()], whole.offset + range.start);
            let attempted = Attempted {
                text,
                offset,
                stretches: Vec::new(),
                terms: terms_within(&whole.terms, &range),
                style: None,
                lowers_titles: false,
                prefix: std::mem::take(&mut prefix),
                length: None,
                again: whole.again,
            };
            let is_text = matches!(segment, Segment::Text(_)) && has_words(text, &[]);
            let attempt = is_text.then(|| self.attempt(&attempted, None, Attempt::Last)).flatten();
            let (part, job) = match attempt {
                Some((part, job)) => (part, Some(job)),
                None => (Part::kept(text, offset, usize::from(!is_text), attempted.terms), None),
            };
            let between = whole.text[end..range.start].to_owned();
            end = range.end;
            made.push((Part { between, exact: true, ..part }, job));
        }
        made
    }
}
