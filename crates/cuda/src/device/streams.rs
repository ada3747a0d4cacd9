//! Worker streams: each thread has a CUDA stream of its own on a device, with its recorder and its memory.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, OnceLock};

use super::pool::{Pool, rounded};
use super::recorder::Recorder;
use super::{Device, lock, null};
use crate::Error;
use crate::driver::Address;

/// A CUDA stream with what is recorded for it and with the memory its kernels use.
pub(crate) struct WorkerStream {
    pub(super) handle: *mut c_void,
    pub(super) recorder: Mutex<Recorder>,
    pool: Mutex<Pool>,
    /// The side stream, made when it is first needed.
    pub(super) side: OnceLock<Arc<WorkerStream>>,
}

// SAFETY: as for [`Device`].
unsafe impl Send for WorkerStream {}
// SAFETY: as for [`Device`].
unsafe impl Sync for WorkerStream {}

/// The streams of a thread, one a device.
#[derive(Default)]
struct ThreadStreams(Vec<HeldStream>);

struct HeldStream {
    device: u64,
    stream: Arc<WorkerStream>,
    /// Whether the thread records on the side stream for now.
    on_side: bool,
    /// Takes the stream back when the thread ends.
    idle: Arc<Mutex<Vec<Arc<WorkerStream>>>>,
}

impl Drop for ThreadStreams {
    fn drop(&mut self) {
        for held in self.0.drain(..) {
            lock(&held.idle).push(held.stream);
        }
    }
}

thread_local! {
    static STREAMS: RefCell<ThreadStreams> = RefCell::default();
}

impl Device {
    /// This thread's stream. The device's context is current afterwards.
    pub(crate) fn stream(&self) -> Result<Arc<WorkerStream>, Error> {
        self.make_current()?;
        if let Some(stream) = self.held_stream(self.is_on_side_stream()) {
            return Ok(stream);
        }
        let idle = lock(&self.idle).pop();
        let stream = match idle {
            Some(stream) => self.reset_stream(stream)?,
            None => self.new_stream(PRIORITY)?,
        };
        let held = HeldStream {
            device: self.identity,
            stream: Arc::clone(&stream),
            on_side: false,
            idle: Arc::clone(&self.idle),
        };
        STREAMS.with_borrow_mut(|streams| streams.0.push(held));
        Ok(stream)
    }

    /// The stream this thread has, if it has one, or the side stream of that.
    fn held_stream(&self, on_side: bool) -> Option<Arc<WorkerStream>> {
        let find = |streams: &RefCell<ThreadStreams>| {
            let streams = streams.try_borrow().ok()?;
            let held = streams.0.iter().find(|held| held.device == self.identity)?;
            if on_side { held.stream.side.get().cloned() } else { Some(Arc::clone(&held.stream)) }
        };
        STREAMS.try_with(find).ok().flatten()
    }

    /// Whether this thread records on its side stream.
    pub(crate) fn is_on_side_stream(&self) -> bool {
        STREAMS.with_borrow(|streams| {
            streams.0.iter().any(|held| held.device == self.identity && held.on_side)
        })
    }

    pub(super) fn set_on_side_stream(&self, on_side: bool) {
        STREAMS.with_borrow_mut(|streams| {
            let held = streams.0.iter_mut().filter(|held| held.device == self.identity);
            held.for_each(|held| held.on_side = on_side);
        });
    }

    /// Drops what a thread that has ended left unsent on its stream.
    fn reset_stream(&self, stream: Arc<WorkerStream>) -> Result<Arc<WorkerStream>, Error> {
        for stream in std::iter::once(&stream).chain(stream.side.get()) {
            let mut recorder = lock(&stream.recorder);
            recorder.forget_segment();
            self.wait(stream, &mut recorder)?;
        }
        Ok(stream)
    }

    pub(super) fn new_stream(&self, priority: c_int) -> Result<Arc<WorkerStream>, Error> {
        const NON_BLOCKING: c_uint = 1;
        let mut handle = null();
        // SAFETY: a place for a handle.
        let code = unsafe { (self.driver.stream_create)(&mut handle, NON_BLOCKING, priority) };
        self.driver.check("cuStreamCreateWithPriority", code)?;
        let stream = WorkerStream {
            handle,
            recorder: Mutex::default(),
            pool: Mutex::default(),
            side: OnceLock::new(),
        };
        let stream = Arc::new(stream);
        lock(&self.streams).push(Arc::clone(&stream));
        Ok(stream)
    }

