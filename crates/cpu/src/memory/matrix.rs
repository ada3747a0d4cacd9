//! Rows of activations.

use crate::memory::arena::{CacheLine, Pages, Store};

/// A row-major matrix whose memory is kept when it shrinks. It is aligned to cache lines, so that vectors of its rows do not cross
/// one.
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
    /// An empty matrix, which is allocated on such pages once it is large.
    pub(crate) fn on(pages: Pages) -> Matrix {
        Matrix { data: Store::zeroed(0, pages), rows: 0, width: 0 }
    }

    /// A matrix of numbers in row-major order.
    pub fn from_rows(width: usize, data: Vec<f32>) -> Matrix {
        assert!(width > 0 && data.len().is_multiple_of(width), "rows of equal width");
        let mut matrix = Matrix::default();
        matrix.shape(data.len() / width, width);
        matrix.values_mut().copy_from_slice(&data);
        matrix
    }

    /// The number of values that fit.
    fn capacity(&self) -> usize {
        size_of_val::<[CacheLine]>(&self.data) / size_of::<f32>()
    }

    fn reserve(&mut self, numbers: usize) {
        self.data.grow((numbers * size_of::<f32>()).div_ceil(size_of::<CacheLine>()));
    }

    /// Sets the shape. Contents are unspecified.
    pub(crate) fn shape(&mut self, rows: usize, width: usize) {
        if self.capacity() < rows * width {
            self.reserve(rows * width);
        }
        self.rows = rows;
        self.width = width;
    }

    /// Grows to at least `rows` rows of that width, keeping the contents.
    pub(crate) fn grow(&mut self, rows: usize, width: usize) {
        if self.capacity() < rows * width {
            // Doubling: a KV cache grows a little at nearly every decoder step.
            self.reserve((rows * width).max(self.capacity() * 2));
        }
        self.rows = self.rows.max(rows);
        self.width = width;
    }

    /// Sets the shape. Rows are kept if the width stays the same; new rows are zero.
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

    /// All numbers in row-major order.
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

    /// Iterates over the rows. A matrix without columns yields none.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values().chunks_exact(self.width.max(1))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let width = self.width.max(1);
        self.values_mut().chunks_exact_mut(width)
    }
}
