//! The result of encoding: ids, and the bytes of the line that each came from.

use std::ops::Range;

/// The tokens of one line.
///
/// `spans[i]` is the byte range of the *input* that `ids[i]` was made from. Spans never go backwards and
/// stay within the input. One may be empty: a character that normalisation spells out (`½` becomes
/// `1⁄2`) belongs to the last of the pieces it was cut into, and the leading blank that SentencePiece
/// adds belongs to no byte at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Token ids, without an end symbol.
    pub ids: Vec<u32>,
    /// For each id, the bytes of the input it covers.
    pub spans: Vec<Range<usize>>,
}

impl Encoded {
    pub(crate) fn push(&mut self, id: u32, span: Range<usize>) {
        self.ids.push(id);
        self.spans.push(span);
    }
}
