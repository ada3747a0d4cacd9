//! How kernels cut a product into register tiles, whose sums stay in registers.
//!
//! A register tile is up to twelve rows by a few panels (columns of sixteen). Its height and width are constants at compile time,
//! so that its sums are registers; [`of_height`] picks the instance that fits.

/// How rows of inputs lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum InputLayout {
    /// One row after the other.
    #[default]
    RowMajor,
    /// The first 64 bytes of sixteen rows, then their next 64 bytes, and so on: an AMX tile is loaded from contiguous memory.
    AmxTiles,
}

/// Panels of a register tile. Six rows by four panels need fewer loads than twelve by two. With few rows, reading weights is the
/// whole cost, and two streams are read faster than four. `peregrine tune` measures both.
#[cfg(target_arch = "x86_64")]
pub(crate) fn panels_for(rows: usize) -> usize {
    if rows > 24 { 4 } else { 2 }
}

/// The maximum rows of a register tile of so many panels, with 24 registers for sums.
#[cfg(target_arch = "x86_64")]
pub(crate) const fn rows_for(panels: usize) -> usize {
    match panels {
        8 => 2,
        4 => 6,
        _ => 12,
    }
}

/// Evaluates an expression in which `$r` is the height as a constant. The list has the heights there are; the last stands for all
/// others.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! of_height {
    ($height:expr, [$($rows:literal)*, $last:literal], $r:ident => $tile:expr) => {
        match $height {
            $($rows => {
                const $r: usize = $rows;
                $tile
            })*
            _ => {
                const $r: usize = $last;
                $tile
            }
        }
    };
}

/// As [`of_height`] for the heights and widths of AVX-512's register tiles.
#[cfg(target_arch = "x86_64")]
macro_rules! of_shape {
    ($height:expr, $panels:expr, $r:ident, $p:ident => $tile:expr) => {
        match $panels {
            8 => {
                const $p: usize = 8;
                $crate::gemm::tiles::of_height!($height, [1, 2], $r => $tile)
            }
            4 => {
                const $p: usize = 4;
                $crate::gemm::tiles::of_height!($height, [1 2 3 4 5, 6], $r => $tile)
            }
            2 => {
                const $p: usize = 2;
                $crate::gemm::tiles::of_height!($height, [1 2 3 4 5 6 7 8 9 10 11, 12], $r => $tile)
            }
            _ => {
                const $p: usize = 1;
                $crate::gemm::tiles::of_height!($height, [1 2 3 4 5 6 7 8 9 10 11, 12], $r => $tile)
            }
        }
    };
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use of_height;
#[cfg(target_arch = "x86_64")]
pub(crate) use of_shape;

/// A register tile's place in a product of `rows` by `panels`.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegisterTile {
    pub(crate) row: usize,
    pub(crate) rows: usize,
    pub(crate) panel: usize,
    pub(crate) panels: usize,
    /// Columns of the last panel that exist.
    pub(crate) in_last: usize,
    /// This tile's index among the tiles of its panels, and their number: each prefetches its share of the next panels' weights
    /// while it computes.
    pub(crate) share: (usize, usize),
}

/// All register tiles, of at most `max_panels` panels, of a product with `width` columns. All rows of some panels come before the
/// next panels.
#[cfg(target_arch = "x86_64")]
pub(crate) fn register_tiles(
    rows: usize,
    panels: usize,
    width: usize,
    max_panels: usize,
) -> impl Iterator<Item = RegisterTile> {
    use crate::isa::lanes::LANES;
    let mut panel = 0;
    let columns = std::iter::from_fn(move || {
        let left = panels - panel;
        let mut count = max_panels;
        while count > left {
            count /= 2;
        }
        let start = panel;
        panel += count;
        (count > 0).then_some((start, count))
    });
    columns.flat_map(move |(panel, panels)| {
        let height = rows_for(panels);
        let tiles = rows.div_ceil(height).max(1);
        (0..rows).step_by(height).enumerate().map(move |(i, row)| RegisterTile {
            row,
            rows: (rows - row).min(height),
            panel,
            panels,
            in_last: (width - (panel + panels - 1) * LANES).min(LANES),
            share: (i, tiles),
        })
    })
}

/// Returns the pointer through an optimisation barrier. Without it, the compiler computes the address of each row anew for every
/// input, with an instruction each.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(clippy::pointers_in_nomem_asm_block, reason = "the block has no instruction")]
pub(crate) fn optimisation_barrier<T>(mut pointer: *const T) -> *const T {
    // SAFETY: the block has no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    pointer
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::isa::lanes::LANES;

    #[test]
    fn register_tiles_cover_a_product_once() {
        for rows in 0..40usize {
            for width in 1..200usize {
                let panels = width.div_ceil(LANES);
                let mut seen = vec![0; rows * width];
                let max_panels = [2, 4, 8][width % 3];
                for tile in register_tiles(rows, panels, width, max_panels) {
                    assert!(tile.rows <= rows_for(tile.panels) && tile.share.0 < tile.share.1);
                    let columns = (tile.panels - 1) * LANES + tile.in_last;
                    for row in tile.row..tile.row + tile.rows {
                        let start = row * width + tile.panel * LANES;
                        seen[start..start + columns].iter_mut().for_each(|n| *n += 1);
                    }
                }
                assert!(seen.iter().all(|&n| n == 1), "{rows} rows, {width} columns");
            }
        }
    }
}
