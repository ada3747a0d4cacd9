//! What the whole-program tests share: where reference outputs are, how they are read, and when a
//! translation counts as the same.
//!
//! The rule of comparison: a line is the *same* if its words are and its scores agree to
//! [`SCORE_TOLERANCE`]. A line may differ only if the test itself can show that it was a near-tie
//! ([`TIE`]); any other difference fails, whatever the share of lines that agree.

#![forbid(unsafe_code)]

pub mod json;
pub mod marian;
mod reference;
mod tally;

use std::io::Read;
use std::path::{Path, PathBuf};

use peregrine::{Compute, OpenOptions, Options, Request, Translation, Translator};

pub use reference::{optional, shared};
pub use tally::{Tally, Verdict, compare_greedy, compare_lists, is_close, same_choices};

/// Log-probabilities of sentences agree within this share of themselves; those of words, absolutely.
pub const SCORE_TOLERANCE: f32 = 1e-3;
/// Two choices whose scores differ by less than this share of themselves are a near-tie: the order in
/// which numbers are added may decide between them.
pub const TIE: f32 = 1e-4;

/// A path among the repository's own fixtures.
pub fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(path)
}

/// Whether whole test sets are wanted (`PEREGRINE_FULL=1`), not the first lines of them.
pub fn full() -> bool {
    std::env::var("PEREGRINE_FULL").is_ok_and(|value| value == "1")
}

/// All items with `PEREGRINE_FULL=1`, else the first `count`.
pub fn first<T>(items: &[T], count: usize) -> &[T] {
    if full() { items } else { &items[..count.min(items.len())] }
}

/// The bytes of a file, unpacked if its name ends in `.gz`.
pub fn read(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_none_or(|ending| ending != "gz") {
        return bytes;
    }
    let mut unpacked = Vec::new();
    flate2::read::MultiGzDecoder::new(&bytes[..])
        .read_to_end(&mut unpacked)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    unpacked
}

/// The lines of a text, cut at line feeds only; `path` may have `.gz` after its name.
pub fn lines(path: &Path) -> Vec<String> {
    let packed = PathBuf::from(format!("{}.gz", path.display()));
    let path = if path.exists() { path } else { &packed };
    let text = String::from_utf8_lossy(&read(path)).into_owned();
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line).to_owned()).collect()
}

/// Opens a model to be computed in float32, as the reference outputs were.
pub fn open(path: &Path, options: &OpenOptions) -> Translator {
    open_as(path, options, &Compute::float32())
}

/// Opens a model to be computed in a precision of one's choice.
pub fn open_as(path: &Path, options: &OpenOptions, compute: &Compute) -> Translator {
    let model = peregrine::model::open(&[path.to_path_buf()], options);
    let prepared = model.map_err(Into::into).and_then(|m| Translator::prepare(m, compute));
    prepared.unwrap_or_else(|e| panic!("{e}"))
}

/// A search that returns its whole beam, with scores.
pub fn beam(translator: &Translator, beam: usize, normalize: f32) -> Options {
    let mut options = translator.options().with_beam(beam);
    options.search.normalize = normalize;
    options.n_best = beam;
    options.scores = true;
    options
}

/// Translates lines.
pub fn translate(translator: &Translator, lines: &[String], options: &Options) -> Vec<Translation> {
    let requests: Vec<Request<'_>> = lines.iter().map(|line| Request::new(line)).collect();
    translate_requests(translator, &requests, options)
}

/// Translates requests, on both cores.
pub fn translate_requests(
    translator: &Translator,
    requests: &[Request<'_>],
    options: &Options,
) -> Vec<Translation> {
    let workers = translator.workers().with_threads(2);
    let translations = translator.translate_batch_with(requests, options, &workers, None);
    translations.unwrap_or_else(|e| panic!("{e}"))
}

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
