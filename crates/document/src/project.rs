//! Where the spans of a block go in its translation.
use std::ops::Range;

use crate::block::{Block, Translated};
use crate::document::NoteKind;

/// A translated block as a sequence.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) items: Vec<Item>,
    /// Spans that could not be placed as they should.
    pub(crate) notes: Vec<(usize, NoteKind)>,
}

/// A piece of a translated block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// Bytes of the new text.
    Text(Range<usize>),
    /// The start tag of a pair.
    Open(usize),
    /// The end tag of a pair.
    Close(usize),
    /// A point, or something that is kept.
    Point(usize),
}

pub(crate) fn project(_block: &Block, new: &Translated) -> Layout {
    Layout { items: vec![Item::Text(0..new.text.len())], notes: Vec::new() }
}
