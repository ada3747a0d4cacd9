//! Recording: the backend's operations stage their lists and record kernel launches with their parameters.

use peregrine_nn::Reads;

use super::pool::rounded;
use super::recorder::{
    Answer, Grown, Launch, Normed, Parties, Places, Recorder, StagedReads, Stored,
};
use super::streams::WorkerStream;
use super::{Device, FIRST_STAGE, bucket};
use crate::Error;
use crate::driver::{Address, Map};
use crate::kernel::{self, Kernel, as_u32};
use crate::precision::GpuPrecision;

/// What operations record into: the segment of a stream that is sent to the device as a whole.
pub(crate) struct Segment<'a> {
    pub(super) device: &'a Device,
    /// The precision of the kernels that are launched.
    pub(super) precision: GpuPrecision,
    pub(super) stream: &'a WorkerStream,
    pub(super) recorder: &'a mut Recorder,
}

impl Segment<'_> {
    pub(crate) fn precision(&self) -> GpuPrecision {
        self.precision
    }

    /// Stages a list of numbers, padded with zeros to a rounded length.
    pub(crate) fn stage(&mut self, numbers: &[u32]) -> Result<Address, Error> {
        let bytes = numbers.len() * 4;
        // SAFETY: u32 are plain bytes.
        let new = unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast::<u8>(), bytes) };
        self.stage_bytes(new, bucket(numbers.len()) * 4)
    }

    /// Stages a list of structures, padded with default ones to a rounded length.
    pub(crate) fn stage_all<T: kernel::Value + Copy + Default>(
        &mut self,
        structures: &[T],
    ) -> Result<Address, Error> {
        let mut bytes = Vec::new();
        let zeros = std::iter::repeat(T::default());
        let padded = structures.iter().copied().chain(zeros).take(bucket(structures.len()));
        padded.into_iter().try_for_each(|structure| kernel::append(&structure, &mut bytes))?;
        self.stage_bytes(&bytes, bytes.len())
    }

    /// Stages bytes, aligned to 16 and padded with zeros to `room` bytes.
    pub(crate) fn stage_bytes(&mut self, new: &[u8], room: usize) -> Result<Address, Error> {
        /// A new piece is compared with so many of the last ones: an equal one is staged once.
        const LOOK_BACK: usize = 12;
        let room = room.max(new.len()).next_multiple_of(16);
        let current = self.recorder.current;
        let known = self.recorder.staged.iter().rev().take(LOOK_BACK).find(|&&(place, length)| {
            // SAFETY: the piece lies within what is used of the stage.
            length == new.len() && unsafe { self.staged(place, length) } == new
        });
        if let Some(&(place, _)) = known {
            return Ok(self.recorder.stages[current].device + place as Address);
        }
        self.make_room(room)?;
        let stage = &mut self.recorder.stages[current];
        let place = stage.used;
        // SAFETY: there is room, and the device reads the stage only after it was submitted.
        unsafe {
            let to = stage.host.address.cast::<u8>().add(place);
            to.copy_from_nonoverlapping(new.as_ptr(), new.len());
            to.add(new.len()).write_bytes(0, room - new.len());
        }
        stage.used += room;
        let address = stage.device + place as Address;
        self.recorder.staged.push((place, new.len()));
        Ok(address)
    }

    /// # Safety
    /// The piece lies within what is used of the stage.
    unsafe fn staged(&self, place: usize, length: usize) -> &[u8] {
        let stage = &self.recorder.stages[self.recorder.current];
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(stage.host.address.cast::<u8>().add(place), length) }
    }

    /// Makes room in the stage. A larger stage keeps its contents; recorded launches hold addresses of the old
    /// one, which is therefore copied to the device first.
    fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        let stage = &self.recorder.stages[self.recorder.current];
        if stage.used + bytes <= stage.host.bytes {
            return Ok(());
        }
        let size = (stage.used + bytes).next_power_of_two().max(FIRST_STAGE);
        let device = self.device.new_memory(rounded(size))?;
        let host = self
            .device
            .host_memory(size)
            .inspect_err(|_| self.stream.give_back(device, rounded(size)))?;
        let driver = &self.device.driver;
        let stage = &mut self.recorder.stages[self.recorder.current];
        let old = std::mem::replace(&mut stage.host, host);
        let old_device = std::mem::replace(&mut stage.device, device);
        if old.address.is_null() {
            return Ok(());
        }
        // SAFETY: both are larger than what is used. The old memory is freed once, after the device
        // has read it: its addresses were already handed out.
        unsafe {
            stage
                .host
                .address
                .cast::<u8>()
                .copy_from_nonoverlapping(old.address.cast(), stage.used);
            let code =
                (driver.copy_to_device)(old_device, old.address, stage.used, self.stream.handle);
            driver.check("cuMemcpyHtoD", code)?;
            driver.check("cuStreamSynchronize", (driver.stream_wait)(self.stream.handle))?;
            (driver.host_free)(old.address);
        }
        self.stream.give_back(old_device, rounded(old.bytes));
        Ok(())
    }

    /// Stages a number that kernels read from memory, so that a graph serves any value of it.
    pub(crate) fn count(&mut self, count: usize) -> Result<Address, Error> {
        self.stage(&[as_u32(count)?])
    }

    /// Stages lists of positions, once however often they are read.
    pub(crate) fn reads(&mut self, reads: &Reads) -> Result<StagedReads, Error> {
        let identity = reads.identity();
        let known = self.recorder.staged_reads.iter().find(|(id, _)| *id == identity);
        if let Some((_, staged)) = known {
            return Ok(*staged);
        }
        let mut spans = Vec::with_capacity(2 * reads.len());
        for row in 0..reads.len() {
            let range = reads.range(row);
            spans.extend([as_u32(range.start)?, as_u32(range.end)?]);
        }
        let grown = self.recorder.grown.as_ref().filter(|grown| grown.identity == identity);
        let list = match grown.map(|grown| grown.lists) {
            Some(lists) => lists,
            None => self.stage(reads.positions())?,
        };
        let staged =
            StagedReads { spans: self.stage(&spans)?, list, parties: self.parties(reads)? };
        self.recorder.staged_reads.push((identity, staged));
        Ok(staged)
    }

    /// Stages the parties of rows that share a list, if there are any.
    fn parties(&mut self, reads: &Reads) -> Result<Option<Parties>, Error> {
        let large = reads.parties().any(|rows| rows.len() > 8);
        let most = if large { 16 } else { 8 };
        let mut staged: Vec<u32> = Vec::new();
        for rows in reads.parties() {
            for first in rows.clone().step_by(most) {
                staged.extend([as_u32(first)?, as_u32(most.min(rows.end - first))?]);
            }
        }
        let count = staged.len() / 2;
        if count == 0 {
            return Ok(None);
        }
        // The grid is rounded up: the parties of further blocks have no rows.
        staged.resize(2 * bucket(count), 0);
        let single = (0..reads.len()).filter(|&row| !reads.is_in_party(row)).map(as_u32);
        let single = single.collect::<Result<Vec<u32>, Error>>()?;
        let single = match single.len() {
            0 => None,
            rows => Some((self.stage(&single)?, rows)),
        };
        Ok(Some(Parties { address: self.stage(&staged)?, count, large, single }))
    }

    /// Page-locked memory of `words` four-byte words that the host can [read](Device::read) later. The answer before
    /// the last one must have been read: its memory is reused.
    pub(crate) fn answer(&mut self, words: usize) -> Result<Answer, Error> {
        let bytes = (words * 4).next_power_of_two().max(4096);
        let number = self.recorder.next_answer;
        self.recorder.next_answer = (number + 1) % self.recorder.answers.len();
        if self.recorder.answers[number].bytes < bytes {
            let new = self.device.host_memory(bytes)?;
            let old = std::mem::replace(&mut self.recorder.answers[number], new);
            if !old.address.is_null() {
                let driver = &self.device.driver;
                // SAFETY: our stream, and memory that is freed once, when no kernel is in flight that could
                // write to it.
                unsafe {
                    driver
                        .check("cuStreamSynchronize", (driver.stream_wait)(self.stream.handle))?;
                    (driver.host_free)(old.address);
                }
            }
        }
        Ok(Answer { number, address: self.recorder.answers[number].address as Address })
    }

    /// The words of the last query's places, and the rows they go on from: 0 if a place has the number of
    /// its row.
    pub(crate) fn followed(&self) -> (Address, Address) {
        self.recorder.followed
    }

    /// Memory for the best words of all rows. Without a device-side beam search a row has one, from which the next
    /// step may go on.
    pub(crate) fn next_latest(&mut self, words: usize) -> Result<Address, Error> {
        let latest = std::mem::take(&mut self.recorder.latest);
        self.recorder.latest = self.at_least(4 * words, latest)?;
        self.recorder.followed = (self.recorder.latest.0, 0);
        Ok(self.recorder.latest.0)
    }

    /// The places of the last device-side beam search, and memory for those of the next one, from which the next
    /// step may go on.
    pub(crate) fn next_places(&mut self, places: usize) -> Result<(Places, Places), Error> {
        self.recorder.places.swap(0, 1);
        let before = self.recorder.places[1];
        let old = std::mem::take(&mut self.recorder.places[0]);
        let room = bucket(places);
        // Four lists; the last holds the width of a sentence's beam at its first place.
        let after = Places { memory: self.at_least(4 * 4 * room, old.memory)?, room };
        self.recorder.places[0] = after;
        let lists = after.lists();
        self.recorder.followed = (lists.words, lists.parents);
        Ok((before, after))
    }

    /// The places of the last device-side beam search.
    pub(crate) fn places(&self) -> Places {
        self.recorder.places[0]
    }

    /// Memory of at least `bytes`: the old, or else new, and the old goes back. A full device is not trimmed here,
    /// since that needs the recorder.
    fn at_least(&mut self, bytes: usize, old: (Address, usize)) -> Result<(Address, usize), Error> {
        if old.1 >= bytes {
            return Ok(old);
        }
        if old.1 > 0 {
            self.stream.give_back(old.0, old.1);
        }
        self.device.take(self.stream, bytes)
    }

    /// Says which lists the last launch writes. Kernels read lists before their predecessor has ended, so this launch
    /// must have ended before.
    pub(crate) fn just_grown(&mut self, grown: Grown) {
        self.recorder.grown = Some(grown);
        if let Some(launch) = self.recorder.launches.last_mut() {
            launch.ends_first = true;
        }
    }

    /// Records a launch.
    pub(crate) fn launch<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        grid: [usize; 2],
        block: usize,
        shared: usize,
        parameters: &P,
    ) -> Result<(), Error> {
        self.launch_mapped(kernel, grid, block, shared, (parameters, None))
    }

    /// Records a launch, perhaps with tensor maps of its operands.
    pub(crate) fn launch_mapped<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        grid: [usize; 2],
        block: usize,
        shared: usize,
        (parameters, maps): (&P, Option<[Map; 2]>),
    ) -> Result<(), Error> {
        let function = self.device.function(self.precision, kernel.name);
        let Some(function) = function.filter(|_| kernel.maps || maps.is_none()) else {
            return Err(Error::Unsupported(format!("kernel {}", kernel.name)));
        };
        if grid[1] > MOST_BLOCKS_DOWN {
            let text =
                format!("{} over {} blocks (at most {MOST_BLOCKS_DOWN})", kernel.name, grid[1]);
            return Err(Error::Unsupported(text));
        }
        let grid = [as_u32(grid[0])?, as_u32(grid[1])?];
        let (block, shared) = (as_u32(block)?, as_u32(shared)?);
        let start = self.recorder.parameters.len();
        kernel::append(parameters, &mut self.recorder.parameters)?;
        for map in maps.iter().flatten() {
            self.recorder.parameters.extend(map.0);
        }
        self.recorder.stored = None;
        self.recorder.normed = None;
        self.recorder.embedded = None;
        self.recorder.launches.push(Launch {
            function,
            grid,
            block,
            shared,
            parameters: start..self.recorder.parameters.len(),
            mapped: maps.is_some(),
            ends_first: false,
        });
        Ok(())
    }

    /// Says what the last launch stores.
    pub(crate) fn just_stored(&mut self, stored: Stored) {
        self.recorder.filled.push(stored.keys);
        self.recorder.stored = Some(stored);
    }

    /// Whether a launch of this segment writes the KV cache with these keys.
    pub(crate) fn has_stored(&self, keys: Address) -> bool {
        self.recorder.filled.contains(&keys)
    }

    /// Takes the last launch back if it did nothing but store what `same` describes, each row the position that it reads
    /// last: the caller's kernel stores it. Returns the list of positions.
    pub(crate) fn take_stored(
        &mut self,
        reads: &Reads,
        same: impl FnOnce(&Stored) -> bool,
    ) -> Option<Address> {
        let Recorder { stored, grown, .. } = &mut *self.recorder;
        let grown = grown.as_ref().filter(|grown| grown.identity == reads.identity());
        let is_last = |at: &[u32]| match grown {
            Some(grown) => grown.last == at,
            None => {
                at.len() == reads.len()
                    && (0..at.len()).all(|row| reads.of(row).last() == Some(&at[row]))
            }
        };
        let stored = stored.take_if(|stored| same(stored) && is_last(&stored.at))?;
        self.recorder.filled.pop();
        let launch = self.recorder.launches.pop()?;
        self.recorder.parameters.truncate(launch.parameters.start);
        Some(stored.staged_at)
    }

    /// Says what the last launch normalises.
    pub(crate) fn just_normed(&mut self, normed: Normed) {
        self.recorder.normed = Some(normed);
    }

    /// Takes the last launch back if it did nothing but normalise what `same` describes: the caller's kernel does
    /// it.
    pub(crate) fn take_normed(&mut self, same: impl FnOnce(&Normed) -> bool) -> Option<Normed> {
        let normed = self.recorder.normed.take_if(|normed| same(normed))?;
        let launch = self.recorder.launches.pop()?;
        self.recorder.parameters.truncate(launch.parameters.start);
        Some(normed)
    }

    /// Says how many words the last launch looks up, and its parameters.
    pub(crate) fn just_embedded(&mut self, rows: usize, words: kernel::Embedding) {
        self.recorder.embedded = Some((rows, words));
    }

    /// Takes the last launch back if it did nothing but look up the words of `rows` rows: the caller's kernel does it,
    /// on the same grid.
    pub(crate) fn take_embedded(&mut self, rows: usize) -> Option<([usize; 2], kernel::Embedding)> {
        let (_, words) = self.recorder.embedded.take_if(|embedded| embedded.0 == rows)?;
        let launch = self.recorder.launches.pop()?;
        self.recorder.parameters.truncate(launch.parameters.start);
        Some((launch.grid.map(|n| n as usize), words))
    }

    /// Memory for rows that the next product normalises.
    pub(crate) fn raw(&mut self, bytes: usize) -> Result<Address, Error> {
        self.recorder.raw.swap(0, 1);
        let raw = std::mem::take(&mut self.recorder.raw[0]);
        self.recorder.raw[0] = self.at_least(bytes, raw)?;
        Ok(self.recorder.raw[0].0)
    }

    /// Records a launch of a warp a row.
    pub(crate) fn launch_rows<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        rows: usize,
        parameters: &P,
    ) -> Result<(), Error> {
        self.launch_warps(kernel, [row_blocks(rows), 1], parameters)
    }

    /// Records a launch of a warp for every 256 columns of a row.
    pub(crate) fn launch_columns<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        rows: usize,
        width: usize,
        parameters: &P,
    ) -> Result<(), Error> {
        self.launch_warps(kernel, [row_blocks(rows), width.div_ceil(256)], parameters)
    }

    /// Records a launch of blocks of [`ROWS_A_BLOCK`] warps.
    pub(crate) fn launch_warps<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        grid: [usize; 2],
        parameters: &P,
    ) -> Result<(), Error> {
        self.launch(kernel, grid, 32 * ROWS_A_BLOCK, 0, parameters)
    }
}

/// Blocks a grid may have in its second dimension, that of tiles of words or of columns.
const MOST_BLOCKS_DOWN: usize = 65_535;

/// Rows of a block where a row takes a warp.
const ROWS_A_BLOCK: usize = 8;

fn row_blocks(rows: usize) -> usize {
    bucket(rows).div_ceil(ROWS_A_BLOCK)
}
