//! A CUDA driver without a device, for tests: it keeps memory, streams, events and graphs as the real one does, and a log
//! of its calls; kernels do nothing, so every answer is zeros.
//!
//! The crate's own tests have it always; the feature `fake` exposes it to the tests of other crates. With that feature,
//! [`Cuda::open`](crate::Cuda::open) opens the fake device as long as a [`Fake`] lives.
//!
//! The driver's functions take no argument of ours, so a process has one fake: [`Fake::new`] waits until no other
//! lives.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{Address, Driver};

mod driver;

#[cfg(test)]
use driver::CONTEXT;
use driver::CURRENT;

const DONE: c_int = 0;
const ILLEGAL_ADDRESS: c_int = 700;

/// How many kernels have certainly ended, by their stream.
pub(crate) type Clock = BTreeMap<usize, usize>;

/// A launch, as the driver got it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Launched {
    pub(crate) kernel: String,
    pub(crate) grid: [u32; 2],
    /// Whether it is a programmatic dependent launch.
    pub(crate) overlapped: bool,
    pub(crate) parameters: Vec<u8>,
    /// The kernels it waited for.
    pub(crate) after: Clock,
}

#[derive(Clone)]
enum Work {
    Launch(Launched),
    /// A copy to the device, from memory of the host that is read when the copy runs.
    Copy {
        to: Address,
        from: usize,
        bytes: usize,
    },
}

/// The state of the driver, and what it has done.
#[derive(Default)]
pub(crate) struct World {
    /// Bytes of device memory.
    pub(crate) room: usize,
    /// Compute capability of the device.
    pub(crate) capability: (i32, i32),
    /// A kernel that the module lacks.
    pub(crate) missing: Option<&'static str>,
    /// Whether kernels fail when they run, with CUDA error 700.
    pub(crate) broken: bool,
    /// Whether launches are refused, with CUDA error 1.
    pub(crate) refuses_launches: bool,
    /// Whether an error has ended the context: all calls that need it fail until it is released.
    pub(crate) dead: bool,
    /// Whether no context can be made current.
    pub(crate) unavailable: bool,
    /// Whether there is no memory for graphs.
    pub(crate) no_graphs: bool,
    memory: BTreeMap<Address, Vec<u64>>,
    host: BTreeMap<usize, Vec<u64>>,
    kernels: Vec<String>,
    /// Dynamic shared memory that kernels may have beyond the default.
    shared: BTreeMap<usize, u32>,
    streams: Vec<usize>,
    events: Vec<usize>,
    graphs: BTreeMap<usize, Vec<Work>>,
    /// What has ended when a stream goes on, or when an event is reached.
    clocks: BTreeMap<usize, Clock>,
    /// The stream that is being captured, and its work so far.
    recording: Option<(usize, Vec<Work>)>,
    contexts: usize,
    /// Whether a [`Fake`] lives.
    in_use: bool,
    modules: usize,
    last_handle: usize,
    /// Launches in the order in which they ran, with their stream.
    pub(crate) ran: Vec<(usize, Launched)>,
    /// The number of kernels launched one by one.
    pub(crate) launches: usize,
    /// The number of graphs launched.
    pub(crate) replays: usize,
}

impl World {
    /// Bytes of device memory in use.
    pub(crate) fn used(&self) -> usize {
        self.memory.values().map(|words| 8 * words.len()).sum()
    }

    /// The last release of a context that an error has ended frees all it had; the next one is sound.
    fn release_context(&mut self) {
        self.contexts -= 1;
        if self.contexts == 0 && self.dead {
            let World { room, capability, in_use, .. } = *self;
            *self = World { room, capability, in_use, ..World::default() };
        }
    }

    fn handle(&mut self) -> usize {
        self.last_handle += 1;
        self.last_handle
    }

