//! Text whose sentences span lines.
//!
//! A paragraph is read as one text and split into sentences. A sentence's translation stands in the
//! line in which the sentence begins, so there are as many lines afterwards as before.

use peregrine_text::sentences;

use super::Line;
use crate::line::Common;
use crate::part::{Place, SplitLine};
use crate::{Error, Request, Translator};

/// The longest paragraph; a longer one is cut, as a text without empty lines must not fill the memory.
const MOST_BYTES: usize = 1 << 16;

/// The lines of a paragraph as they come.
pub(super) struct Paragraph<T> {
    lines: Vec<Line<T>>,
    bytes: usize,
}

impl<T> Default for Paragraph<T> {
    fn default() -> Self {
        Paragraph { lines: Vec::new(), bytes: 0 }
    }
}

impl<T> Paragraph<T> {
    /// Adds a line. The paragraph, if it is complete.
    pub(super) fn push(&mut self, line: Line<T>) -> Option<Vec<Line<T>>> {
        let ends = line.text.trim().is_empty();
        self.bytes += line.text.len() + 1;
        self.lines.push(line);
        (ends || self.bytes >= MOST_BYTES).then(|| self.take())
    }

    /// Takes the lines so far.
    pub(super) fn take(&mut self) -> Vec<Line<T>> {
        self.bytes = 0;
        std::mem::take(&mut self.lines)
    }
}

/// Splits the sentences of a paragraph and assigns them to its lines.
pub(super) fn split_lines<T>(
    translator: &Translator,
    lines: &[Line<T>],
    common: &Common<'_>,
) -> Result<Vec<SplitLine>, Error> {
    let mut text = String::new();
    let mut ends = Vec::with_capacity(lines.len());
    for line in lines {
        text.push_str(&line.text);
        text.push('\n');
        ends.push(text.len());
    }
    let mut split: Vec<SplitLine> = lines.iter().map(|line| SplitLine::new(&line.text)).collect();
    let mut last_end = 0;
    for range in sentences(&text) {
        let line = ends.partition_point(|&end| end <= range.start);
        let prefix = lines[line].prefix.as_deref();
        let sentence = text[range.clone()].replace('\n', " ");
        // The break before a line's first sentence is not between two sentences of that line.
        let between = text[last_end..range.start].replace('\n', " ");
        let between = if split[line].parts.list.is_empty() { "" } else { &between };
        last_end = range.end;
        let request = Request { prefix, ..Request::new(&sentence) };
        let offset = range.start - (ends[line] - lines[line].text.len() - 1);
        let place = Place { text: &sentence, offset, between };
        translator.add_sentence(place, &request, common, &mut split[line])?;
    }
    Ok(split)
}
