//! What has been recorded, and the memory it is sent through.

use std::ffi::c_void;

use rustc_hash::FxHashMap;

use super::null;
use super::segment::{Grown, Normed, Places, StagedReads, Stored};
use crate::driver::{Address, Driver};
use crate::kernel;

pub(super) struct HostMemory {
    pub(super) address: *mut c_void,
    pub(super) bytes: usize,
}

impl Default for HostMemory {
    fn default() -> Self {
        HostMemory { address: null(), bytes: 0 }
    }
}

impl HostMemory {
    /// # Safety
    /// Nobody writes to it, and `words` fit.
    pub(super) unsafe fn words(&self, words: usize) -> &[u32] {
        if words == 0 {
            return &[];
        }
        // SAFETY: the caller's promise; the memory is aligned to a page.
        unsafe { std::slice::from_raw_parts(self.address.cast(), words) }
    }
}

/// Page-locked memory and its place on the device.
pub(super) struct Stage {
    pub(super) host: HostMemory,
    pub(super) device: Address,
    pub(super) used: usize,
    /// What was last sent off with it has ended when this event has,
    pub(super) sent: *mut c_void,
    /// and may not have yet.
    pub(super) in_flight: bool,
}

impl Default for Stage {
    fn default() -> Self {
        let host = HostMemory::default();
        Stage { host, device: 0, used: 0, sent: null(), in_flight: false }
    }
}

/// Memory for an answer: kernels write it, the host reads it when they have ended.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(super) number: usize,
    pub(crate) address: Address,
}

/// An answer on its way.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(super) answer: usize,
    pub(super) stage: usize,
}

pub(super) struct Launch {
    pub(super) function: *mut c_void,
    pub(super) grid: [u32; 2],
    pub(super) block: u32,
    pub(super) shared: u32,
    pub(super) parameters: std::ops::Range<usize>,
    /// Whether the last of them are two maps.
    pub(super) mapped: bool,
    /// Whether the next kernel may not be brought up before it has ended.
    pub(super) ends_first: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Graph {
    SeenOnce,
    Ready(*mut c_void),
}

/// What has been recorded.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) launches: Vec<Launch>,
    pub(super) parameters: Vec<u8>,
    pub(super) stages: [Stage; 2],
    pub(super) current: usize,
    /// What is in the stage already: place and length in bytes.
    pub(super) staged: Vec<(usize, usize)>,
    /// Lists of positions already there, by their identity.
    pub(super) staged_reads: Vec<(u64, StagedReads)>,
    pub(super) graphs: FxHashMap<Vec<u8>, Graph>,
    /// Taken in turn: of two questions one may still be waiting for its answer.
    pub(super) answers: [HostMemory; 2],
    pub(super) next_answer: usize,
    /// The best words of every row of the last question, and its room in bytes.
    pub(super) latest: (Address, usize),
    /// Who is at the places of the last question that had a race, and of the one before it.
    pub(super) places: [Places; 2],
    /// The words of the last question's places, and their rows, which without a race have their numbers.
    pub(super) followed: (Address, Address),
    /// Whether the segment looks words of places up.
    pub(super) follows: bool,
    /// What the rows of the step read of their own past.
    pub(super) grown: Option<Grown>,
    /// What the last launch stores, if it does nothing else,
    pub(super) stored: Option<Stored>,
    /// or normalises,
    pub(super) normed: Option<Normed>,
    /// or the number of rows whose words it looks up.
    pub(super) embedded: Option<(usize, kernel::Embedding)>,
    /// Caches that launches put something into, by their keys.
    pub(super) filled: Vec<Address>,
    /// Room for rows that are still to be normalised, two in turn: while one is read the other is
    /// written.
    pub(super) raw: [(Address, usize); 2],
}

impl Recorder {
    /// All a graph of this segment would hold.
    pub(super) fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.parameters.len() + 32 * self.launches.len() + 16);
        key.extend((self.current as u64).to_le_bytes());
        key.extend((self.stages[self.current].used as u64).to_le_bytes());
        for launch in &self.launches {
            key.extend((launch.function as usize).to_le_bytes());
            key.extend(launch.grid[0].to_le_bytes());
            key.extend(launch.grid[1].to_le_bytes());
            key.extend(launch.block.to_le_bytes());
            key.extend(launch.shared.to_le_bytes());
        }
        key.extend(&self.parameters);
        key
    }

    /// Nothing is recorded.
    pub(super) fn forget_segment(&mut self) {
        self.launches.clear();
        self.follows = false;
        self.stored = None;
        self.normed = None;
        self.embedded = None;
        self.filled.clear();
        self.parameters.clear();
        self.staged.clear();
        self.staged_reads.clear();
        self.stages[self.current].used = 0;
    }

    pub(super) fn forget_graphs(&mut self, driver: &Driver) {
        for (_, graph) in self.graphs.drain() {
            if let Graph::Ready(graph) = graph {
                // SAFETY: made by us and destroyed once.
                unsafe { (driver.graph_exec_destroy)(graph) };
            }
        }
    }
}
