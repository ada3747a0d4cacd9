//! Rows of activations.

/// A row-major matrix whose memory is kept when it shrinks.
#[derive(Debug, Default, Clone)]
pub struct Matrix {
    data: Vec<f32>,
    rows: usize,
    width: usize,
}

impl Matrix {
    /// From numbers laid out row by row.
    pub fn from_rows(width: usize, data: Vec<f32>) -> Matrix {
        assert!(width > 0 && data.len().is_multiple_of(width), "rows of equal width");
        Matrix { rows: data.len() / width, width, data }
    }

    /// Sets the shape; what is in it afterwards is unspecified.
    pub(crate) fn shape(&mut self, rows: usize, width: usize) {
        if self.data.len() < rows * width {
            self.data.resize(rows * width, 0.0);
        }
        self.rows = rows;
        self.width = width;
    }

    /// Makes room for at least `rows` rows of that width, keeping what is there.
    pub(crate) fn grow(&mut self, rows: usize, width: usize) {
        if self.data.len() < rows * width {
            // Doubling: a cache grows a little at nearly every step.
            let size = (rows * width).max(self.data.len() * 2);
            self.data.resize(size, 0.0);
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
        &self.data[..self.rows * self.width]
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.data[..self.rows * self.width]
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
