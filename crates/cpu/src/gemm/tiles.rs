//! How kernels cut a product into tiles whose sums stay in registers.
//!
//! A tile is up to twelve rows by a few panels (columns of sixteen). Its height and width are known
//! when it is compiled, so that its sums are registers; [`of_height`] picks the one that fits.

/// Rows of a tile register of AMX: behind the last row of inputs there is memory up to a multiple of it.
pub(crate) const TILE_ROWS: usize = 16;

/// How rows of inputs lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Order {
    /// One after the other.
    #[default]
    Rows,
    /// Sixteen rows' first 64 bytes, then their next, and so on: a tile register is loaded from one piece of memory.
    Tiles,
}

/// Panels of a tile. Four times six rows need fewer loads than two times twelve; few rows are all about
/// reading weights, and two streams are read faster than four (both measured by `peregrine tune`).
#[cfg(target_arch = "x86_64")]
pub(crate) fn panels_for(rows: usize) -> usize {
    if rows > 24 { 4 } else { 2 }
}

/// Most rows of a tile of so many panels, with 24 registers for sums.
#[cfg(target_arch = "x86_64")]
pub(crate) const fn rows_for(panels: usize) -> usize {
    match panels {
        8 => 2,
        4 => 6,
        _ => 12,
    }
}

/// Evaluates an expression in which `$r`, a constant, is the height. The list says which heights there
/// are; the last is taken for all others.
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

/// The same for the heights and widths of AVX-512's tiles.
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

/// A tile's place in a product of `rows` by `panels`.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) row: usize,
    pub(crate) rows: usize,
    pub(crate) panel: usize,
    pub(crate) panels: usize,
    /// Columns of the last panel that exist.
    pub(crate) in_last: usize,
    /// This tile's number among those of its panels, and how many they are: each asks for its share of
    /// the next panels' weights while it computes.
    pub(crate) share: (usize, usize),
}

/// All tiles, of at most `most` panels, of a product with `width` columns; panels first.
#[cfg(target_arch = "x86_64")]
pub(crate) fn tiles(
    rows: usize,
    panels: usize,
    width: usize,
    most: usize,
) -> impl Iterator<Item = Tile> {
    use crate::isa::lanes::LANES;
    let mut panel = 0;
    let columns = std::iter::from_fn(move || {
        let left = panels - panel;
        let mut count = most;
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
        (0..rows).step_by(height).enumerate().map(move |(i, row)| Tile {
            row,
            rows: (rows - row).min(height),
            panel,
            panels,
            in_last: (width - (panel + panels - 1) * LANES).min(LANES),
            share: (i, tiles),
        })
    })
}

/// The same pointer, of which the compiler knows nothing. It would else work out the address of each row anew
/// at every step, by an instruction each.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[expect(clippy::pointers_in_nomem_asm_block, reason = "there is no instruction")]
pub(crate) fn opaque<T>(mut pointer: *const T) -> *const T {
    // SAFETY: there is no instruction.
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
    fn tiles_cover_a_product_once() {
        for rows in 0..40usize {
            for width in 1..200usize {
                let panels = width.div_ceil(LANES);
                let mut seen = vec![0; rows * width];
                let most = [2, 4, 8][width % 3];
                for tile in tiles(rows, panels, width, most) {
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
