//! Pre-computed embeddings: memoised products of word embeddings. There are only as many different ones as
//! there are words, so those of the most frequent words are computed when the model is prepared (Devlin's
//! memoisation); rarer words are computed as they come.

use super::cell::Part;
use crate::backend::{Backend, Embed};
use std::sync::Arc;

/// An embedding table and a dense layer over its rows.
pub(crate) struct Projection<B: Backend> {
    table: Arc<B::Table>,
    part: Part<B>,
    /// The memoised results of the first words; the last row is that of a zero vector.
    memoised: Option<Memoised<B>>,
}

struct Memoised<B: Backend> {
    rows: B::Rows,
    words: u32,
}

/// The words that are looked up: see [`Embed`].
#[derive(Clone, Copy)]
pub(crate) struct Words<'a> {
    pub(crate) ids: &'a [Option<u32>],
    pub(crate) follows: &'a [Option<u32>],
}

impl<'a> Words<'a> {
    /// Words that the host has.
    pub(crate) fn known(ids: &'a [Option<u32>]) -> Words<'a> {
        Words { ids, follows: &[] }
    }
}

/// Working memory.
pub(crate) struct ProjectionScratch<B: Backend> {
    embedded: B::Rows,
    rest: B::Rows,
    at: Vec<u32>,
    unknown: Vec<u32>,
    ids: Vec<Option<u32>>,
    zeros: Vec<u32>,
}

impl<B: Backend> ProjectionScratch<B> {
    pub(crate) fn new(backend: &B) -> Self {
        ProjectionScratch {
            embedded: backend.rows(),
            rest: backend.rows(),
            at: Vec::new(),
            unknown: Vec::new(),
            ids: Vec::new(),
            zeros: Vec::new(),
        }
    }
}

/// Words memoised at a time.
const CHUNK: usize = 256;

impl<B: Backend> Projection<B> {
    /// A projection with memoised results of the first `memoised` of `words` words.
    pub(crate) fn new(
        backend: &B,
        table: Arc<B::Table>,
        part: Part<B>,
        memoised: usize,
        words: usize,
    ) -> Self {
        let mut projection = Projection { table, part, memoised: None };
        let memoised = memoised.min(words);
        if memoised > 0 {
            projection.memoised = Some(projection.memoise(backend, memoised));
        }
        projection
    }

    fn memoise(&self, backend: &B, words: usize) -> Memoised<B> {
        let mut scratch = ProjectionScratch::new(backend);
        let (mut rows, mut chunk) = (backend.rows(), backend.rows());
        let ids: Vec<Option<u32>> = (0..words as u32).map(Some).chain([None]).collect();
        let numbers: Vec<u32> = (0..ids.len() as u32).collect();
        for (ids, at) in ids.chunks(CHUNK).zip(numbers.chunks(CHUNK)) {
            self.run_all(backend, Words::known(ids), &mut chunk, &mut scratch);
            if at[0] == 0 {
                let width = backend.width(&chunk);
                backend.resize(&mut rows, words + 1, width);
            }
            backend.scatter(&chunk, at, 0, &mut rows);
        }
        Memoised { rows, words: words as u32 }
    }

    /// Bytes of the memoised results.
    pub(crate) fn bytes(&self, backend: &B) -> usize {
        let size = |memoised: &Memoised<B>| {
            (memoised.words as usize + 1) * backend.width(&memoised.rows) * 4
        };
        self.memoised.as_ref().map_or(0, size)
    }

    /// The products of some words; none is a zero vector. Words that only the device has are computed, as the host
    /// cannot tell whether they are memoised.
    pub(crate) fn run(
        &self,
        backend: &B,
        words: Words<'_>,
        out: &mut B::Rows,
        scratch: &mut ProjectionScratch<B>,
    ) {
        let follow = words.follows.iter().any(Option::is_some);
        let Some(memoised) = self.memoised.as_ref().filter(|_| !follow) else {
            return self.run_all(backend, words, out, scratch);
        };
        let ids = words.ids;
        scratch.at.clear();
        scratch.unknown.clear();
        scratch.ids.clear();
        for (i, id) in ids.iter().enumerate() {
            let word = id.unwrap_or(memoised.words);
            scratch.at.push(word.min(memoised.words));
            if word > memoised.words || (word == memoised.words && id.is_some()) {
                scratch.unknown.push(i as u32);
                scratch.ids.push(*id);
            }
        }
        backend.gather(&memoised.rows, &scratch.at, out);
        if !scratch.unknown.is_empty() {
            let (ids, mut rest) = (
                std::mem::take(&mut scratch.ids),
                std::mem::replace(&mut scratch.rest, backend.rows()),
            );
            self.run_all(backend, Words::known(&ids), &mut rest, scratch);
            backend.scatter(&rest, &scratch.unknown, 0, out);
            (scratch.ids, scratch.rest) = (ids, rest);
        }
    }

    fn run_all(
        &self,
        backend: &B,
        words: Words<'_>,
        out: &mut B::Rows,
        scratch: &mut ProjectionScratch<B>,
    ) {
        embed(backend, &self.table, words, &mut scratch.embedded, &mut scratch.zeros);
        self.part.run(backend, &scratch.embedded, out);
    }
}

/// Embeddings as they are.
pub(crate) fn embed<B: Backend>(
    backend: &B,
    table: &B::Table,
    Words { ids, follows }: Words<'_>,
    out: &mut B::Rows,
    zeros: &mut Vec<u32>,
) {
    zeros.clear();
    zeros.resize(ids.len(), 0);
    backend.embed(table, Embed { ids, follows, scale: 1.0, at: zeros, positions: None }, out);
}
