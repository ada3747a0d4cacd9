//! Lanes: what threads have of a device, a queue and memory of their own.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, OnceLock};

use rustc_hash::FxHashMap;

use super::recorder::Recorder;
use super::{Device, lock, null};
use crate::Error;
use crate::driver::Address;

/// A queue of the device and memory of its own.
pub(crate) struct Lane {
    pub(super) stream: *mut c_void,
    pub(super) recorder: Mutex<Recorder>,
    pub(super) pool: Mutex<Pool>,
    /// Where work is done beside this lane's.
    pub(super) beside: OnceLock<Arc<Lane>>,
}

// SAFETY: as for [`Device`].
unsafe impl Send for Lane {}
// SAFETY: as for [`Device`].
unsafe impl Sync for Lane {}

/// The lanes of a thread, one a device.
#[derive(Default)]
struct Lanes(Vec<Held>);

struct Held {
    device: u64,
    lane: Arc<Lane>,
    /// Whether the lane beside it is the thread's for now.
    aside: bool,
    /// Where it goes when the thread ends.
    resting: Arc<Mutex<Vec<Arc<Lane>>>>,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for held in self.0.drain(..) {
            lock(&held.resting).push(held.lane);
        }
    }
}

thread_local! {
    static LANES: RefCell<Lanes> = RefCell::default();
}

impl Device {
    /// This thread's lane, the device being current.
    pub(crate) fn lane(&self) -> Result<Arc<Lane>, Error> {
        self.make_current()?;
        if let Some(lane) = self.lane_of(self.is_aside()) {
            return Ok(lane);
        }
        let rested = lock(&self.resting).pop();
        let lane = match rested {
            Some(lane) => self.woken(lane)?,
            None => self.new_lane(FOREGROUND)?,
        };
        let held = Held {
            device: self.identity,
            lane: Arc::clone(&lane),
            aside: false,
            resting: Arc::clone(&self.resting),
        };
        LANES.with_borrow_mut(|lanes| lanes.0.push(held));
        Ok(lane)
    }

    /// The lane this thread has, if it has one, or the one beside that.
    fn lane_of(&self, aside: bool) -> Option<Arc<Lane>> {
        let find = |lanes: &RefCell<Lanes>| {
            let lanes = lanes.try_borrow().ok()?;
            let held = lanes.0.iter().find(|held| held.device == self.identity)?;
            if aside { held.lane.beside.get().cloned() } else { Some(Arc::clone(&held.lane)) }
        };
        LANES.try_with(find).ok().flatten()
    }

    /// Whether what this thread does goes to the lane beside its own.
    pub(crate) fn is_aside(&self) -> bool {
        LANES.with_borrow(|lanes| {
            lanes.0.iter().any(|held| held.device == self.identity && held.aside)
        })
    }

    pub(super) fn set_aside(&self, aside: bool) {
        LANES.with_borrow_mut(|lanes| {
            let held = lanes.0.iter_mut().filter(|held| held.device == self.identity);
            held.for_each(|held| held.aside = aside);
        });
    }

    /// A lane of a thread that ended: what it left undone nobody wants.
    fn woken(&self, lane: Arc<Lane>) -> Result<Arc<Lane>, Error> {
        for lane in std::iter::once(&lane).chain(lane.beside.get()) {
            let mut recorder = lock(&lane.recorder);
            recorder.forget_segment();
            self.wait(lane, &mut recorder)?;
        }
        Ok(lane)
    }

    pub(super) fn new_lane(&self, priority: c_int) -> Result<Arc<Lane>, Error> {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = null();
        // SAFETY: a place for a handle.
        let code = unsafe { (self.driver.stream_create)(&mut stream, NON_BLOCKING, priority) };
        self.driver.check("cuStreamCreateWithPriority", code)?;
        let lane = Lane {
            stream,
            recorder: Mutex::default(),
            pool: Mutex::default(),
            beside: OnceLock::new(),
        };
        let lane = Arc::new(lane);
        lock(&self.lanes).push(Arc::clone(&lane));
        Ok(lane)
    }

    /// Takes memory back that this thread was the last to use, in its lane or beside it.
    pub(crate) fn give_back(&self, address: Address, bytes: usize, aside: bool) {
        match self.lane_of(aside) {
            Some(lane) => lane.give_back(address, bytes),
            // A thread that has no lane did no work; the driver waits for that of others.
            None if self.make_current().is_ok() => {
                // SAFETY: memory of ours that nobody refers to any more.
                unsafe { (self.driver.memory_free)(address) };
            }
            _ => {}
        }
    }

