//! One model, or two in a row: the options of a call, and lines that are translated as they come.

use std::sync::atomic::AtomicBool;

use peregrine::{Answer, Error, GlossaryMode, Legs, Line, Options, Pivot, StreamOptions, Summary};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::open::Opened;
use crate::options;

/// The options of one model, or of two in a row.
pub(crate) struct Both {
    pub(crate) first: Option<Options>,
    pub(crate) second: Options,
}

impl Opened {
    /// The options of a call.
    pub(crate) fn options(&self, given: &Bound<'_, PyDict>) -> PyResult<Both> {
        let mut second = options::options(&self.translator, self.bare, given)?;
        let Some(first) = &self.first else { return Ok(Both { first: None, second }) };
        let first = options::options(first, self.bare, given)?.with_n_best(1).keeping_terms();
        let first = first.with_alignments(second.alignments);
        second.glossary_mode = GlossaryMode::Mask;
        Ok(Both { first: Some(first), second })
    }

    /// Translates lines as they come, until they end or `stop` is set.
    pub(crate) fn stream<T: Send>(
        &self,
        options: &Both,
        stop: &AtomicBool,
        lines: impl Iterator<Item = Line<T>> + Send,
        write: impl FnMut(Answer<T>) -> Result<(), Error>,
    ) -> Result<Summary, Error> {
        let lines = lines.map(Ok);
        let mut second = StreamOptions::new(options.second.clone(), self.workers.clone());
        second.stop = Some(stop);
        let (Some(model), Some(first)) = (&self.first, &options.first) else {
            return self.translator.stream(lines, &second, write);
        };
        let workers = model.workers().with_threads(self.workers.threads);
        let workers = workers.with_memory(self.workers.memory);
        let mut first = StreamOptions::new(first.clone(), workers);
        first.stop = Some(stop);
        Pivot::new(model, &self.translator).stream(lines, &Legs { first, second }, write)
    }
}
