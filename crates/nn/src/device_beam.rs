//! Steps that begin before the last one is answered: what a device must know to find out by itself
//! which hypotheses go on.
//!
//! Every sentence of a question has as many *places* as its own beam is wide. After the step each is taken
//! by a hypothesis that goes on, the first places first, in the order in which search would list them; the
//! rest are empty. Places are numbered sentence by sentence in the question's order: a sentence's first place is
//! the sum of the beams before it. The next step's rows may go on from places ([`Origin::Place`]) without anybody
//! having told the host who is there. Search hears the answer later and comes to the same list: the rules are
//! its own, and so is every rounding.

use peregrine_model::Finish;

/// How far a device gets on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunAhead {
    /// A question is answered before the next step begins.
    No,
    /// Rows may go on from the best word of a row.
    Greedy,
    /// They may go on from places of a [`DeviceBeam`].
    Beams,
}

/// What a row goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nothing: it is the sentence's first.
    Start,
    /// A row of the last step, with this word.
    Row {
        /// The row.
        row: u32,
        /// The word.
        token: u32,
    },
    /// A place of the last question, whose answer may still be on its way. Without
    /// [contests](crate::Question::contests) every row has one place, that of its best word.
    Place(u32),
}

impl Origin {
    /// The place, if it is one.
    pub fn place(self) -> Option<u32> {
        match self {
            Origin::Place(place) => Some(place),
            Origin::Start | Origin::Row { .. } => None,
        }
    }

    /// The word, if it is known.
    pub fn token(self) -> Option<u32> {
        match self {
            Origin::Row { token, .. } => Some(token),
            Origin::Start | Origin::Place(_) => None,
        }
    }

    /// The row, where places are those of best words.
    pub fn greedy_row(self) -> Option<u32> {
        match self {
            Origin::Start => None,
            Origin::Row { row, .. } | Origin::Place(row) => Some(row),
        }
    }
}

/// The widest beam that may compete for places: a lane of a warp for each place.
pub const MOST_PLACES: usize = 32;

/// How the hypotheses of a sentence compete for its places.
///
/// A candidate is a word of a row's answer; its path is the row's path so far plus the word's score. The
/// best come first, by [`f32::total_cmp`]; of equals that of the earlier row, then the earlier of its row.
///
/// A beam of one is a contest too. Its row asks for one word, which may be scored by logit, and it finishes as
/// [`Finish::Shrink`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBeam {
    /// How many rows the sentence has. They stand together.
    pub rows: u32,
    /// Where its rows go on from places: the first of those, in the last question's numbering. What their paths
    /// are, how many of the places are taken, and how wide the beam still is, the device knows from that question.
    pub follows: Option<u32>,
    /// Otherwise, how many hypotheses may still go on where the beam shrinks.
    pub width: u32,
    /// Whether the next word costs nothing.
    pub free: bool,
    /// How many places the sentence has, at most [`MOST_PLACES`].
    pub beam: u32,
    /// Who goes on.
    pub finish: Finish,
    /// The word that ends a hypothesis.
    pub end: u32,
}
