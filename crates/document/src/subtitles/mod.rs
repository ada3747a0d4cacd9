//! Subtitles: SubRip and WebVTT. A block is a sentence, which may go over several cues. Its translation is dealt back to them.
//! Numbers, times, settings, headers, notes and styles are copied.

mod cue;
mod deal;
mod part;

use std::ops::Range;

use crate::Error;
use crate::block::{Block, Kind, Translated};
use crate::body::{Body, Note, Parsed, Written};
use crate::builder::Builder;
use crate::encoding;
use crate::escape::{Encoder, Escape};
use crate::project::{Item, project};
use cue::Times;
use deal::{Word, may_cut};
use part::Part;

/// Cues that a sentence may go over.
const MOST_CUES: usize = 4;

/// Thousandths of a second that may lie between two cues of a sentence.
const LONGEST_GAP: u64 = 6000;

/// Reads SubRip or WebVTT.
pub(crate) fn read(bytes: Vec<u8>, is_vtt: bool) -> Result<Parsed, Error> {
    encoding::read(bytes, |bytes| Ok(read_utf8(bytes, is_vtt)))
}

fn read_utf8(document: Vec<u8>, is_vtt: bool) -> Parsed {
    let (lines, times) = cue::lines(&document, is_vtt);
    let parts = part::parts(&document, &lines, is_vtt);
    let (mut blocks, mut slots) = (Vec::new(), Vec::new());
    let mut rest = parts.as_slice();
    while !rest.is_empty() {
        let (sentence, behind) = rest.split_at(sentence(rest, &times));
        rest = behind;
        if let Some((block, slot)) = block(&document, sentence, is_vtt) {
            blocks.push(block);
            slots.push(slot);
        }
    }
    let escape = if is_vtt { Escape::Html } else { Escape::Plain };
    let newline = match document.iter().position(|&byte| byte == b'\n' || byte == b'\r') {
        Some(at) if document[at..].starts_with(b"\r\n") => b"\r\n".as_slice(),
        Some(at) if document[at] == b'\r' => b"\r",
        _ => b"\n",
    };
    (blocks, Box::new(Subtitles { document, slots, escape, newline }))
}

/// The number of parts at the beginning of a list that make a sentence.
fn sentence(parts: &[Part], times: &[Times]) -> usize {
    let mut text = parts[0].text.clone();
    for (count, pair) in parts.windows(2).enumerate() {
        let (last, next) = (&pair[0], &pair[1]);
        if count + 1 == MOST_CUES || !can_go_on(last, next, times) || ends(&text, &next.text) {
            return count + 1;
        }
        text.push(' ');
        text.push_str(&next.text);
    }
    parts.len()
}

fn can_go_on(last: &Part, next: &Part, times: &[Times]) -> bool {
    let (Some((start, end)), Some((next_start, _))) = (times[last.cue], times[next.cue]) else {
        return false;
    };
    let has_words = |part: &Part| part.text.contains(char::is_alphanumeric);
    next.cue == last.cue + 1
        && !next.anew
        && !last.closed
        && next.setting == last.setting
        && !(last.timed || next.timed)
        && has_words(last)
        && has_words(next)
        && next_start >= start
        && next_start <= end.saturating_add(LONGEST_GAP)
}

/// Whether a sentence ends between two texts.
fn ends(text: &str, next: &str) -> bool {
    let joined = format!("{text} {next}");
    let start = joined.len() - next.trim_start().len();
    peregrine_text::sentences(&joined).iter().any(|range| range.start == start)
}

/// The block of some parts, and its bytes in each of them.
fn block(document: &[u8], parts: &[Part], is_vtt: bool) -> Option<(Block, Vec<Slot>)> {
    let mut builder = Builder::new(false);
    for (number, part) in parts.iter().enumerate() {
        part.add(document, number, is_vtt, &mut builder);
    }
    let (block, bytes) = builder.finish()?;
    let slot = |part: &Part| Slot {
        bytes: part.range.clone(),
        lines: part.lines,
        width: part.text.chars().count(),
    };
    let mut slots: Vec<Slot> = parts.iter().map(slot).collect();
    // Something at the ends that need not be inside the block.
    let (first, last) = (0, slots.len() - 1);
    slots[first].bytes.start = bytes.start;
    slots[last].bytes.end = bytes.end;
    slots.iter().all(|slot| slot.bytes.start < slot.bytes.end).then_some((block, slots))
}

/// Subtitles and where their blocks are.
#[derive(Debug)]
struct Subtitles {
    document: Vec<u8>,
    slots: Vec<Vec<Slot>>,
    escape: Escape,
    newline: &'static [u8],
}

/// Where a block has text in one cue.
#[derive(Debug)]
struct Slot {
    bytes: Range<usize>,
    lines: usize,
    /// The number of characters.
    width: usize,
}

impl Body for Subtitles {
    fn ready(&self, _: usize) -> bool {
        true
    }