    fn run(&mut self, stream: usize, work: &Work) -> c_int {
        match work {
            Work::Launch(_) if self.broken => return ILLEGAL_ADDRESS,
            Work::Launch(launched) => {
                let clock = self.clocks.entry(stream).or_default();
                let after = clock.clone();
                *clock.entry(stream).or_default() += 1;
                self.ran.push((stream, Launched { after, ..launched.clone() }));
            }
            Work::Copy { to, from, bytes } => {
                let (start, words) = self.memory.range_mut(..=*to).next_back().expect("memory");
                let at = (to - start) as usize;
                assert!(at + bytes <= 8 * words.len(), "a copy beyond the end of memory");
                // SAFETY: the caller of the driver says the bytes are there; the place was checked.
                unsafe {
                    let to = words.as_mut_ptr().cast::<u8>().add(at);
                    to.copy_from_nonoverlapping(*from as *const u8, *bytes);
                }
            }
        }
        DONE
    }

    /// Does work, or records it if its stream is being captured.
    fn enqueue(&mut self, stream: usize, work: Work) -> c_int {
        assert!(self.streams.contains(&stream), "work for a stream that does not exist");
        match &mut self.recording {
            Some((recorded, list)) if *recorded == stream => {
                list.push(work);
                DONE
            }
            _ => {
                self.launches += usize::from(matches!(work, Work::Launch(_)));
                self.run(stream, &work)
            }
        }
    }
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn world<T>(action: impl FnOnce(&mut World) -> T) -> T {
    action(lock(&WORLD).as_mut().expect("a fake that is in use"))
}

/// The fake driver, with one GPU, until it is dropped.
pub struct Fake(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Fake {
    /// A machine with one GPU of `room` bytes of memory.
    pub fn new(room: usize) -> Fake {
        let turn = lock(&TURN);
        CURRENT.set(0);
        *lock(&WORLD) = Some(World { room, capability: (9, 0), in_use: true, ..World::default() });
        Fake(turn)
    }

    /// Makes every kernel fail with CUDA error 700, or no longer. The context survives it.
    pub fn fail_kernels(&self, fail: bool) {
        world(|w| w.broken = fail);
    }

    /// Ends the context, as an illegal memory access of a kernel does: every call that needs it fails with CUDA error 700
    /// until all open devices are closed.
    pub fn end_context(&self) {
        world(|w| w.dead = true);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        world(|w| w.in_use = false);
    }
}

/// The fake driver, if a [`Fake`] lives.
#[cfg(feature = "fake")]
pub(crate) fn driver_in_use() -> Option<Driver> {
    lock(&WORLD).as_ref().is_some_and(|w| w.in_use).then(driver::driver)
}

#[cfg(test)]
impl Launched {
    /// The address at this offset of the parameters.
    pub(crate) fn address(&self, place: usize) -> Address {
        u64::from_le_bytes(self.parameters[place..place + 8].try_into().expect("eight bytes"))
    }
}

#[cfg(test)]
impl World {
    /// The number of graphs.
    pub(crate) fn graphs(&self) -> usize {
        self.graphs.len()
    }

    /// Whether everything was given back.
    pub(crate) fn is_empty(&self) -> bool {
        let memory = self.memory.is_empty() && self.host.is_empty();
        let streams = self.streams.is_empty() && self.events.is_empty();
        let handles = streams && self.graphs.is_empty();
        memory && handles && self.contexts == 0 && self.modules == 0
    }

    /// A four-byte word of device memory.
    pub(crate) fn word(&self, address: Address) -> u32 {
        let (start, words) = self.memory.range(..=address).next_back().expect("memory");
        let at = (address - start) as usize;
        (words[at / 8] >> (8 * (at % 8))) as u32
    }
}

#[cfg(test)]
impl Fake {
    pub(crate) fn driver(&self) -> Driver {
        driver::driver()
    }

    /// Reads or changes the state of the driver.
    pub(crate) fn world<T>(&self, action: impl FnOnce(&mut World) -> T) -> T {
        world(action)
    }

    /// Makes another context current on this thread, as another library may do.
    pub(crate) fn use_other_context(&self) {
        CURRENT.set(CONTEXT + 1);
    }

    /// The names of the kernels that ran since the last call.
    pub(crate) fn ran(&self) -> Vec<String> {
        world(|w| w.ran.drain(..).map(|(_, launched)| launched.kernel).collect())
    }
}
