//! Side streams: a worker stream may have another of lower priority, on which waiting sentences are encoded
//! while the decoding steps of the batch go on.
//!
//! ```text
//! worker stream  step ─┬─ step ── step ── step ┬─ a step that reads it
//!                      ▼                       │ join
//! side stream          encoding ───────────────┘
//! ```
//!
//! Work on the side stream starts after all that the worker stream was sent before, since it may overwrite what that
//! reads. A step waits for the event at its end when it first reads what the side stream wrote, and earlier where
//! memory that both use moves ([`Device::join_side_stream`]). Memory allocated on the side stream goes back to its
//! pool ([`Buffer`](crate::memory::Buffer)).

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::{Device, WorkerStream, lock};
use crate::Error;

/// Work on a side stream, which its event ends.
#[derive(Clone, Default)]
pub struct SideWork(Option<Arc<Event>>);

struct Event {
    device: Arc<Device>,
    handle: *mut c_void,
    /// Whether the worker stream already waits for it.
    joined: AtomicBool,
}

// SAFETY: as for [`Device`].
unsafe impl Send for Event {}
// SAFETY: as for [`Device`].
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.make_current().is_ok() {
            // SAFETY: ours, and destroyed once; streams that wait for it are not affected.
            unsafe { (self.device.driver.event_destroy)(self.handle) };
        }
    }
}

impl Device {
    /// Sends what `work` records to this thread's side stream, concurrently with what the thread records
    /// afterwards.
    pub(crate) fn run_on_side_stream(
        self: &Arc<Device>,
        work: impl FnOnce(),
    ) -> Result<SideWork, Error> {
        let stream = self.stream()?;
        let side = self.side_stream(&stream)?;
        self.submit(&stream, &mut lock(&stream.recorder))?;
        self.wait_for_stream(&side, &stream)?;
        self.set_on_side_stream(true);
        let worked = catch_unwind(AssertUnwindSafe(work));
        self.set_on_side_stream(false);
        let mut recorder = lock(&side.recorder);
        if let Err(fault) = worked {
            // The caller takes its memory back: no kernel in flight may use it.
            recorder.forget_segment();
            let _ = self.wait(&side, &mut recorder);
            resume_unwind(fault);
        }
        self.submit(&side, &mut recorder)?;
        let handle = self.new_event()?;
        let event = Event { device: Arc::clone(self), handle, joined: AtomicBool::new(false) };
        // SAFETY: our event and our stream.
        let code = unsafe { (self.driver.event_record)(handle, side.handle) };
        self.driver.check("cuEventRecord", code)?;
        Ok(SideWork(Some(Arc::new(event))))
    }

    /// Has this thread's stream wait for side work before anything it is sent from here on.
    pub(crate) fn join(&self, work: &SideWork) -> Result<(), Error> {
        let Some(event) = work.0.as_ref().filter(|event| !event.joined.swap(true, Relaxed)) else {
            return Ok(());
        };
        let stream = self.stream()?;
        // SAFETY: our stream and our event.
        let code = unsafe { (self.driver.stream_wait_event)(stream.handle, event.handle, 0) };
        self.driver.check("cuStreamWaitEvent", code)
    }

    /// Joins all work of the side stream: what follows moves memory that it may write.
    pub(crate) fn join_side_stream(&self) -> Result<(), Error> {
        let stream = self.stream()?;
        match stream.side.get() {
            Some(side) => self.wait_for_stream(&stream, side),
            None => Ok(()),
        }
    }

    /// Has `stream` wait for all that `other` was sent before anything it is sent from here on.
    fn wait_for_stream(&self, stream: &WorkerStream, other: &WorkerStream) -> Result<(), Error> {
        let event = self.new_event()?;
        // SAFETY: our event and our streams; an event that is waited for may be destroyed.
        let (recorded, waited) = unsafe {
            let recorded = (self.driver.event_record)(event, other.handle);
            let waited = (self.driver.stream_wait_event)(stream.handle, event, 0);
            (self.driver.event_destroy)(event);
            (recorded, waited)
        };
        self.driver.check("cuEventRecord", recorded)?;
        self.driver.check("cuStreamWaitEvent", waited)
    }

    /// The side stream of a stream; made when it is first needed.
    fn side_stream(&self, stream: &WorkerStream) -> Result<Arc<WorkerStream>, Error> {
        if let Some(side) = stream.side.get() {
            return Ok(Arc::clone(side));
        }
        // A stream belongs to one thread, so no other thread makes its side stream.
        let side = self.new_stream(SIDE_PRIORITY)?;
        Ok(Arc::clone(stream.side.get_or_init(|| side)))
    }
}

/// The priority of a side stream: lower than that of steps, which the host waits for.
const SIDE_PRIORITY: i32 = 0;
