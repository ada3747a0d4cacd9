//! Device memory: buffers, rows of activations, and the KV cache.

use std::sync::Arc;

use crate::Error;
use crate::device::{Device, bucket};
use crate::driver::Address;
use crate::kernel;

/// No row, no word, no place.
pub(crate) const NONE: u32 = u32::MAX;
/// The bit that marks a number as a place of the last query.
pub(crate) const FOLLOWS: u32 = 1 << 31;

/// Rows that can always be read, whatever is in them: half of a tensor-core tile.
pub(crate) const FEW_ROWS: usize = 8;

/// Device memory. It goes back to the stream of the thread that drops it, whose work was the last to use it: its
/// next owner on that stream is recorded later. What was allocated on a side stream goes back to that.
pub(crate) struct Buffer {
    device: Arc<Device>,
    on_side: bool,
    pub(crate) address: Address,
    pub(crate) bytes: usize,
}

impl Buffer {
    pub(crate) fn new(device: &Arc<Device>, bytes: usize) -> Result<Buffer, Error> {
        let stream = device.stream()?;
        let (address, bytes) = device.allocate(&stream, bytes)?;
        let on_side = device.is_on_side_stream();
        Ok(Buffer { device: Arc::clone(device), on_side, address, bytes })
    }

    pub(crate) fn of_floats(device: &Arc<Device>, values: &[f32]) -> Result<Buffer, Error> {
        let buffer = Buffer::new(device, values.len() * 4)?;
        // SAFETY: f32 are plain bytes.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len() * 4) };
        device.upload(buffer.address, bytes)?;
        Ok(buffer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.give_back(self.address, self.bytes, self.on_side);
    }
}

/// Columns a row takes in memory: a multiple of 16. Those after the last column are zero, as products need
/// it.
pub(crate) fn stride(width: usize) -> usize {
    width.next_multiple_of(16)
}

/// Rows of activations, or of recurrent states.
#[derive(Default)]
pub struct Rows {
    buffer: Option<Buffer>,
    pub(crate) count: usize,
    pub(crate) width: usize,
}

impl Rows {
    pub(crate) fn address(&self) -> Address {
        self.buffer.as_ref().map_or(0, |buffer| buffer.address)
    }

    pub(crate) fn stride(&self) -> usize {
        stride(self.width)
    }

    pub(crate) fn capacity(&self, device: &Device) -> usize {
        let row = self.stride() * device.precision.row_size();
        self.buffer.as_ref().map_or(0, |buffer| buffer.bytes / row.max(1))
    }

    /// Makes this `count` rows of that width; their contents are lost.
    pub(crate) fn shape(
        &mut self,
        device: &Arc<Device>,
        count: usize,
        width: usize,
    ) -> Result<(), Error> {
        let other = self.width != width;
        self.width = width;
        self.count = count;
        // Kernels for few rows read `FEW_ROWS` rows.
        let needed = count.max(FEW_ROWS);
        let room = self.capacity(device);
        if room < needed {
            // The old memory is freed first, so that it can serve again.
            self.buffer = None;
            let bytes = bucket(needed) * self.stride() * device.precision.row_size();
            self.buffer = Some(Buffer::new(device, bytes)?);
        }
        if width != self.stride() && (other || room < needed) {
            self.clear(device, 0, self.capacity(device))?;
        }
        Ok(())
    }

    /// Makes this `count` rows of that width. Rows that were there stay, new ones are zero; with another width all are
    /// lost.
    pub(crate) fn resize(
        &mut self,
        device: &Arc<Device>,
        count: usize,
        width: usize,
    ) -> Result<(), Error> {
        if self.width != width {
            self.width = width;
            self.count = 0;
        }
        let old = self.count;
        self.grow(device, count)?;
        self.count = count;
        if count > old { self.clear(device, old, count - old) } else { Ok(()) }
    }

    /// Makes room for `count` rows and for more to come; the contents stay.
    pub(crate) fn grow(&mut self, device: &Arc<Device>, count: usize) -> Result<(), Error> {
        let needed = count.max(FEW_ROWS);
        if self.capacity(device) >= needed {
            return Ok(());
        }
        let row = self.stride() * device.precision.row_size();
        let new = Buffer::new(device, needed.next_power_of_two() * row)?;
        if let Some(old) = self.buffer.replace(new)
            && self.count > 0
        {
            device.join_side_stream()?;
            copy(device, old.address, self.address(), self.count * row)?;
        }
        Ok(())
    }

    fn clear(&self, device: &Device, first: usize, count: usize) -> Result<(), Error> {
        device.record(|segment| {
            let parameters = kernel::ClearRows {
                rows: self.address(),
                stride: self.stride(),
                first: segment.count(first)?,
                count: segment.count(count)?,
            };
            segment.launch_columns(kernel::clear_rows, count, self.stride(), &parameters)
        })
    }
}

/// A KV cache: keys and values by position, as activations or in fp8 (e4m3).
#[derive(Default)]
pub struct Cache {
    pub(crate) keys: Rows,
    pub(crate) values: Rows,
    /// Whether a number takes one byte. The rows are then half as wide, two numbers in the place of an activation.
    pub(crate) fp8: bool,
}

impl Cache {
    /// An empty cache, in fp8 if `fp8` and if kernels can read such heads.
    pub(crate) fn new(fp8: bool) -> Cache {
        Cache { fp8, ..Cache::default() }
    }

    pub(crate) fn reserve(
        &mut self,
        device: &Arc<Device>,
        positions: usize,
        width: usize,
        heads: usize,
    ) -> Result<(), Error> {
        let head = width / heads.max(1);
        self.fp8 &= head >= 8 && head.is_power_of_two();
        let width = if self.fp8 { width / 2 } else { width };
        for rows in [&mut self.keys, &mut self.values] {
            rows.reserve(device, positions, width)?;
        }
        Ok(())
    }
}

impl Rows {
    /// Makes this at least `count` rows of that width; the contents stay.
    pub(crate) fn reserve(
        &mut self,
        device: &Arc<Device>,
        count: usize,
        width: usize,
    ) -> Result<(), Error> {
        if self.width != width {
            *self = Rows { width, ..Rows::default() };
        }
        self.grow(device, count)?;
        self.count = self.count.max(count);
        Ok(())
    }
}

/// Copies device memory by a kernel, in order with all other work.
pub(crate) fn copy(device: &Device, from: Address, to: Address, bytes: usize) -> Result<(), Error> {
    const THREADS: usize = 256;
    const MOST_BLOCKS: usize = 1024;
    let words = bytes / 4;
    let parameters = kernel::CopyWords { from, to, words: words as u64 };
    let blocks = words.div_ceil(THREADS).clamp(1, MOST_BLOCKS);
    let grid = [blocks, 1];
    device.record(|segment| segment.launch(kernel::copy_words, grid, THREADS, 0, &parameters))
}
