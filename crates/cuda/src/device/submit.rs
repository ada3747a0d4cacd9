//! Submission: a recorded segment goes to its stream, as launches or as a graph, and answers come back.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::recorder::{Answer, Graph, Recorder, Sent, Stage};
use super::{Device, WorkerStream, lock, null, null_mut};
use crate::Error;
use crate::driver::{LaunchAttribute, LaunchConfig, Map};

/// How long an event is polled before the thread sleeps.
const POLLED: Duration = Duration::from_micros(500);
/// `CU_LAUNCH_PARAM_BUFFER_POINTER`.
const BUFFER_POINTER: usize = 1;
/// `CU_LAUNCH_PARAM_BUFFER_SIZE`.
const BUFFER_SIZE: usize = 2;
/// All graphs of a stream are forgotten when there are so many.
pub(super) const MOST_GRAPHS: usize = 1024;

impl Device {
    /// Sends all recorded work, with the kernels that write `answer`.
    pub(crate) fn send(&self, answer: Answer) -> Result<Sent, Error> {
        let stream = self.stream()?;
        let mut recorder = lock(&stream.recorder);
        let stage = recorder.current;
        self.submit(&stream, &mut recorder)?;
        Ok(Sent { answer: answer.number, stage })
    }

    /// Waits for an answer and reads `words` four-byte words of it.
    pub(crate) fn read<T>(
        &self,
        sent: Sent,
        words: usize,
        read: impl FnOnce(&[u32]) -> T,
    ) -> Result<T, Error> {
        let stream = self.stream()?;
        let mut recorder = lock(&stream.recorder);
        self.wait_for(&mut recorder.stages[sent.stage])?;
        let answer = &recorder.answers[sent.answer];
        let words = words.min(answer.bytes / 4);
        // SAFETY: page-locked memory of at least that size, written by kernels that have ended.
        let answer = unsafe { answer.words(words) };
        Ok(read(answer))
    }

    /// Gives the next answer the memory of the last one, which has been read. The one before it may then still be
    /// waited for.
    pub(crate) fn reuse_answer(&self, read: Sent) -> Result<(), Error> {
        lock(&self.stream()?.recorder).next_answer = read.answer;
        Ok(())
    }

    /// Waits for what was last sent with a stage. Steps of few rows end soon, so the event is polled first; then the
    /// thread sleeps, since the next step is in flight already and outlasts the time it takes to wake up. A thread polls
    /// only while no other waits: the kernels of several keep the device busy.
    fn wait_for(&self, stage: &mut Stage) -> Result<(), Error> {
        const NOT_READY: c_int = 600;
        if !stage.in_flight {
            return Ok(());
        }
        let begin = Instant::now();
        // SAFETY: an event of ours, made when the stage was first sent.
        let mut code = unsafe { (self.driver.event_query)(stage.sent) };
        if code == NOT_READY {
            self.waiting.fetch_add(1, Relaxed);
            let is_alone = || self.waiting.load(Relaxed) == 1;
            while code == NOT_READY && is_alone() && begin.elapsed() < POLLED {
                std::hint::spin_loop();
                // SAFETY: as above.
                code = unsafe { (self.driver.event_query)(stage.sent) };
            }
            if code == NOT_READY {
                // SAFETY: as above.
                code = unsafe { (self.driver.event_wait)(stage.sent) };
            }
            self.waiting.fetch_sub(1, Relaxed);
        }
        self.driver.check("cuEventSynchronize", code)?;
        // Not earlier: after a failure the memory holds no answer.
        stage.in_flight = false;
        Ok(())
    }

    /// Records the event at the end of what was sent with a stage.
    fn mark(&self, stream: &WorkerStream, stage: &mut Stage) -> Result<(), Error> {
        if stage.sent.is_null() {
            stage.sent = self.new_event()?;
        }
        // SAFETY: our event and our stream.
        let code = unsafe { (self.driver.event_record)(stage.sent, stream.handle) };
        stage.in_flight = true;
        self.driver.check("cuEventRecord", code)
    }

    pub(super) fn new_event(&self) -> Result<*mut c_void, Error> {
        const SLEEPS: c_uint = 1;
        const WITHOUT_TIMES: c_uint = 2;
        let mut event = null();
        // SAFETY: a place for a handle.
        let code = unsafe { (self.driver.event_create)(&mut event, SLEEPS | WITHOUT_TIMES) };
        self.driver.check("cuEventCreate", code).map(|()| event)
    }

    pub(super) fn wait(&self, stream: &WorkerStream, recorder: &mut Recorder) -> Result<(), Error> {
        // SAFETY: our stream.
        let code = unsafe { (self.driver.stream_wait)(stream.handle) };
        self.driver.check("cuStreamSynchronize", code)?;
        recorder.stages.iter_mut().for_each(|stage| stage.in_flight = false);
        Ok(())
    }

