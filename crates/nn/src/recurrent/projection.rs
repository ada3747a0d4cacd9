//! Products of embeddings. There are only as many different ones as there are words, so those of
//! the most frequent words can be computed once and for all.

use super::cell::Part;
use crate::backend::{Backend, Embed};
use std::sync::Arc;

/// An embedding table and what is done with its rows.
pub(crate) struct Projection<B: Backend> {
    table: Arc<B::Table>,
    part: Part<B>,
    /// The results of the first words, and last that of a zero vector.
    known: Option<Known<B>>,
}

struct Known<B: Backend> {
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
    /// Words that are known.
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

/// Words computed ahead at a time.
const CHUNK: usize = 256;

impl<B: Backend> Projection<B> {
    /// With the results of the first `ahead` of `words` words computed ahead.
    pub(crate) fn new(
        backend: &B,
        table: Arc<B::Table>,
        part: Part<B>,
        ahead: usize,
        words: usize,
    ) -> Self {
        let mut projection = Projection { table, part, known: None };
        let ahead = ahead.min(words);
        if ahead > 0 {
            projection.known = Some(projection.compute(backend, ahead));
        }
        projection
    }

    fn compute(&self, backend: &B, words: usize) -> Known<B> {
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
        Known { rows, words: words as u32 }
    }

    /// Bytes of what was computed ahead.
    pub(crate) fn bytes(&self, backend: &B) -> usize {
        let size = |known: &Known<B>| (known.words as usize + 1) * backend.width(&known.rows) * 4;
        self.known.as_ref().map_or(0, size)
    }

    /// The products of some words; none is a zero vector. Of words that only the device knows nobody can say
    /// whether theirs were computed ahead.
    pub(crate) fn run(
        &self,
        backend: &B,
        words: Words<'_>,
        out: &mut B::Rows,
        scratch: &mut ProjectionScratch<B>,
    ) {
        let follow = words.follows.iter().any(Option::is_some);
        let Some(known) = self.known.as_ref().filter(|_| !follow) else {
            return self.run_all(backend, words, out, scratch);
        };
        let ids = words.ids;
        scratch.at.clear();
        scratch.unknown.clear();
        scratch.ids.clear();
        for (i, id) in ids.iter().enumerate() {
            let word = id.unwrap_or(known.words);
            scratch.at.push(word.min(known.words));
            if word > known.words || (word == known.words && id.is_some()) {
                scratch.unknown.push(i as u32);
                scratch.ids.push(*id);
            }
        }
        backend.gather(&known.rows, &scratch.at, out);
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
