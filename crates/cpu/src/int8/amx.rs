//! The integer product with AMX: two blocks of sixteen rows times two panels at a time. Sums are the
//! same integers as everywhere, and are turned into floats in the same order of operations.

use super::{Task, finish};
use crate::amx::{Block, Feed, ROWS, Tiles, feed_bytes};

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), and the sizes of `task` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (rows, groups) = (task.steps.len(), task.packed.groups());
    let mut block = Block([[[0i32; 16]; ROWS]; 4]);
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
                let bytes = task.bytes.as_ptr().add(row * task.stride);
                let lines = |panel: usize| -> *const u8 {
                    task.packed.lines.as_ptr().add((task.first_panel + panel) * groups).cast()
                };
                let feed = Feed {
                    upper: bytes,
                    lower: if lower > 0 { bytes.add(ROWS * task.stride) } else { bytes },
                    stride: task.stride,
                    panels: [lines(left), lines(right)],
                    steps: groups / 16,
                };
                feed_bytes(tiles, feed, &mut block);
            }
            for (half, height) in [upper, lower].into_iter().enumerate() {
                for (side, panel) in [left, right].into_iter().enumerate().take(right - left + 1) {
                    let sums = &block.0[2 * half + side][..height];
                    let starts = task.packed.starts[task.first_panel + panel].0;
                    finish(task, row + half * ROWS, panel, sums, starts, out);
                }
            }
        }
    }
}
