//! A model ready to translate, as the package's `Translator` holds it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peregrine::document::{BlockRequest, Document, DocumentOptions, Format};
use peregrine::{Answer, Error, Line, Options, Priority, Request, Scope, Split, Translation};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::arrow::{self, Strings};
use crate::both::Both;
use crate::errors::{failed, value};
use crate::iterate::Translations;
use crate::open::{Opened, Opening};
use crate::options::{self, text};
use crate::results::{Full, Want};
use crate::submit::{Courier, Ticket};
use crate::wait::{interruptible, wait_for, when_room};

/// Texts that go through the service, whose workers are there already. More of them go through a stream, as in the command.
const FEW: usize = 64;

/// A model ready to translate.
#[pyclass(frozen, module = "peregrine._peregrine")]
pub(crate) struct Engine {
    opened: Arc<Opened>,
    /// The running service. The lock is held for moments only, and never without the interpreter lock.
    service: Mutex<State>,
    /// The process that it was opened in.
    process: u32,
}

impl Drop for Engine {
    /// A forked process leaves the engine of its parent as it is: threads that it does not have may have been at work in it.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(Arc::clone(&self.opened));
            if let State::Running(courier) = &*self.state() {
                std::mem::forget(Arc::clone(courier));
            }
        }
    }
}

enum State {
    /// Nobody has asked for it.
    Asleep,
    Running(Arc<Courier>),
    Closed,
}

impl Engine {
    fn state(&self) -> MutexGuard<'_, State> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn courier(&self) -> PyResult<Arc<Courier>> {
        let mut state = self.state();
        match &*state {
            State::Running(courier) => Ok(Arc::clone(courier)),
            State::Closed => Err(failed("this translator is closed")),
            State::Asleep => {
                let courier = Arc::new(Courier::new(&self.opened));
                *state = State::Running(Arc::clone(&courier));
                Ok(courier)
            }
        }
    }

    /// Whether a service does what a stream does: it has one model, and its texts know nothing of each other.
    fn suits_service(&self, options: &Both) -> bool {
        let apart = self.opened.workers.shortlist_scope == Scope::Sentence;
        options.first.is_none() && apart && options.second.split != Split::Paragraph
    }

    /// Translates lines and makes something of each translation. The results are in the order of the lines.
    fn translate_lines<R: Send>(
        &self,
        py: Python<'_>,
        lines: Vec<Line>,
        options: &Both,
        progress: Option<&Bound<'_, PyAny>>,
        make: impl Fn(&str, Translation) -> R + Sync,
    ) -> PyResult<Vec<R>> {
        let (opened, make) = (&*self.opened, &make);
        let done = &AtomicU64::new(0);
        let tell = |_: Python<'_>| match progress {
            Some(progress) => progress.call1((done.load(Ordering::Relaxed),)).map(drop),
            None => Ok(()),
        };
        if lines.len() <= FEW && self.suits_service(options) {
            let results = self.translate_few(py, &lines, &options.second, make)?;
            done.store(results.len() as u64, Ordering::Relaxed);
            tell(py)?;
            return Ok(results);
        }
        let work = |stop: &AtomicBool| {
            let mut results = Vec::with_capacity(lines.len());
            let lines = lines.into_iter().map(|line| Line {
                tag: line.text.clone(),
                text: line.text,
                prefix: line.prefix,
                sentences: None,
                keep: Vec::new(),
            });
            opened.stream(options, stop, lines, |answer: Answer<String>| {
                results.push(make(&answer.tag, answer.translation));
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })?;
            Ok(results)
        };
        let results = interruptible(py, work, tell)?.map_err(|error: Error| failed(error))?;
        tell(py)?;
        Ok(results)
    }

    fn translate_few<R>(
        &self,
        py: Python<'_>,
        lines: &[Line],
        options: &Options,
        make: impl Fn(&str, Translation) -> R,
    ) -> PyResult<Vec<R>> {
        let courier = self.courier()?;
        let caller = courier.service().caller(Priority::Interactive);
        let submit = |line: &Line| {
            let mut request = Request::new(&line.text).with_options(options);
            request.prefix = line.prefix.as_deref();
            when_room(py, || caller.try_submit(&request))
        };
        let pending = lines.iter().map(submit).collect::<PyResult<Vec<_>>>()?;
        let translations = lines.iter().zip(pending);
        translations.map(|(line, pending)| Ok(make(&line.text, wait_for(py, pending)?))).collect()
    }
}

