//! Futures: a service translates, and a courier brings results to futures of Python.
//!
//! The courier is one thread. It is told by messages that there is a request, that one may be done, or that one is not wanted any
//! more. It alone takes the interpreter lock; the workers never do.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;

use peregrine::{Error, Options, Pending, Request, Service, ServiceOptions, Translation};
use pyo3::prelude::*;

use crate::errors::failed;
use crate::open::Opened;
use crate::wait::when_room;

/// The running service of an engine, and the courier of its results.
pub(crate) struct Courier {
    service: Service,
    send: Sender<Message>,
    last_number: AtomicU64,
    thread: Mutex<Thread>,
}

enum Thread {
    /// There has been no future yet.
    Waiting(Receiver<Message>),
    Running(JoinHandle<()>),
    Ended,
}

enum Message {
    Submitted(u64, Box<Delivery>),
    Woken(u64),
    Cancelled(u64),
    End,
}

/// A request, and the future that wants its result.
struct Delivery {
    pending: Pending<Translation>,
    future: Py<PyAny>,
    waker: Waker,
}

/// A request of a future. It can be cancelled.
#[pyclass(frozen, module = "peregrine._peregrine")]
pub(crate) struct Ticket {
    number: u64,
    send: Sender<Message>,
}

#[pymethods]
impl Ticket {
    /// Has the request dropped, if it is not done.
    fn cancel(&self) {
        let _ = self.send.send(Message::Cancelled(self.number));
    }
}

impl Courier {
    pub(crate) fn new(opened: &Opened) -> Courier {
        let (send, receive) = channel();
        let options = ServiceOptions::new(opened.workers.clone());
        Courier {
            service: Service::new(&opened.translator, &options),
            send,
            last_number: AtomicU64::new(0),
            thread: Mutex::new(Thread::Waiting(receive)),
        }
    }

    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Has a text translated; the future gets the result.
    pub(crate) fn submit(
        &self,
        py: Python<'_>,
        source: &str,
        prefix: Option<&str>,
        options: &Options,
        future: Py<PyAny>,
    ) -> PyResult<Ticket> {
        self.begin()?;
        let mut request = Request::new(source).with_options(options);
        request.prefix = prefix;
        let pending = when_room(py, || self.service.try_submit(&request))?;
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        let waker = Waker::from(Arc::new(Bell { number, send: self.send.clone() }));
        let delivery = Delivery { pending, future, waker };
        let _ = self.send.send(Message::Submitted(number, Box::new(delivery)));
        Ok(Ticket { number, send: self.send.clone() })
    }

    /// Starts the thread, once.
    fn begin(&self) -> PyResult<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        *thread = match std::mem::replace(&mut *thread, Thread::Ended) {
            Thread::Waiting(receive) => {
                let builder = std::thread::Builder::new().name("peregrine futures".to_owned());
                let handle = builder.spawn(move || deliver(&receive));
                Thread::Running(handle.map_err(|error| failed(Error::Thread(error)))?)
            }
            other => other,
        };
        Ok(())
    }

    /// Ends the service and then the courier, who tells the futures. Not to be called with the interpreter lock held.
    pub(crate) fn end(courier: Arc<Courier>) {
        let mut thread = courier.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = std::mem::replace(&mut *thread, Thread::Ended);
        drop(thread);
        let send = courier.send.clone();
        // Whoever waits for a translation just now still gets it, and the service ends with the last of them.
        let alive: Weak<Courier> = Arc::downgrade(&courier);
        drop(courier);
        while alive.strong_count() > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let _ = send.send(Message::End);
        match ended {
            // Closed by a callback of a future, the courier cannot wait for itself.
            Thread::Running(handle) if handle.thread().id() != std::thread::current().id() => {
                drop(handle.join());
            }
            _ => {}
        }
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        // A courier that nobody has ended is not waited for: it may wait for the interpreter lock.
        let _ = self.send.send(Message::End);
    }
}

/// Wakes the courier for a request.
struct Bell {
    number: u64,
    send: Sender<Message>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _ = self.send.send(Message::Woken(self.number));
    }
}

/// The courier's thread.
fn deliver(receive: &Receiver<Message>) {
    let mut open: HashMap<u64, Box<Delivery>> = HashMap::new();
    let mut ending = false;
    while !(ending && open.is_empty()) {
        let Ok(message) = receive.recv() else { return };
        let number = match message {
            Message::Submitted(number, delivery) => {
                open.insert(number, delivery);
                number
            }
            Message::Woken(number) => number,
            Message::Cancelled(number) => {
                // A request that is dropped is cancelled.
                open.remove(&number);
                continue;
            }
            Message::End => {
                ending = true;
                continue;
            }
        };
        let Some(delivery) = open.get_mut(&number) else { continue };
        let mut context = Context::from_waker(&delivery.waker);
        let Poll::Ready(outcome) = Pin::new(&mut delivery.pending).poll(&mut context) else {
            continue;
        };
        if let Some(delivery) = open.remove(&number) {
            hand_over(&delivery.future, outcome);
        }
    }
}

/// Gives a future its result, unless it was cancelled or there is no interpreter any more.
fn hand_over(future: &Py<PyAny>, outcome: Result<Translation, Error>) {
    Python::try_attach(|py| {
        let future = future.bind(py);
        let tell = || -> PyResult<()> {
            if !future.call_method0("set_running_or_notify_cancel")?.extract::<bool>()? {
                return Ok(());
            }
            match outcome {
                Ok(translation) => future.call_method1("set_result", (translation.text(),))?,
                Err(error) => future.call_method1("set_exception", (failed(error),))?,
            };
            Ok(())
        };
        if let Err(error) = tell() {
            error.write_unraisable(py, Some(future));
        }
    });
}
