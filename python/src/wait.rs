//! Waiting with the interpreter lock released, and with an ear for signals.
//!
//! Python handles signals between the instructions of its main thread, so whoever waits in Rust must ask for them. A call that is
//! interrupted ends after the step being computed.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use peregrine::{Error, Pending};
use pyo3::prelude::*;

use crate::errors::failed;

/// How often signals are asked for.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Runs `work` on a thread of its own; its flag is set when a signal ends the wait. `tick` is called now and then while it runs.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> T + Send,
    mut tick: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let stop = AtomicBool::new(false);
    let (send, receive) = sync_channel(1);
    let receive = Mutex::new(receive);
    thread::scope(|scope| {
        let run = || drop(send.send(work(&stop)));
        let worker = thread::Builder::new().spawn_scoped(scope, run);
        worker.map_err(|error| failed(Error::Thread(error)))?;
        loop {
            match next(py, &receive) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => return Err(failed("internal error")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Err(error) = py.check_signals().and_then(|()| tick(py)) {
                stop.store(true, Ordering::Relaxed);
                py.detach(|| drop(lock(&receive).recv()));
                return Err(error);
            }
        }
    })
}

/// Waits for the next message, for one tick at most.
pub(crate) fn next<T: Send>(
    py: Python<'_>,
    receive: &Mutex<Receiver<T>>,
) -> Result<T, RecvTimeoutError> {
    py.detach(|| lock(receive).recv_timeout(TICK))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a request. One that is interrupted is cancelled.
pub(crate) fn wait_for<T: Send>(py: Python<'_>, mut pending: Pending<T>) -> PyResult<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        let pending = &mut pending;
        let polled = py.detach(|| {
            let polled = Pin::new(pending).poll(&mut Context::from_waker(&waker));
            if polled.is_pending() {
                thread::park_timeout(TICK);
            }
            polled
        });
        match polled {
            Poll::Ready(result) => return result.map_err(failed),
            Poll::Pending => py.check_signals()?,
        }
    }
}

/// Has a request accepted, when there is room for it.
pub(crate) fn when_room<T: Send>(
    py: Python<'_>,
    accept: impl Fn() -> Result<T, Error> + Sync,
) -> PyResult<T> {
    /// How long a caller waits before it asks again.
    const PAUSE: Duration = Duration::from_millis(5);
    loop {
        let accepted = py.detach(|| {
            accept().inspect_err(|error| {
                if matches!(error, Error::Full) {
                    thread::sleep(PAUSE);
                }
            })
        });
        match accepted {
            Err(Error::Full) => py.check_signals()?,
            accepted => return accepted.map_err(failed),
        }
    }
}