/// Texts as lines, with prefixes or without.
fn lines(texts: &Bound<'_, PyList>, prefixes: Option<Vec<Option<String>>>) -> PyResult<Vec<Line>> {
    if prefixes.as_ref().is_some_and(|prefixes| prefixes.len() != texts.len()) {
        return Err(value("prefix: expected one for each text"));
    }
    let mut prefixes = prefixes.into_iter().flatten();
    let line = |(number, item): (usize, Bound<'_, PyAny>)| {
        let line = Line::new(text(&item, || format!("text {number}"))?);
        let prefix = prefixes.next().flatten();
        Ok(Line { prefix: prefix.filter(|prefix| !prefix.is_empty()), ..line })
    };
    texts.iter().enumerate().map(line).collect()
}

#[pymethods]
impl Engine {
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<Engine> {
        let opened = Arc::new(Opening::new(settings)?.open(py)?);
        let process = std::process::id();
        Ok(Engine { opened, service: Mutex::new(State::Asleep), process })
    }

    /// The name of the device.
    #[getter]
    fn device(&self) -> &str {
        self.opened.translator.device()
    }

    /// Whether the model is computed on a GPU.
    #[getter]
    fn on_gpu(&self) -> bool {
        self.opened.translator.is_on_gpu()
    }

    /// The precision of products.
    #[getter]
    fn precision(&self) -> &str {
        self.opened.translator.precision()
    }

    /// The number of workers.
    #[getter]
    fn threads(&self) -> usize {
        self.opened.workers.threads
    }

    /// The codes of the source and target language, if they are known.
    #[getter]
    fn languages(&self) -> Option<(String, String)> {
        let Opened { first, translator, .. } = &*self.opened;
        let from = first.as_ref().unwrap_or(translator).languages()?.from.clone();
        Some((from, translator.languages()?.to.clone()))
    }

    /// Remarks on the choices made while opening.
    #[getter]
    fn notes(&self) -> Vec<&str> {
        let Opened { first, translator, .. } = &*self.opened;
        let models = first.iter().chain([translator]);
        models.flat_map(|model| &model.model().notes).map(String::as_str).collect()
    }

    /// The number of symbols that the model puts around the tokens of a source.
    #[getter]
    fn source_frame(&self) -> usize {
        let model = self.opened.first.as_ref().unwrap_or(&self.opened.translator).model();
        model.members[0].architecture.source_frame().len()
    }

    /// The tokens of a text to translate.
    fn tokenize(&self, text: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let text = options::text(text, || "text".to_owned())?;
        let source = &self.opened.first.as_ref().unwrap_or(&self.opened.translator).model().source;
        let ids = source.encode(&text).ids.into_iter();
        Ok(ids.map(|id| source.token(id).to_owned()).collect())
    }

    /// The text of tokens of a translation.
    fn detokenize(&self, tokens: Vec<String>) -> String {
        let target = &self.opened.translator.model().target;
        let id = |token: &String| target.id(token).or(target.unk());
        target.decode(&tokens.iter().filter_map(id).collect::<Vec<u32>>())
    }

    /// Translates texts.
    fn translate(
        &self,
        py: Python<'_>,
        texts: &Bound<'_, PyList>,
        options: &Bound<'_, PyDict>,
        prefixes: Option<Vec<Option<String>>>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<String>> {
        let lines = lines(texts, prefixes)?;
        let options = self.opened.options(options)?;
        self.translate_lines(py, lines, &options, progress, |_, t| t.text().to_owned())
    }

    /// Translates texts, with all that is known of each translation.
    fn translate_full<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyList>,
        options: &Bound<'py, PyDict>,
        prefixes: Option<Vec<Option<String>>>,
        progress: Option<&Bound<'py, PyAny>>,
        attention: bool,
    ) -> PyResult<Vec<Full>> {
        let lines = lines(texts, prefixes)?;
        let options = self.opened.options(options)?;
        let want = Want::new(&options.second, attention);
        self.translate_lines(py, lines, &options, progress, |s, t| Full::new(s, &t, want))
    }

