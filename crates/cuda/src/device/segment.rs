//! What verbs record: lists laid into a stage, and kernels with what they take.

use peregrine_nn::Reads;

use super::lanes::rounded;
use super::{Answer, Device, FIRST_STAGE, Lane, Launch, Recorder, bucket};
use crate::Error;
use crate::driver::{Address, Map};
use crate::kernel::{self, Kernel, as_u32};
use crate::precision::GpuPrecision;

/// Rows whose keys and values were just stored.
pub(crate) struct Stored {
    pub(crate) rows: Address,
    pub(crate) keys: Address,
    pub(crate) key_column: usize,
    /// Where to, and where that is written on the device.
    pub(crate) at: Vec<u32>,
    pub(crate) staged_at: Address,
}

/// Rows that were just normalised.
pub(crate) struct Normed {
    /// What they were,
    pub(crate) raw: Address,
    /// and where they are.
    pub(crate) out: Address,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) norm: kernel::Norm,
}

/// Lists of positions on the device.
#[derive(Clone, Copy)]
pub(crate) struct StagedReads {
    /// Start and end of each row's list,
    pub(crate) spans: Address,
    /// in this.
    pub(crate) list: Address,
    /// Where rows share lists.
    pub(crate) parties: Option<Parties>,
}

/// Rows that share lists, in parties.
#[derive(Clone, Copy)]
pub(crate) struct Parties {
    /// The first row and the number of rows of each.
    pub(crate) address: Address,
    pub(crate) count: usize,
    /// Whether there are more rows in some than half a tile of a tensor core has.
    pub(crate) large: bool,
    /// The rows that are in none of them, and how many, if any.
    pub(crate) single: Option<(Address, usize)>,
}

/// Lists of positions that were put together on the device.
pub(crate) struct Grown {
    /// Of the [`Reads`] that stand for them.
    pub(crate) identity: u64,
    pub(crate) lists: Address,
    /// The last position of each.
    pub(crate) last: Vec<u32>,
}

/// Who is at the places of a question.
#[derive(Clone, Copy, Default)]
pub(crate) struct Places {
    pub(super) memory: (Address, usize),
    /// How many there may be.
    room: usize,
}

impl Places {
    /// One list after the other.
    pub(crate) fn lists(self) -> kernel::Places {
        let [words, parents, paths, widths] =
            [0, 1, 2, 3].map(|list| self.memory.0 + (4 * list * self.room) as Address);
        kernel::Places { words, parents, paths, widths }
    }
}

/// Where work is recorded.
pub(crate) struct Segment<'a> {
    pub(super) device: &'a Device,
    /// Whose kernels are launched.
    pub(super) numbers: GpuPrecision,
    pub(super) lane: &'a Lane,
    pub(super) recorder: &'a mut Recorder,
}