    /// Memory for `bytes` bytes, on this thread's lane.
    pub(crate) fn allocate(&self, lane: &Lane, bytes: usize) -> Result<(Address, usize), Error> {
        match self.take(lane, bytes) {
            Err(Error::OutOfMemory) => {
                for lane in [false, true].into_iter().filter_map(|aside| self.lane_of(aside)) {
                    self.trim(&lane)?;
                }
                self.take(lane, bytes)
            }
            taken => taken,
        }
    }

    /// The same, where there is room.
    pub(super) fn take(&self, lane: &Lane, bytes: usize) -> Result<(Address, usize), Error> {
        let bytes = rounded(bytes);
        let kept = lock(&lane.pool).free.get_mut(&bytes).and_then(Vec::pop);
        match kept {
            Some(address) => Ok((address, bytes)),
            None => Ok((self.new_memory(bytes)?, bytes)),
        }
    }

    pub(super) fn new_memory(&self, bytes: usize) -> Result<Address, Error> {
        let mut address = 0;
        // SAFETY: a place for an address.
        let code = unsafe { (self.driver.memory_allocate)(&mut address, bytes) };
        self.driver.check("cuMemAlloc", code).map(|()| address)
    }

    /// Drops what this thread recorded and did not send, and frees what it does not use: what failed for want of memory
    /// would fail again, and graphs take memory too.
    pub(crate) fn abandon(&self) -> Result<(), Error> {
        self.make_current()?;
        for lane in [false, true].into_iter().filter_map(|aside| self.lane_of(aside)) {
            lock(&lane.recorder).forget_segment();
            self.trim(&lane)?;
        }
        Ok(())
    }

    /// Frees what nobody uses of a lane's memory.
    fn trim(&self, lane: &Lane) -> Result<(), Error> {
        let mut recorder = lock(&lane.recorder);
        self.submit(lane, &mut recorder)?;
        self.wait(lane, &mut recorder)?;
        // Graphs name places that are about to go.
        recorder.forget_graphs(&self.driver);
        let free = std::mem::take(&mut lock(&lane.pool).free);
        free.into_values().flatten().try_for_each(|address| {
            // SAFETY: memory from `cuMemAlloc`, and the lane has finished all work.
            let code = unsafe { (self.driver.memory_free)(address) };
            self.driver.check("cuMemFree", code)
        })
    }

    pub(super) fn take_down(&self, lane: &Lane) {
        let mut recorder = lock(&lane.recorder);
        recorder.forget_segment();
        let _ = self.wait(lane, &mut recorder);
        recorder.forget_graphs(&self.driver);
        let stages = std::mem::take(&mut recorder.stages);
        let answers = std::mem::take(&mut recorder.answers);
        let answers = answers.iter().map(|answer| answer.address);
        let hosts = stages.iter().map(|stage| stage.host.address).chain(answers);
        let places = recorder.places.map(|places| places.memory);
        let others = [recorder.latest].into_iter().chain(recorder.raw).chain(places);
        let device = stages.iter().map(|stage| stage.device).chain(others.map(|memory| memory.0));
        let device = device.filter(|&address| address != 0);
        let free = std::mem::take(&mut lock(&lane.pool).free);
        // SAFETY: everything is the lane's and freed once; it has finished.
        unsafe {
            for host in hosts.filter(|host| !host.is_null()) {
                (self.driver.host_free)(host);
            }
            for stage in stages.iter().filter(|stage| !stage.sent.is_null()) {
                (self.driver.event_destroy)(stage.sent);
            }
            for address in device.chain(free.into_values().flatten()) {
                (self.driver.memory_free)(address);
            }
            (self.driver.stream_destroy)(lane.stream);
        }
    }
}

/// The priority of a thread's own queue; lower numbers go first.
const FOREGROUND: c_int = -1;

/// Memory at rest, by size.
#[derive(Default)]
pub(super) struct Pool {
    pub(super) free: FxHashMap<usize, Vec<Address>>,
}

impl Lane {
    /// Takes memory back. Work recorded so far may still use it: whoever gets it next is recorded
    /// later.
    pub(crate) fn give_back(&self, address: Address, bytes: usize) {
        lock(&self.pool).free.entry(bytes).or_default().push(address);
    }
}

/// Sizes memory comes in: powers of two, from 32 MiB on in steps of 2 MiB.
pub(super) fn rounded(bytes: usize) -> usize {
    const LARGE: usize = 32 << 20;
    match bytes {
        0..LARGE => bytes.max(256).next_power_of_two(),
        _ => bytes.next_multiple_of(2 << 20),
    }
}
