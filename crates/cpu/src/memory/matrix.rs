//! Rows of activations.

use crate::memory::arena::{CacheLine, Pages, Store};

/// A row-major matrix whose memory is kept when it shrinks. It begins at a cache line, so that vectors of its rows do
/// not straddle two.
pub struct Matrix {
    data: Store<CacheLine>,
    rows: usize,
    width: usize,
}

impl Default for Matrix {
    fn default() -> Matrix {
        Matrix::on(Pages::default())
    }
}

impl Matrix {
    /// An empty one, which lies on such pages once it is large.
    pub(crate) fn on(pages: Pages) -> Matrix {
        Matrix { data: Store::zeroed(0, pages), rows: 0, width: 0 }
    }

    /// From numbers laid out row by row.
    pub fn from_rows(width: usize, data: Vec<f32>) -> Matrix {
        assert!(width > 0 && data.len().is_multiple_of(width), "rows of equal width");
        let mut matrix = Matrix::default();
        matrix.shape(data.len() / width, width);
        matrix.values_mut().copy_from_slice(&data);
        matrix
    }

    /// Numbers there is room for.
    fn room(&self) -> usize {
        size_of_val::<[CacheLine]>(&self.data) / size_of::<f32>()
    }

    fn make_room(&mut self, numbers: usize) {
        self.data.grow((numbers * size_of::<f32>()).div_ceil(size_of::<CacheLine>()));
    }

    /// Sets the shape; what is in it afterwards is unspecified.
    pub(crate) fn shape(&mut self, rows: usize, width: usize) {
        if self.room() < rows * width {
            self.make_room(rows * width);
        }
        self.rows = rows;
        self.width = width;
    }

    /// Makes room for at least `rows` rows of that width, keeping what is there.
    pub(crate) fn grow(&mut self, rows: usize, width: usize) {
        if self.room() < rows * width {
            // Doubling: a cache grows a little at nearly every step.
            self.make_room((rows * width).max(self.room() * 2));
        }
        self.rows = self.rows.max(rows);
        self.width = width;
    }

    /// Sets the shape; rows stay where the width does, new ones are zero.
    pub(crate) fn resize(&mut self, rows: usize, width: usize) {
        let kept = if width == self.width { self.rows.min(rows) } else { 0 };
        self.shape(rows, width);
        self.values_mut()[kept * width..].fill(0.0);
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Length of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All numbers, row by row.
    pub fn values(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.data)[..self.rows * self.width]
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        &mut bytemuck::cast_slice_mut(&mut self.data)[..self.rows * self.width]
    }

    /// One row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values()[row * self.width..][..self.width]
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f32] {
        let width = self.width;
        &mut self.values_mut()[row * width..][..width]
    }

    /// Row by row. A matrix without columns has no rows to show.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values().chunks_exact(self.width.max(1))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let width = self.width.max(1);
        self.values_mut().chunks_exact_mut(width)
    }
}
