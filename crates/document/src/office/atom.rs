//! The pieces that a paragraph of runs is read as.

use std::ops::Range;

use super::dialect::Class;

/// A piece of a paragraph.
#[derive(Debug, Clone)]
pub(crate) struct Atom {
    pub(crate) what: What,
    /// Its bytes of the document.
    pub(crate) raw: Range<usize>,
    /// The formatting of the run it is in; nothing if it stands between runs. For what goes round runs, that of
    /// most of its text.
    pub(crate) style: Option<usize>,
}

/// What a piece is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Text,
    /// Text that ends a block: the line end in a cell.
    Gap,
    Mark(Class),
    /// The tags of what goes round runs.
    Open,
    Close,
    /// A run of a field.
    Field(FieldPart),
}

impl Atom {
    /// Whether it has words or signs of words.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.what, What::Text | What::Mark(Class::Hyphen))
    }
}

/// What a run of a field has in it, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldPart {
    pub(crate) begins: bool,
    pub(crate) separates: bool,
    pub(crate) ends: bool,
    /// Whether it is something else: several fields or parts of them.
    pub(crate) is_odd: bool,
    pub(crate) code: String,
}