    /// Translates the strings of an Arrow array or stream of arrays. What is null stays null.
    fn translate_arrow(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Strings> {
        let strings = arrow::read(array)?;
        let options = self.opened.options(options)?;
        let lines = strings.iter().flatten().map(|text| Line::new(text.as_str())).collect();
        let done =
            self.translate_lines(py, lines, &options, progress, |_, t| t.text().to_owned())?;
        let mut done = done.into_iter();
        Ok(Strings::new(strings.iter().map(|text| text.as_ref().and_then(|_| done.next()))))
    }

    /// Translates what an iterator gives, as it comes.
    fn iterate(
        &self,
        source: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Translations> {
        Translations::new(&self.opened, source, self.opened.options(options)?)
    }

    /// Translates a text, and gives the result to a future when it is there.
    fn submit(
        &self,
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
        prefix: Option<&str>,
        future: Py<PyAny>,
    ) -> PyResult<Ticket> {
        let text = options::text(text, || "text".to_owned())?;
        let options = self.opened.options(options)?.second;
        self.courier()?.submit(py, &text, prefix, &options, future)
    }

    /// The log-probabilities of translations, and of each of their tokens.
    fn score(
        &self,
        py: Python<'_>,
        pairs: &Bound<'_, PyList>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Vec<(f32, Vec<f32>)>> {
        if self.opened.first.is_some() {
            return Err(value("score: two models in a row have no score for a translation"));
        }
        let options = self.opened.options(options)?.second;
        let Opened { translator, workers, .. } = &*self.opened;
        let pair = |(number, pair): (usize, Bound<'_, PyAny>)| {
            let name = |side: &str| format!("{side} {number}");
            let (source, target) = (pair.get_item(0)?, pair.get_item(1)?);
            Ok((text(&source, || name("source"))?, text(&target, || name("target"))?))
        };
        let pairs = pairs.iter().enumerate().map(pair).collect::<PyResult<Vec<_>>>()?;
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(s, t)| (&**s, &**t)).collect();
        // Whether to stop is asked between batches.
        let count = workers.batch.sentences * workers.threads;
        let work = |stop: &AtomicBool| {
            let mut scores = Vec::with_capacity(pairs.len());
            for batch in pairs.chunks(count).take_while(|_| !stop.load(Ordering::Relaxed)) {
                let scored = translator.score_with(batch, &options, workers)?;
                scores.extend(scored.into_iter().map(|one| (one.score, one.token_scores)));
            }
            Ok(scores)
        };
        interruptible(py, work, |_| Ok(()))?.map_err(|error: Error| failed(error))
    }

    /// Translates a document. Its bytes with new texts, and what of its markup should be looked at.
    fn document<'py>(
        &self,
        py: Python<'py>,
        bytes: Vec<u8>,
        name: Option<&str>,
        format: Option<&str>,
        attributes: bool,
        options: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let format = match format {
            Some(format) => format.parse().map_err(|e| value(format!("format: {e}")))?,
            None => Format::detect(name, &bytes[..bytes.len().min(4096)]),
        };
        let mut reading = DocumentOptions::default();
        reading.attributes = attributes;
        let name = name.unwrap_or("document");
        let document = Document::read(bytes, format, &reading);
        let document = document.map_err(|error| failed(format!("{name}: {error}")))?;
        let mut options = self.opened.options(options)?;
        let has_markup = document.blocks().iter().any(|block| !block.spans.is_empty());
        for options in [Some(&mut options.second), options.first.as_mut()].into_iter().flatten() {
            options.n_best = 1;
            options.alignments |= has_markup;
        }
        let work = |stop: &AtomicBool| {
            let blocks = document.blocks();
            let mut translated = Vec::with_capacity(blocks.len());
            let lines = blocks.iter().map(|block| {
                let keep = block.keep();
                Line { keep, ..Line::new(block.text.as_str()) }
            });
            self.opened.stream(&options, stop, lines, |answer| {
                translated.push(BlockRequest::finish(&answer.translation));
                Ok(())
            })?;
            Ok(translated)
        };
        let translated =
            interruptible(py, work, |_| Ok(()))?.map_err(|error: Error| failed(error))?;
        Ok(PyBytes::new(py, &document.write(&translated).bytes))
    }

    /// Ends the service. Requests that are not done fail.
    fn close(&self, py: Python<'_>) {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        if let State::Running(courier) = state {
            py.detach(|| Courier::end(courier));
        }
    }
}
