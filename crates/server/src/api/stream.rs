//! Server-sent events: sentences as they finish, tokens as they are decoded.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::Stream;
use peregrine::text::Offsets;
use peregrine::{Alternative, Pending, Progress, Request, Translation};
use serde_json::{Value, json};
use tokio::time::Sleep;

use super::bytes_answer;
use super::shape::{Shape, answer};
use crate::access::Client;
use crate::app::App;
use crate::dispatch::{Dispatch, Translated, TranslationJob};
use crate::problem::{Kind, Outcome, Problem};
use crate::wanted::Wanted;

/// A text that is being translated.
struct Running {
    text: String,
    dispatch: Dispatch,
    /// The running translation; `None` if it is finished or nothing is to be translated.
    pending: Option<Pending>,
    /// The translation of the first of two models, while the second one runs.
    first: Option<Translation>,
    made: Option<Translation>,
}

/// The events of a request.
struct Events {
    app: Arc<App>,
    wanted: Wanted,
    running: Vec<Running>,
    shape: Shape,
    start: Instant,
    deadline: Pin<Box<Sleep>>,
    ended: bool,
}

/// Answers a request with events.
pub(crate) async fn translate(
    app: &Arc<App>,
    client: Client,
    job: TranslationJob,
    shape: Shape,
) -> Outcome<Response> {
    let start = Instant::now();
    app.check_size(&job)?;
    let dispatches = app.dispatch(client, &job).await?;
    let submit = || {
        dispatches
            .into_iter()
            .zip(&job.texts)
            .map(|(dispatch, text)| run(app, &job, text, dispatch))
            .collect()
    };
    let running: Outcome<Vec<Running>> = tokio::task::block_in_place(submit);
    let deadline = Box::pin(tokio::time::sleep(job.timeout.max(Duration::from_millis(1))));
    let (app, wanted) = (Arc::clone(app), job.wanted.clone());
    let events = Events { app, wanted, running: running?, shape, start, deadline, ended: false };
    let mut response = bytes_answer(200, "text/event-stream", Bytes::new());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // A buffering proxy would delay the events.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    *response.body_mut() = Body::from_stream(events);
    Ok(response)
}

fn run(app: &Arc<App>, job: &TranslationJob, text: &str, dispatch: Dispatch) -> Outcome<Running> {
    let text_of = text.to_owned();
    let mut running = Running { text: text_of, dispatch, pending: None, first: None, made: None };
    let Some(session) = &running.dispatch.session else {
        let same = Alternative { text: text.to_owned(), ended: true, ..Alternative::default() };
        running.made = Some(Translation { alternatives: vec![same], ..Translation::default() });
        return Ok(running);
    };
    let options = app.first_options(session, &job.wanted);
    let (from, to) = (&running.dispatch.from, &running.dispatch.to);
    let request = Request::new(text).with_options(&options).with_tokens();
    let request = request.between(&session.pair.from, &session.pair.to);
    app.metrics.translated(&format!("{from}-{to}"), text.chars().count());
    running.pending = Some(session.caller.try_submit(&request)?);
    Ok(running)
}

/// An event in wire format.
fn event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

impl Events {
    /// The next event of a text, if there is one.
    fn poll_text(
        &mut self,
        number: usize,
        context: &mut TaskContext<'_>,
    ) -> Poll<Result<Bytes, Problem>> {
        let running = &mut self.running[number];
        let session = running.dispatch.session.clone();
        // The output of the first of two models is not sent to the client.
        let silent = running.first.is_none()
            && session.as_ref().is_some_and(|session| session.then.is_some());
        let Some(pending) = &mut running.pending else { return Poll::Pending };
        match pending.poll_progress(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(_)) if silent => self.poll_text(number, context),
            Poll::Ready(Some(Progress::Sentence { sentence, text })) => {
                let source = match &running.first {
                    None => pending.sources().get(sentence).cloned(),
                    Some(first) => first.sentences.get(sentence).map(|one| one.source.clone()),
                };
                let source = source.unwrap_or_default();
                let range = Offsets::new(&running.text, self.shape.unit).range(&source);
                let data = json!({"text": number, "sentence": sentence, "source": [range.start, range.end], "translation": text});
                Poll::Ready(Ok(event("sentence", &data)))
            }
            Poll::Ready(Some(Progress::Token { sentence, text })) => Poll::Ready(Ok(event(
                "token",
                &json!({"text": number, "sentence": sentence, "translation": text}),
            ))),
            Poll::Ready(Some(_)) => Poll::Pending,
            Poll::Ready(None) => match pending.poll_ready() {
                Some(Ok(translation)) if silent => {
                    let Some(session) = session else { return Poll::Pending };
                    match self.app.submit_second(&session, &translation, &self.wanted, true) {
                        Ok(second) => running.pending = second,
                        Err(problem) => return Poll::Ready(Err(problem)),
                    }
                    running.first = Some(translation);
                    self.poll_text(number, context)
                }
                Some(Ok(translation)) => {
                    running.made = Some(match running.first.take() {
                        None => translation,
                        Some(first) => translation.through(first),
                    });
                    running.pending = None;
                    Poll::Pending
                }
                Some(Err(error)) => Poll::Ready(Err(error.into())),
                None => Poll::Pending,
            },
        }
    }

    /// The last event: the whole answer.
    fn done(&mut self) -> Bytes {
        let texts: Vec<String> = self.running.iter().map(|running| running.text.clone()).collect();
        let translated = self.running.drain(..).map(|running| Translated {
            model: running.dispatch.model_name(),
            translation: Arc::new(running.made.unwrap_or_default()),
            from: running.dispatch.from,
            to: running.dispatch.to,
            detected: running.dispatch.detected,
        });
        let translated: Vec<Translated> = translated.collect();
        event("done", &answer(&texts, &translated, self.shape, self.start))
    }

    fn failed(&mut self, problem: &Problem) -> Bytes {
        self.ended = true;
        self.running.clear();
        let error = json!({"error": {"code": problem.kind.name(), "message": problem.message}});
        event("error", &error)
    }
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<Option<Self::Item>> {
        let events = &mut *self;
        if events.ended {
            return Poll::Ready(None);
        }
        if events.deadline.as_mut().poll(context).is_ready() {
            let late = Problem::new(Kind::Deadline, "The request took longer than it may");
            return Poll::Ready(Some(Ok(events.failed(&late))));
        }
        for number in 0..events.running.len() {
            match events.poll_text(number, context) {
                Poll::Pending => {}
                Poll::Ready(Ok(event)) => return Poll::Ready(Some(Ok(event))),
                Poll::Ready(Err(problem)) => return Poll::Ready(Some(Ok(events.failed(&problem)))),
            }
        }
        if events.running.iter().any(|running| running.pending.is_some()) {
            return Poll::Pending;
        }
        events.ended = true;
        Poll::Ready(Some(Ok(events.done())))
    }
}
