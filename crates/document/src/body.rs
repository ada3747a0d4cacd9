//! What a format makes of a document, and what becomes of it when it is written.

use std::fmt::Debug;
use std::ops::Range;

use crate::block::{Block, Translated};

/// What a reader makes of a document: its blocks, and how they are put back.
pub(crate) type Parsed = (Vec<Block>, Box<dyn Body>);

/// What a format knows about a document: how its blocks are put back. A format is a function from bytes to blocks and
/// a body.
pub(crate) trait Body: Debug + Send + Sync {
    /// Whether the first `count` blocks can be written before those behind them are known.
    fn ready(&self, count: usize) -> bool;

    /// Writes some of the blocks and the bytes before them. The bytes behind the document's last block follow that block.
    /// `new` has what the blocks in `range` became.
    fn write(&self, blocks: &[Block], range: Range<usize>, new: &[Translated], to: &mut Written);
}

/// A document with new texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// The document.
    pub bytes: Vec<u8>,
    /// What could not be done as it should.
    pub report: Vec<Note>,
}

/// Something about a block's markup that its reader may want to check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The number of the block.
    pub block: usize,
    /// The number of the span among the block's; 0 if it is about no span.
    pub span: usize,
    /// What happened.
    pub kind: NoteKind,
}

/// What can happen to a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoteKind {
    /// No target word comes from the words of a pair: it was put round a word nearby.
    Moved,
    /// A pair had text and has none.
    Emptied,
    /// A text that was to be kept did not come back: it was put where its neighbours are.
    Lost,
    /// The new text has characters that the document's encoding lacks: all of it was written in UTF-8. The note is about the block
    /// with the first of them.
    Reencoded,
}