impl Segment<'_> {
    pub(crate) fn numbers(&self) -> GpuPrecision {
        self.numbers
    }

    /// Lays numbers into the stage, with room for a rounded number of them; the rest is zero.
    pub(crate) fn stage(&mut self, numbers: &[u32]) -> Result<Address, Error> {
        let bytes = numbers.len() * 4;
        // SAFETY: u32 are plain bytes.
        let new = unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast::<u8>(), bytes) };
        self.stage_bytes(new, bucket(numbers.len()) * 4)
    }

    /// The same with structures.
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

    /// The same with bytes; the place is good for numbers of eight bytes.
    pub(crate) fn stage_bytes(&mut self, new: &[u8], room: usize) -> Result<Address, Error> {
        /// How many of the last pieces are compared with a new one.
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

    /// A larger stage keeps what is laid into it; what was recorded names places of the old one,
    /// which therefore goes to the device first.
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
            .inspect_err(|_| self.lane.give_back(device, rounded(size)))?;
        let driver = &self.device.driver;
        let stage = &mut self.recorder.stages[self.recorder.current];
        let old = std::mem::replace(&mut stage.host, host);
        let old_device = std::mem::replace(&mut stage.device, device);
        if old.address.is_null() {
            return Ok(());
        }
        // SAFETY: both are larger than what is used. The old memory is freed once, after the device
        // has read what it holds: addresses in it were already handed out.
        unsafe {
            stage
                .host
                .address
                .cast::<u8>()
                .copy_from_nonoverlapping(old.address.cast(), stage.used);
            let code =
                (driver.copy_to_device)(old_device, old.address, stage.used, self.lane.stream);
            driver.check("cuMemcpyHtoD", code)?;
            driver.check("cuStreamSynchronize", (driver.stream_wait)(self.lane.stream))?;
            (driver.host_free)(old.address);
        }
        self.lane.give_back(old_device, rounded(old.bytes));
        Ok(())
    }

    /// A number the kernels read from memory.
    pub(crate) fn count(&mut self, count: usize) -> Result<Address, Error> {
        self.stage(&[as_u32(count)?])
    }

    /// Lists of positions; laid down once however often they are read.
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

    /// Parties of rows that share a list, if there are any.
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
        // There are more blocks than parties; theirs have no rows.
        staged.resize(2 * bucket(count), 0);
        let single = (0..reads.len()).filter(|&row| !reads.is_in_party(row)).map(as_u32);
        let single = single.collect::<Result<Vec<u32>, Error>>()?;
        let single = match single.len() {
            0 => None,
            rows => Some((self.stage(&single)?, rows)),
        };
        Ok(Some(Parties { address: self.stage(&staged)?, count, large, single }))
    }

    /// Memory the host can [read](Device::read) later, of `words` four-byte words. The answer before
    /// the last one must have been read: its memory is taken again.
    pub(crate) fn answer(&mut self, words: usize) -> Result<Answer, Error> {
        let bytes = (words * 4).next_power_of_two().max(4096);
        let number = self.recorder.next_answer;
        self.recorder.next_answer = (number + 1) % self.recorder.answers.len();
        if self.recorder.answers[number].bytes < bytes {
            let new = self.device.host_memory(bytes)?;
            let old = std::mem::replace(&mut self.recorder.answers[number], new);
            if !old.address.is_null() {
                let driver = &self.device.driver;
                // SAFETY: our stream, and memory that is freed once, when nothing is under way that
                // could write to it.
                unsafe {
                    driver.check("cuStreamSynchronize", (driver.stream_wait)(self.lane.stream))?;
                    (driver.host_free)(old.address);
                }
            }
        }
        Ok(Answer { number, address: self.recorder.answers[number].address as Address })
    }

    /// Where the words of the last question's places are, and their rows: nowhere, where those have the
    /// same numbers.
    pub(crate) fn followed(&self) -> (Address, Address) {
        self.recorder.followed
    }

    /// Where to put the best words of the rows, so many in all. Unless there is a race, a row has one, and
    /// that is what the next step may go on from.
    pub(crate) fn next_latest(&mut self, words: usize) -> Result<Address, Error> {
        let latest = std::mem::take(&mut self.recorder.latest);
        self.recorder.latest = self.at_least(4 * words, latest)?;
        self.recorder.followed = (self.recorder.latest.0, 0);
        Ok(self.recorder.latest.0)
    }

    /// Who is at the places of the last race, and where to put who will be at those of the next, which the
    /// next step may go on from.
    pub(crate) fn next_places(&mut self, places: usize) -> Result<(Places, Places), Error> {
        self.recorder.places.swap(0, 1);
        let before = self.recorder.places[1];
        let old = std::mem::take(&mut self.recorder.places[0]);
        let room = bucket(places);
        // Four lists, of which the last has a width where each sentence's places begin.
        let after = Places { memory: self.at_least(4 * 4 * room, old.memory)?, room };
        self.recorder.places[0] = after;
        let lists = after.lists();
        self.recorder.followed = (lists.words, lists.parents);
        Ok((before, after))
    }

    /// Who is at the places of the last race.
    pub(crate) fn places(&self) -> Places {
        self.recorder.places[0]
    }

    /// Memory of at least that size: the old, or else new, and the old goes back. No room is made where
    /// there is none, since that takes the recorder.
    fn at_least(&mut self, bytes: usize, old: (Address, usize)) -> Result<(Address, usize), Error> {
        if old.1 >= bytes {
            return Ok(old);
        }
        if old.1 > 0 {
            self.lane.give_back(old.0, old.1);
        }
        self.device.take(self.lane, bytes)
    }

    /// Says what the launch just recorded writes: lists that kernels read before the one before them has
    /// ended, so that this one must have.
    pub(crate) fn just_grown(&mut self, grown: Grown) {
        self.recorder.grown = Some(grown);
        if let Some(launch) = self.recorder.launches.last_mut() {
            launch.ends_first = true;
        }
    }

    /// Records a kernel.
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

    /// Records a kernel, perhaps with maps of its operands.
    pub(crate) fn launch_mapped<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        grid: [usize; 2],
        block: usize,
        shared: usize,
        (parameters, maps): (&P, Option<[Map; 2]>),
    ) -> Result<(), Error> {
        let function = self.device.function(self.numbers, kernel.name);
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

    /// Says what the launch just recorded stores.
    pub(crate) fn just_stored(&mut self, stored: Stored) {
        self.recorder.filled.push(stored.keys);
        self.recorder.stored = Some(stored);
    }

    /// Whether a kernel of this segment puts something into the cache with those keys.
    pub(crate) fn has_stored(&self, keys: Address) -> bool {
        self.recorder.filled.contains(&keys)
    }

    /// If the last launch did nothing but store what `same` describes, each row what it reads last, takes it
    /// back: who asks will store it. The place says where to.
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

    /// Says what the launch just recorded normalises.
    pub(crate) fn just_normed(&mut self, normed: Normed) {
        self.recorder.normed = Some(normed);
    }

    /// If the last launch did nothing but normalise what `same` describes, takes it back: who asks will
    /// do it.
    pub(crate) fn take_normed(&mut self, same: impl FnOnce(&Normed) -> bool) -> Option<Normed> {
        let normed = self.recorder.normed.take_if(|normed| same(normed))?;
        let launch = self.recorder.launches.pop()?;
        self.recorder.parameters.truncate(launch.parameters.start);
        Some(normed)
    }

    /// Says of how many rows the launch just recorded looks the words up, and what it takes.
    pub(crate) fn just_embedded(&mut self, rows: usize, words: kernel::Embedding) {
        self.recorder.embedded = Some((rows, words));
    }

    /// If the last launch did nothing but look the words of so many rows up, takes it back: who asks will do it,
    /// on this grid.
    pub(crate) fn take_embedded(&mut self, rows: usize) -> Option<([usize; 2], kernel::Embedding)> {
        let (_, words) = self.recorder.embedded.take_if(|embedded| embedded.0 == rows)?;
        let launch = self.recorder.launches.pop()?;
        self.recorder.parameters.truncate(launch.parameters.start);
        Some((launch.grid.map(|n| n as usize), words))
    }

    /// Room for rows that are normalised by whoever reads them next.
    pub(crate) fn raw(&mut self, bytes: usize) -> Result<Address, Error> {
        self.recorder.raw.swap(0, 1);
        let raw = std::mem::take(&mut self.recorder.raw[0]);
        self.recorder.raw[0] = self.at_least(bytes, raw)?;
        Ok(self.recorder.raw[0].0)
    }

    /// Records a kernel that gives each row a warp, for up to `rows` rows.
    pub(crate) fn launch_rows<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        rows: usize,
        parameters: &P,
    ) -> Result<(), Error> {
        self.launch_warps(kernel, [row_blocks(rows), 1], parameters)
    }

    /// Records a kernel that gives every 256 columns of a row a warp.
    pub(crate) fn launch_columns<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        rows: usize,
        width: usize,
        parameters: &P,
    ) -> Result<(), Error> {
        self.launch_warps(kernel, [row_blocks(rows), width.div_ceil(256)], parameters)
    }

    /// Records a kernel of blocks of a warp a row.
    pub(crate) fn launch_warps<P: kernel::Value>(
        &mut self,
        kernel: Kernel<P>,
        grid: [usize; 2],
        parameters: &P,
    ) -> Result<(), Error> {
        self.launch(kernel, grid, 32 * ROWS_A_BLOCK, 0, parameters)
    }
}

/// Blocks a grid may have in its second dimension: so many tiles of words, or of columns.
const MOST_BLOCKS_DOWN: usize = 65_535;

/// Rows a block has where a row takes a warp.
const ROWS_A_BLOCK: usize = 8;

fn row_blocks(rows: usize) -> usize {
    bucket(rows).div_ceil(ROWS_A_BLOCK)
}