    /// Takes memory back that this thread was the last to use, on its stream or on its side stream.
    pub(crate) fn give_back(&self, address: Address, bytes: usize, on_side: bool) {
        match self.held_stream(on_side) {
            Some(stream) => stream.give_back(address, bytes),
            // A thread without a stream did no work; the driver waits for the work of others.
            None if self.make_current().is_ok() => {
                // SAFETY: memory of ours that nobody refers to any more.
                unsafe { (self.driver.memory_free)(address) };
            }
            _ => {}
        }
    }

    /// Allocates on this thread's stream. If the device is full, the free memory of the stream's pools goes
    /// back to the driver first.
    pub(crate) fn allocate(
        &self,
        stream: &WorkerStream,
        bytes: usize,
    ) -> Result<(Address, usize), Error> {
        match self.take(stream, bytes) {
            Err(Error::OutOfMemory) => {
                for held in [false, true].into_iter().filter_map(|side| self.held_stream(side)) {
                    self.trim(&held)?;
                }
                self.take(stream, bytes)
            }
            taken => taken,
        }
    }

    /// Allocates from the stream's pool, or else from the driver.
    pub(super) fn take(
        &self,
        stream: &WorkerStream,
        bytes: usize,
    ) -> Result<(Address, usize), Error> {
        let bytes = rounded(bytes);
        let kept = lock(&stream.pool).take(bytes);
        match kept {
            Some(address) => Ok((address, bytes)),
            None => Ok((self.new_memory(bytes)?, bytes)),
        }
    }

    /// Drops what this thread recorded and did not send, and frees its pools and graphs: what failed for want of
    /// memory would fail again.
    pub(crate) fn abandon(&self) -> Result<(), Error> {
        self.make_current()?;
        for stream in [false, true].into_iter().filter_map(|side| self.held_stream(side)) {
            lock(&stream.recorder).forget_segment();
            self.trim(&stream)?;
        }
        Ok(())
    }

    /// Returns the memory of a stream's pool to the driver.
    fn trim(&self, stream: &WorkerStream) -> Result<(), Error> {
        let mut recorder = lock(&stream.recorder);
        self.submit(stream, &mut recorder)?;
        self.wait(stream, &mut recorder)?;
        // Graphs hold addresses that are about to be freed.
        recorder.forget_graphs(&self.driver);
        let mut free = lock(&stream.pool).drain();
        free.try_for_each(|address| {
            // SAFETY: memory from `cuMemAlloc`, and the stream has finished all work.
            let code = unsafe { (self.driver.memory_free)(address) };
            self.driver.check("cuMemFree", code)
        })
    }

    /// Frees all that a stream has.
    pub(super) fn destroy_stream(&self, stream: &WorkerStream) {
        let mut recorder = lock(&stream.recorder);
        recorder.forget_segment();
        let _ = self.wait(stream, &mut recorder);
        recorder.forget_graphs(&self.driver);
        let stages = std::mem::take(&mut recorder.stages);
        let answers = std::mem::take(&mut recorder.answers);
        let answers = answers.iter().map(|answer| answer.address);
        let hosts = stages.iter().map(|stage| stage.host.address).chain(answers);
        let places = recorder.places.map(|places| places.memory);
        let others = [recorder.latest].into_iter().chain(recorder.raw).chain(places);
        let device = stages.iter().map(|stage| stage.device).chain(others.map(|memory| memory.0));
        let device = device.filter(|&address| address != 0);
        let free = lock(&stream.pool).drain();
        // SAFETY: everything is the stream's and freed once; the stream has finished.
        unsafe {
            for host in hosts.filter(|host| !host.is_null()) {
                (self.driver.host_free)(host);
            }
            for stage in stages.iter().filter(|stage| !stage.sent.is_null()) {
                (self.driver.event_destroy)(stage.sent);
            }
            for address in device.chain(free) {
                (self.driver.memory_free)(address);
            }
            (self.driver.stream_destroy)(stream.handle);
        }
    }
}

/// The priority of a thread's own stream. Lower numbers are scheduled first.
const PRIORITY: c_int = -1;

impl WorkerStream {
    /// Takes memory back. Work recorded so far may still use it; its next owner on this stream is recorded
    /// later.
    pub(crate) fn give_back(&self, address: Address, bytes: usize) {
        lock(&self.pool).give_back(address, bytes);
    }
}
