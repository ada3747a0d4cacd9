//! The result of decoding: a text, and the bytes of it that each id became.

use std::ops::Range;

/// The text of some ids.
///
/// `ranges[i]` is the byte range of the *text* that `ids[i]` became. Ranges never go backwards, stay
/// within the text and lie between characters. Together they cover the text but for blanks: the blank
/// before a word belongs to none. An id that became no text (the end symbol, a token that is dropped) has
/// an empty range. A character that is spelt in bytes belongs to the last of them.
///
/// ```
/// use peregrine_text::Tokenizer;
///
/// let vocabulary = "</s>\n<unk>\nun@@\nlock\nit\n";
/// let tokenizer = Tokenizer::words("vocab.txt", vocabulary.as_bytes().into(), None)?;
/// let decoded = tokenizer.joining_bpe(true).decode_with_ranges(&[2, 3, 4, 0]);
/// assert_eq!(decoded.text, "unlock it");
/// assert_eq!(decoded.ranges, [0..2, 2..6, 7..9, 9..9]);
/// # Ok::<(), peregrine_text::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The text.
    pub text: String,
    /// For each id, the bytes of the text it became.
    pub ranges: Vec<Range<usize>>,
}

impl Decoded {
    /// From a text and where the part of each id ends in it: parts follow each other without a gap.
    pub(crate) fn from_ends(text: String, ends: &[usize]) -> Decoded {
        let mut start = 0;
        let range = |&end: &usize| {
            let part = &text[start..end];
            let inside = part.trim_start_matches(' ');
            let from = end - inside.len();
            start = end;
            from..from + inside.trim_end_matches(' ').len()
        };
        let ranges = ends.iter().map(range).collect();
        Decoded { text, ranges }
    }

    /// Puts empty ranges where ids were left out. `kept` says of all ids whether they were decoded.
    pub(crate) fn with_left_out(self, kept: impl Iterator<Item = bool>) -> Decoded {
        let mut ranges = self.ranges.into_iter();
        let mut end = 0;
        let range = |kept: bool| {
            let range = kept.then(|| ranges.next()).flatten().unwrap_or(end..end);
            end = range.end;
            range
        };
        Decoded { ranges: kept.map(range).collect(), text: self.text }
    }

    /// Keeps a part of the text only.
    pub(crate) fn within(mut self, part: Range<usize>) -> Decoded {
        let place = |at: usize| at.clamp(part.start, part.end) - part.start;
        for range in &mut self.ranges {
            *range = place(range.start)..place(range.end);
        }
        self.text.truncate(part.end);
        self.text.drain(..part.start);
        self
    }
}
