//! Work beside the rest of a thread's: a lane may have another beside it, where the sentences to come are
//! encoded while the steps of those that are running go on.
//!
//! ```text
//! lane    step ─┬─ step ── step ── step ┬─ a step that reads it
//!               ▼                       │ join
//! beside        encoding ───────────────┘
//! ```
//!
//! What is done beside begins when all that the lane was sent before has ended: it may overwrite what that
//! reads. Steps wait for it when they first read what it wrote, and before that where memory both use moves
//! ([`Device::catch_up`]). Memory taken beside goes back there ([`Buffer`](crate::memory::Buffer)).

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::{Device, Lane, lock};
use crate::Error;

/// The end of what was done beside.
#[derive(Clone, Default)]
pub struct Beside(Option<Arc<Event>>);

struct Event {
    device: Arc<Device>,
    handle: *mut c_void,
    /// Whether the lane waits for it already.
    joined: AtomicBool,
}

// SAFETY: as for [`Device`].
unsafe impl Send for Event {}
// SAFETY: as for [`Device`].
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        if self.device.make_current().is_ok() {
            // SAFETY: ours, and destroyed once; the driver keeps what those need who wait for it.
            unsafe { (self.device.driver.event_destroy)(self.handle) };
        }
    }
}

impl Device {
    /// Does work beside what this thread has the device do from here on.
    pub(crate) fn beside(self: &Arc<Device>, work: impl FnOnce()) -> Result<Beside, Error> {
        let lane = self.lane()?;
        let beside = self.lane_beside(&lane)?;
        self.submit(&lane, &mut lock(&lane.recorder))?;
        self.follow(&beside, &lane)?;
        self.set_aside(true);
        let worked = catch_unwind(AssertUnwindSafe(work));
        self.set_aside(false);
        let mut recorder = lock(&beside.recorder);
        if let Err(fault) = worked {
            // Whoever began it takes its memory back: nothing may be under way that uses that.
            recorder.forget_segment();
            let _ = self.wait(&beside, &mut recorder);
            resume_unwind(fault);
        }
        self.submit(&beside, &mut recorder)?;
        let handle = self.new_event()?;
        let event = Event { device: Arc::clone(self), handle, joined: AtomicBool::new(false) };
        // SAFETY: our event and our stream.
        let code = unsafe { (self.driver.event_record)(handle, beside.stream) };
        self.driver.check("cuEventRecord", code)?;
        Ok(Beside(Some(Arc::new(event))))
    }

    /// What this thread's lane is sent from here on begins when that has ended.
    pub(crate) fn join(&self, beside: &Beside) -> Result<(), Error> {
        let Some(event) = beside.0.as_ref().filter(|event| !event.joined.swap(true, Relaxed))
        else {
            return Ok(());
        };
        let lane = self.lane()?;
        // SAFETY: our stream and our event.
        let code = unsafe { (self.driver.stream_wait_event)(lane.stream, event.handle, 0) };
        self.driver.check("cuStreamWaitEvent", code)
    }

    /// The same for all that was done beside: what follows moves memory that may be written there.
    pub(crate) fn catch_up(&self) -> Result<(), Error> {
        let lane = self.lane()?;
        match lane.beside.get() {
            Some(beside) => self.follow(&lane, beside),
            None => Ok(()),
        }
    }

    /// What `lane` is sent from here on begins when all that `other` was sent has ended.
    fn follow(&self, lane: &Lane, other: &Lane) -> Result<(), Error> {
        let event = self.new_event()?;
        // SAFETY: our event and our streams; one that is waited for may be destroyed.
        let (recorded, waited) = unsafe {
            let recorded = (self.driver.event_record)(event, other.stream);
            let waited = (self.driver.stream_wait_event)(lane.stream, event, 0);
            (self.driver.event_destroy)(event);
            (recorded, waited)
        };
        self.driver.check("cuEventRecord", recorded)?;
        self.driver.check("cuStreamWaitEvent", waited)
    }

    /// The lane beside another; made when it is first asked for.
    fn lane_beside(&self, lane: &Lane) -> Result<Arc<Lane>, Error> {
        if let Some(beside) = lane.beside.get() {
            return Ok(Arc::clone(beside));
        }
        // A lane belongs to one thread, so nobody was faster.
        let beside = self.new_lane(BACKGROUND)?;
        Ok(Arc::clone(lane.beside.get_or_init(|| beside)))
    }
}

/// The priority of a queue beside: steps are waited for.
const BACKGROUND: i32 = 0;
