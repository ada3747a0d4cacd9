//! The integer product with AMX: two blocks of sixteen rows times two panels at a time. Sums are the
//! same integers as everywhere, and are turned into floats in the same order of operations.

use super::Task;
use crate::amx::{Block, Feed, ROWS, Tiles, feed_bytes};
use crate::lanes::LANES;

/// See [`super::multiply`].
///
/// # Safety
/// The processor has AMX (and AVX-512), and the sizes of `task` and `out` agree as [`super::multiply`]
/// checks.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn multiply(task: Task<'_>, out: &mut [f32]) {
    let (rows, width, groups) = (task.steps.len(), task.width(), task.packed.groups());
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
                    finish(task, row + half * ROWS, panel, sums, width, out);
                }
            }
        }
    }
}

/// Turns the sums of some rows and one panel into outputs.
#[inline(always)]
fn finish(
    task: Task<'_>,
    first: usize,
    panel: usize,
    sums: &[[i32; LANES]],
    width: usize,
    out: &mut [f32],
) {
    let packed = task.packed;
    let of_panel = task.first_panel + panel;
    let (starts, steps) = (&packed.starts[of_panel].0, &packed.steps[of_panel].0);
    let bias = &packed.bias[of_panel].0;
    let floor = if task.relu { 0.0 } else { f32::NEG_INFINITY };
    for (row, sums) in sums.iter().enumerate() {
        let row_step = task.steps[first + row];
        let mut y = [0.0; LANES];
        for i in 0..LANES {
            // Not fused: every kernel must round alike.
            y[i] = (sums[i] + starts[i]) as f32 * (steps[i] * row_step) + bias[i];
            y[i] = if y[i] < floor { floor } else { y[i] };
        }
        let start = (first + row) * width + panel * LANES;
        let count = (width - panel * LANES).min(LANES);
        out[start..start + count].copy_from_slice(&y[..count]);
    }
}
