//! The product with AMX: two blocks of sixteen rows times two panels at a time. The order of additions
//! of its instruction is the one this module defines.

use super::{RUN_LINES, Task};
use crate::amx::{Block, Feed, ROWS, Tiles, feed_halves};
use crate::lanes::LANES;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), `task` has halves, and the sizes of `task` and `out` agree as
/// [`super::multiply`] checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (rows, width, groups) = (task.rows, task.width(), task.packed.groups());
    let stride = task.stride * size_of::<u16>();
    let mut block = Block([[[0f32; 16]; ROWS]; 4]);
    let mut tiles: Option<Tiles> = None;
    for left in (0..task.panels).step_by(2) {
        // Where there is no second panel the first is computed twice.
        let right = (left + 1).min(task.panels - 1);
        for row in (0..rows).step_by(2 * ROWS) {
            let upper = (rows - row).min(ROWS);
            let lower = (rows - row - upper).min(ROWS);
            // SAFETY: the caller vouches for AMX, and the old tiles are gone before there are new ones;
            // rows and panels are those that exist, and both are whole steps of 64 bytes long.
            unsafe {
                if !tiles.as_ref().is_some_and(|tiles| tiles.fit(upper, lower)) {
                    drop(tiles.take());
                }
                let tiles = tiles.get_or_insert_with(|| Tiles::new(upper, lower));
                let halves: *const u8 = task.halves.as_ptr().cast::<u8>().add(row * stride);
                let lines = |panel: usize| -> *const u8 {
                    task.packed.lines.as_ptr().add((task.first_panel + panel) * groups).cast()
                };
                let feed = Feed {
                    upper: halves,
                    lower: if lower > 0 { halves.add(ROWS * stride) } else { halves },
                    stride,
                    panels: [lines(left), lines(right)],
                    steps: groups / RUN_LINES,
                };
                feed_halves(tiles, feed, &mut block);
            }
            for (half, height) in [upper, lower].into_iter().enumerate() {
                for (side, panel) in [left, right].into_iter().enumerate().take(right - left + 1) {
                    let bias = &task.packed.bias[task.first_panel + panel].0;
                    let columns = (width - panel * LANES).min(LANES);
                    for (r, sums) in block.0[2 * half + side][..height].iter().enumerate() {
                        let start = (row + half * ROWS + r) * width + panel * LANES;
                        let out = &mut out[start..start + columns];
                        for ((out, sum), bias) in out.iter_mut().zip(sums).zip(bias) {
                            *out = sum + bias;
                        }
                    }
                }
            }
        }
    }
}