    fn write(&self, blocks: &[Block], range: Range<usize>, new: &[Translated], to: &mut Written) {
        let mut from = match range.start.checked_sub(1) {
            Some(last) => self.slots[last].last().map_or(0, |slot| slot.bytes.end),
            None => 0,
        };
        for (number, new) in range.clone().zip(new) {
            let (slots, block) = (&self.slots[number], &blocks[number]);
            let words = match new.text == block.text {
                true => Vec::new(),
                false => self.words(number, block, new, &mut to.report),
            };
            if words.is_empty() {
                // As it was, or an empty answer: no cue loses its text.
                continue;
            }
            for (slot, words) in slots.iter().zip(deal_to(slots, words)) {
                to.bytes.extend_from_slice(&self.document[from..slot.bytes.start]);
                deal::write(&words, slot.lines.max(2), self.newline, &mut to.bytes);
                from = slot.bytes.end;
            }
        }
        let end = match range.end.checked_sub(1) {
            Some(last) if range.end < self.slots.len() => {
                self.slots[last].last().map_or(0, |slot| slot.bytes.end)
            }
            None if !self.slots.is_empty() => from,
            _ => self.document.len(),
        };
        to.bytes.extend_from_slice(&self.document[from..end.max(from)]);
    }
}

/// The words for each cue. If there are more cues than words, the last word is shown until the sentence ends.
fn deal_to(slots: &[Slot], mut words: Vec<Word>) -> Vec<Vec<Word>> {
    while let Some(last) = words.last().filter(|_| words.len() < slots.len()) {
        let bytes = last.text.clone().into_bytes();
        words.push(Word { bytes, spaced: true, inside: false, text: last.text.clone() });
    }
    let shares: Vec<usize> = slots.iter().map(|slot| slot.width).collect();
    deal::deal(&words, &shares).into_iter().map(|range| words[range].to_vec()).collect()
}

impl Subtitles {
    /// The words of a translated block, with their tags.
    fn words(
        &self,
        number: usize,
        block: &Block,
        new: &Translated,
        report: &mut Vec<Note>,
    ) -> Vec<Word> {
        let layout = project(block, new);
        let notes = layout.notes.into_iter();
        report.extend(notes.map(|(span, kind)| Note { block: number, span, kind }));
        let mut encoder = Encoder::new(&self.document, block, self.escape, false);
        let mut words = Words::default();
        for item in layout.items {
            let tag = |raw: &Range<usize>| self.document[raw.clone()].trim_ascii_end();
            match item {
                Item::Text(range) => {
                    for c in new.text[range].chars() {
                        words.push(c, &mut encoder);
                    }
                }
                Item::Blank => words.ended = true,
                Item::Open(span) => {
                    words.before(tag(&block.spans[span].open));
                    words.depth += 1;
                }
                Item::Close(span) => {
                    words.behind(tag(&block.spans[span].close));
                    words.depth = words.depth.saturating_sub(1);
                }
                Item::Point(span) => {
                    let span = &block.spans[span];
                    match span.kind {
                        Kind::Keep => words.keep(tag(&span.open), &block.text[span.text.clone()]),
                        _ if words.ended => words.before(tag(&span.open)),
                        _ => words.behind(tag(&span.open)),
                    }
                }
            }
        }
        words.finish()
    }
}

/// Collects words.
#[derive(Default)]
struct Words {
    list: Vec<Word>,
    /// Tags that stand before the next word.
    pending: Vec<u8>,
    /// Whether a blank came last.
    ended: bool,
    /// The pairs that are open, and those that were when the tags before the next word began.
    depth: usize,
    outside: usize,
}

impl Words {
    fn push(&mut self, c: char, encoder: &mut Encoder) {
        if c.is_ascii_whitespace() || c.is_control() {
            self.ended = true;
            return;
        }
        let last = self.list.last().and_then(|word| word.text.chars().next_back());
        if self.ended || last.is_none_or(|last| may_cut(last, c)) {
            self.begin();
        }
        let word = self.word();
        word.text.push(c);
        encoder.push(c.encode_utf8(&mut [0; 4]), &mut word.bytes);
    }

    fn keep(&mut self, raw: &[u8], text: &str) {
        if self.ended || self.list.is_empty() {
            self.begin();
        }
        let word = self.word();
        word.text.push_str(text);
        word.bytes.extend_from_slice(raw);
    }

    fn begin(&mut self) {
        let inside = if self.pending.is_empty() { self.depth } else { self.outside } > 0;
        let spaced = std::mem::take(&mut self.ended) && !self.list.is_empty();
        self.list.push(Word { spaced, inside, ..Word::default() });
    }

    /// The word that is being collected, with the tags before it.
    fn word(&mut self) -> &mut Word {
        let pending = std::mem::take(&mut self.pending);
        if self.list.is_empty() {
            self.list.push(Word::default());
        }
        let last = self.list.len() - 1;
        let word = &mut self.list[last];
        word.bytes.extend(pending);
        word
    }

    fn before(&mut self, tag: &[u8]) {
        if self.pending.is_empty() {
            self.outside = self.depth;
        }
        self.pending.extend_from_slice(tag);
    }

    fn behind(&mut self, tag: &[u8]) {
        match self.list.last_mut() {
            Some(word) if self.pending.is_empty() => word.bytes.extend_from_slice(tag),
            _ => self.before(tag),
        }
    }

    fn finish(mut self) -> Vec<Word> {
        let pending = std::mem::take(&mut self.pending);
        match self.list.last_mut() {
            Some(word) => word.bytes.extend(pending),
            None => return Vec::new(),
        }
        self.list
    }
}
