//! What is recorded for a stream, the memory it is sent through, and what the next operation must know of it.

use std::ffi::c_void;

use rustc_hash::FxHashMap;

use super::null;
use crate::driver::{Address, Driver};
use crate::kernel;

/// Page-locked memory of the host.
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

/// A staging buffer: page-locked memory and its copy on the device. Two take turns (double buffering).
pub(super) struct Stage {
    pub(super) host: HostMemory,
    pub(super) device: Address,
    pub(super) used: usize,
    /// The event at the end of what was last sent with this stage.
    pub(super) sent: *mut c_void,
    /// Whether that event may not have been reached yet.
    pub(super) in_flight: bool,
}

impl Default for Stage {
    fn default() -> Self {
        let host = HostMemory::default();
        Stage { host, device: 0, used: 0, sent: null(), in_flight: false }
    }
}

/// Page-locked memory for an answer: kernels write it, the host reads it when they have ended.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(super) number: usize,
    pub(crate) address: Address,
}

/// An answer whose kernels have been sent.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(super) answer: usize,
    pub(super) stage: usize,
}

/// A recorded kernel launch.
pub(super) struct Launch {
    pub(super) function: *mut c_void,
    pub(super) grid: [u32; 2],
    pub(super) block: u32,
    pub(super) shared: u32,
    pub(super) parameters: std::ops::Range<usize>,
    /// Whether the last two parameters are tensor maps.
    pub(super) mapped: bool,
    /// Whether this kernel must have ended before the next one is launched: no programmatic dependent launch.
    pub(super) ends_first: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Graph {
    SeenOnce,
    Ready(*mut c_void),
}

/// Rows whose keys and values the last launch stores.
pub(crate) struct Stored {
    pub(crate) rows: Address,
    pub(crate) keys: Address,
    pub(crate) key_column: usize,
    /// The positions in the KV cache.
    pub(crate) at: Vec<u32>,
    /// The positions on the device.
    pub(crate) staged_at: Address,
}

/// Rows that the last launch normalises.
pub(crate) struct Normed {
    /// The rows before the norm.
    pub(crate) raw: Address,
    /// The rows after it.
    pub(crate) out: Address,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) norm: kernel::Norm,
}

/// Lists of positions on the device.
#[derive(Clone, Copy)]
pub(crate) struct StagedReads {
    /// Start and end of each row's list in `list`.
    pub(crate) spans: Address,
    pub(crate) list: Address,
    /// The parties, where rows share lists.
    pub(crate) parties: Option<Parties>,
}

/// Parties: groups of rows that share a list.
#[derive(Clone, Copy)]
pub(crate) struct Parties {
    /// The first row and the number of rows of each party.
    pub(crate) address: Address,
    pub(crate) count: usize,
    /// Whether some party has more than eight rows, half of a tensor-core tile.
    pub(crate) large: bool,
    /// The list of the rows that are in no party, and its length, if there are any.
    pub(crate) single: Option<(Address, usize)>,
}

/// Lists of positions that a kernel puts together.
pub(crate) struct Grown {
    /// The identity of the [`Reads`](peregrine_nn::Reads) that stand for them.
    pub(crate) identity: u64,
    pub(crate) lists: Address,
    /// The last position of each.
    pub(crate) last: Vec<u32>,
}

/// The places of a query on the device: the hypotheses that go on.
#[derive(Clone, Copy, Default)]
pub(crate) struct Places {
    pub(super) memory: (Address, usize),
    /// How many there may be.
    pub(super) room: usize,
}

impl Places {
    /// The four lists, one after the other.
    pub(crate) fn lists(self) -> kernel::Places {
        let [words, parents, paths, widths] =
            [0, 1, 2, 3].map(|list| self.memory.0 + (4 * list * self.room) as Address);
        kernel::Places { words, parents, paths, widths }
    }
}

/// What has been recorded for a stream.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) launches: Vec<Launch>,
    pub(super) parameters: Vec<u8>,
    pub(super) stages: [Stage; 2],
    pub(super) current: usize,
    /// What is in the stage already: place and length in bytes.
    pub(super) staged: Vec<(usize, usize)>,
    /// Lists of positions already in the stage, by their identity.
    pub(super) staged_reads: Vec<(u64, StagedReads)>,
    pub(super) graphs: FxHashMap<Vec<u8>, Graph>,
    /// Two answers take turns: of two queries one may still be waiting for its answer.
    pub(super) answers: [HostMemory; 2],
    pub(super) next_answer: usize,
    /// The best words of every row of the last query, and their room in bytes.
    pub(super) latest: (Address, usize),
    /// The places of the last query with a device-side beam search, and of the one before it.
    pub(super) places: [Places; 2],
    /// The words of the last query's places, and the rows they go on from: 0, without a device-side beam search,
    /// since then a place has the number of its row.
    pub(super) followed: (Address, Address),
    /// Whether the segment looks up words of places.
    pub(super) follows: bool,
    /// What the rows of the step read of their own past.
    pub(super) grown: Option<Grown>,
    /// What the last launch stores, if it does nothing else.
    pub(super) stored: Option<Stored>,
    /// What the last launch normalises, if it does nothing else.
    pub(super) normed: Option<Normed>,
    /// The rows whose words the last launch looks up, and its parameters, if it does nothing else.
    pub(super) embedded: Option<(usize, kernel::Embedding)>,
    /// KV caches that launches of the segment write, by the address of their keys.
    pub(super) filled: Vec<Address>,
    /// Room for rows before their norm; two take turns (double buffering).
    pub(super) raw: [(Address, usize); 2],
}

impl Recorder {
    /// The key of the segment's graph: all that the graph would hold.
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

    /// Drops all that is recorded.
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