    /// Sends the recorded segment. One that cannot be sent is forgotten: it would only fail again.
    pub(super) fn submit(
        &self,
        stream: &WorkerStream,
        recorder: &mut Recorder,
    ) -> Result<(), Error> {
        if recorder.launches.is_empty() {
            return Ok(());
        }
        let sent = self.replay_or_launch(stream, recorder);
        if sent.is_err() {
            // Part of it may be in flight and read the stage; if waiting fails too, nothing is.
            let _ = self.wait(stream, recorder);
        }
        recorder.forget_segment();
        sent?;
        self.mark(stream, &mut recorder.stages[recorder.current])?;
        recorder.current = (recorder.current + 1) % recorder.stages.len();
        self.wait_for(&mut recorder.stages[recorder.current])
    }

    fn replay_or_launch(
        &self,
        stream: &WorkerStream,
        recorder: &mut Recorder,
    ) -> Result<(), Error> {
        let key = recorder.key();
        match recorder.graphs.get(&key).copied() {
            Some(Graph::Ready(graph)) => self.replay(stream, graph),
            Some(Graph::SeenOnce) => match self.capture(stream, recorder) {
                Ok(graph) => {
                    recorder.graphs.insert(key, Graph::Ready(graph));
                    self.replay(stream, graph)
                }
                // Without a graph it is launched kernel by kernel.
                Err(Error::OutOfMemory) => self.launch(stream, recorder),
                Err(error) => Err(error),
            },
            None => {
                if recorder.graphs.len() >= MOST_GRAPHS {
                    self.wait(stream, recorder)?;
                    recorder.forget_graphs(&self.driver);
                }
                recorder.graphs.insert(key, Graph::SeenOnce);
                self.launch(stream, recorder)
            }
        }
    }

    fn replay(&self, stream: &WorkerStream, graph: *mut c_void) -> Result<(), Error> {
        // SAFETY: a graph of the stream's recorder, made by `capture` and not yet destroyed.
        let code = unsafe { (self.driver.graph_launch)(graph, stream.handle) };
        self.driver.check("cuGraphLaunch", code)
    }

    /// Captures the segment as a graph.
    fn capture(&self, stream: &WorkerStream, recorder: &Recorder) -> Result<*mut c_void, Error> {
        const THREAD_LOCAL: c_int = 1;
        let (mut graph, mut executable) = (null(), null());
        // SAFETY: our stream; places for handles; the graph is destroyed once, if there is one.
        unsafe {
            let begun = (self.driver.capture_begin)(stream.handle, THREAD_LOCAL);
            self.driver.check("cuStreamBeginCapture", begun)?;
            let launched = self.launch(stream, recorder);
            let ended = (self.driver.capture_end)(stream.handle, &mut graph);
            let made = launched.and_then(|()| {
                self.driver.check("cuStreamEndCapture", ended)?;
                let made = (self.driver.graph_instantiate)(&mut executable, graph, 0);
                self.driver.check("cuGraphInstantiate", made)
            });
            if !graph.is_null() {
                (self.driver.graph_destroy)(graph);
            }
            made.map(|()| executable)
        }
    }

    /// Launches the segment's kernels, after the copy of its stage.
    fn launch(&self, stream: &WorkerStream, recorder: &Recorder) -> Result<(), Error> {
        let stage = &recorder.stages[recorder.current];
        if stage.used > 0 {
            // SAFETY: both sides of a stage are as long; the host's is page-locked and not written
            // until the stream has been waited for.
            let code = unsafe {
                (self.driver.copy_to_device)(
                    stage.device,
                    stage.host.address,
                    stage.used,
                    stream.handle,
                )
            };
            self.driver.check("cuMemcpyHtoD", code)?;
        }
        for (i, launch) in recorder.launches.iter().enumerate() {
            // The first kernel must see the whole stage, so it is no programmatic dependent launch.
            let overlapped = self.overlaps && i > 0 && !recorder.launches[i - 1].ends_first;
            let config = LaunchConfig {
                grid: [launch.grid[0], launch.grid[1], 1],
                block: [launch.block, 1, 1],
                shared_bytes: launch.shared,
                stream: stream.handle,
                attributes: &LaunchAttribute::OVERLAPPED,
                attribute_count: c_uint::from(overlapped),
            };
            let parameters = &recorder.parameters[launch.parameters.clone()];
            let mut size = parameters.len();
            let place = |at: usize| parameters[at..].as_ptr().cast_mut().cast::<c_void>();
            // `CU_LAUNCH_PARAM_*`: a buffer of packed parameters, its size, the end.
            let mut extra: [*mut c_void; 5] = [
                BUFFER_POINTER as *mut c_void,
                place(0),
                BUFFER_SIZE as *mut c_void,
                (&raw mut size).cast(),
                null(),
            ];
            // Only the driver knows the alignment of tensor maps: with them each parameter is passed by itself.
            let map = |from_end: usize| place(size - from_end * size_of::<Map>());
            let mut apart = match launch.mapped {
                true => [place(0), map(2), map(1)],
                false => [null(); 3],
            };
            let (named, packed) = match launch.mapped {
                false => (null_mut(), extra.as_mut_ptr()),
                true => (apart.as_mut_ptr(), null_mut()),
            };
            // SAFETY: the parameters are those declared for the kernel, which tests compare with its source, and
            // the addresses in them are of memory that lives on.
            let code = unsafe { (self.driver.launch)(&config, launch.function, named, packed) };
            self.driver.check("cuLaunchKernel", code)?;
        }
        Ok(())
    }
}
