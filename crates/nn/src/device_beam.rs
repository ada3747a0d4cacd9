//! Beam search on the device, so that steps begin before the host has the last step's top-k words.
//!
//! Every sentence of a top-k request has as many *places* as its beam is wide. After the step the hypotheses that
//! go on take them in the order in which search would list them; the rest stay empty. Places are numbered
//! sentence by sentence in the request's order: a sentence's first place is the sum of the beams before it. The
//! next step's rows may go on from places ([`Origin::Place`]) before the host has read which hypotheses they hold.
//! The host's search reads the top-k words later and comes to the same list: rules and rounding are the same.

use peregrine_model::Finish;

/// From what rows may go on before the last top-k result is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunAhead {
    /// From nothing: the result is collected before the next step begins.
    No,
    /// From the best word of a row.
    Greedy,
    /// From places of a [`DeviceBeam`].
    Beams,
}

/// What a row goes on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The start of the sentence, with this first input in place of the network's own.
    Start(Option<u32>),
    /// A row of the last step, with this word.
    Row {
        /// The row.
        row: u32,
        /// The word.
        token: u32,
    },
    /// A place of the last top-k request, whose result may still be on its way. Without
    /// [device beams](crate::TopKQuery::device_beams) every row has one place, that of its best word.
    Place(u32),
}

impl Origin {
    /// The place, if it is one.
    pub fn place(self) -> Option<u32> {
        match self {
            Origin::Place(place) => Some(place),
            Origin::Start(_) | Origin::Row { .. } => None,
        }
    }

    /// The word, if it is known.
    pub fn token(self) -> Option<u32> {
        match self {
            Origin::Row { token, .. } => Some(token),
            Origin::Start(token) => token,
            Origin::Place(_) => None,
        }
    }

    /// The row, if every row has one place, that of its best word.
    pub fn greedy_row(self) -> Option<u32> {
        match self {
            Origin::Start(_) => None,
            Origin::Row { row, .. } | Origin::Place(row) => Some(row),
        }
    }
}

/// The widest beam that a device can search: a warp has a lane for each place.
pub const MOST_PLACES: usize = 32;

/// One step of a sentence's beam search on the device.
///
/// A candidate is one of a row's top-k words; its path score is the row's path score plus the word's score. The
/// best come first, by [`f32::total_cmp`]; of equals that of the earlier row, then the earlier of its row.
///
/// A beam of one is allowed. Its row asks for one word, which may be scored by logit, and it finishes as
/// [`Finish::Shrink`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBeam {
    /// The number of rows of the sentence, which stand together.
    pub rows: u32,
    /// The first of the places of the last top-k request that the rows go on from, if they go on from places. The
    /// device then takes path scores, the number of places taken and the beam's width from that request.
    pub follows: Option<u32>,
    /// The number of hypotheses that may still go on if the beam shrinks. Not read if `follows` is given.
    pub width: u32,
    /// Whether the next word's score counts as 0.
    pub free: bool,
    /// The number of places of the sentence, at most [`MOST_PLACES`].
    pub beam: u32,
    /// The rule that says which hypotheses go on.
    pub finish: Finish,
    /// The word that ends a hypothesis.
    pub end: u32,
}
