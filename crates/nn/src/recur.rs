//! What the verb of a recurrent cell reads.

use crate::backend::Backend;

/// Rows that stand for the rows of a step: the same, some of them, or one for all.
pub struct Term<'a, B: Backend> {
    /// The rows.
    pub rows: &'a B::Rows,
    /// Which of them belongs to which row of the step.
    pub of: Of<'a>,
}

/// Which row of a [`Term`] belongs to row `i` of a step.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// Row `i`.
    Same,
    /// Row `at[i]`.
    At(&'a [u32]),
    /// Row 0.
    First,
}

impl Of<'_> {
    /// The row that belongs to row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> usize {
        match self {
            Of::Same => i,
            Of::At(at) => at[i] as usize,
            Of::First => 0,
        }
    }
}

impl<'a, B: Backend> Term<'a, B> {
    /// Row by row.
    pub fn same(rows: &'a B::Rows) -> Self {
        Term { rows, of: Of::Same }
    }

    /// Row `at[i]` for row `i`.
    pub fn at(rows: &'a B::Rows, at: &'a [u32]) -> Self {
        Term { rows, of: Of::At(at) }
    }
}

impl<B: Backend> Clone for Term<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Term<'_, B> {}

/// The parts a cell adds up, each G·D wide; a missing one is zero.
pub struct Terms<'a, B: Backend> {
    /// From the input.
    pub x: Option<Term<'a, B>>,
    /// From the state.
    pub s: Option<Term<'a, B>>,
    /// The input itself, D wide, which sru passes on.
    pub raw: Option<Term<'a, B>>,
}
