//! Engines that need no model: one copies, one adds a word to every block, one shuffles words. And where documents come from.
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use peregrine_document::{Block, Document, Format, Kind, Link, Options, Translated, Written};

/// What [`appended`] adds.
pub(crate) const ADDED: &str = " zqx";

/// Reads a document, or says why not.
pub(crate) fn read(bytes: &[u8], format: Format, options: &Options) -> Document {
    Document::read(bytes.to_vec(), format, options).unwrap_or_else(|error| panic!("{error}"))
}

/// A document whose blocks went through an engine. Written part by part it is the same.
pub(crate) fn write(document: &Document, engine: impl FnMut(&Block) -> Translated) -> Written {
    let new: Vec<Translated> = document.blocks().iter().map(engine).collect();
    let written = document.write(&new);
    let mut parts = Written::default();
    let mut first = 0;
    for count in 1..=new.len() {
        if document.ready(count) {
            let part = document.write_part(first, &new[first..count]);
            parts.bytes.extend(part.bytes);
            parts.report.extend(part.report);
            first = count;
        }
    }
    if !new.is_empty() {
        assert!(parts == written, "{} is another document in parts", document.format());
    }
    written
}

/// A block as text with marks: `⟨⟩` round pairs, `·` for points, `{}` round what is kept.
pub(crate) fn shown(block: &Block) -> String {
    // Marks are put in from the end, so that offsets stay right. What ends at a place stands before what begins there.
    let mut marks: Vec<(usize, usize, usize, &str)> = Vec::new();
    for (number, span) in block.spans.iter().enumerate() {
        let (start, end) = (span.text.start, span.text.end);
        match span.kind {
            Kind::Pair => {
                marks.extend([(start, 1, number, "⟨"), (end, 0, usize::MAX - number, "⟩")])
            }
            Kind::Keep => {
                marks.extend([(start, 1, number, "{"), (end, 0, usize::MAX - number, "}")])
            }
            Kind::Point => marks.push((start, 1, number, "·")),
        }
    }
    marks.sort_unstable();
    let mut text = block.text.clone();
    for (at, _, _, mark) in marks.into_iter().rev() {
        text.insert_str(at, mark);
    }
    text
}

/// The words of a text, as an engine sees them: what must be kept is a word or part of one.
pub(crate) fn words(block: &Block) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut start = None;
    let kept = block.keep();
    let is_kept = |at: usize| {
        let place = kept.partition_point(|range| range.end <= at);
        kept.get(place).is_some_and(|range| range.start < at)
    };
    for (at, c) in block.text.char_indices().chain([(block.text.len(), ' ')]) {
        match (start, c.is_whitespace() && !is_kept(at)) {
            (None, false) => start = Some(at),
            (Some(from), true) => {
                words.push(from..at);
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// The block with a word behind it. No word is changed, but the block is written anew.
pub(crate) fn appended(block: &Block) -> Translated {
    let mut new = Translated::copy(block);
    new.text.push_str(ADDED);
    new
}

/// A small generator of numbers, the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % below.max(1) as u64) as usize
    }
}

/// How words are treated by [`scrambled`].
pub(crate) struct Scrambler {
    pub(crate) numbers: Numbers,
    /// Of a hundred words, how many are dropped and how many are there twice.
    pub(crate) dropped: usize,
    pub(crate) doubled: usize,
    /// Of a hundred things to be kept, how many are lost.
    pub(crate) lost: usize,
}

/// A translation with words in another order, some of them missing and some there twice; words get another ending, so
/// that none is a copy, and some links point to a wrong word.
pub(crate) fn scrambled(block: &Block, rules: &mut Scrambler) -> Translated {
    let source = words(block);
    let mut order: Vec<usize> = Vec::new();
    let keeps = block.keep();
    for (word, range) in source.iter().enumerate() {
        let place = keeps.partition_point(|keep| keep.end <= range.start);
        let kept = keeps.get(place).is_some_and(|keep| keep.start < range.end);
        let drop = if kept { rules.lost } else { rules.dropped };
        if rules.numbers.next(100) < drop {
            continue;
        }
        order.push(word);
        if !kept && rules.numbers.next(100) < rules.doubled {
            order.push(word);
        }
    }
    // Something is left of every block.
    if order.is_empty() && !source.is_empty() {
        order.push(0);
    }
    // Words change places, mostly with those near to them.
    for place in 0..order.len() {
        if rules.numbers.next(3) == 0 {
            let other = (place + rules.numbers.next(5)).min(order.len() - 1);
            order.swap(place, other);
        }
    }
    let mut new = Translated::default();
    for word in order {
        if !new.text.is_empty() {
            new.text.push(' ');
        }
        let from = &source[word];
        let start = new.text.len();
        new.text.push_str(&block.text[from.clone()]);
        let first = keeps.partition_point(|keep| keep.start < from.start);
        for keep in keeps[first..].iter().take_while(|keep| keep.end <= from.end).cloned() {
            let to = keep.start - from.start + start..keep.end - from.start + start;
            new.kept.push((keep, to));
        }
        if new.kept.last().is_none_or(|(_, to)| to.end <= start) && rules.numbers.next(2) == 0 {
            new.text.push_str("ão");
        }
        let target = start..new.text.len();
        let wrong = &source[rules.numbers.next(source.len())];
        let weight = if rules.numbers.next(10) == 0 { 0.6 } else { 0.2 };
        new.links.push(Link::new(from.clone(), target.clone(), 0.5));
        new.links.push(Link::new(wrong.clone(), target, weight));
    }
    new
}

/// How often each thing is in a list.
pub(crate) fn counted<T: std::hash::Hash + Eq>(
    list: impl IntoIterator<Item = T>,
) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for item in list {
        *counts.entry(item).or_default() += 1;
    }
    counts
}

/// A file of the reference data, if it is there.
pub(crate) fn shared(name: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/text-features");
    let text = std::fs::read_to_string(root.join(name)).ok();
    if text.is_none() {
        println!("skipped: no reference data ({name})");
    }
    text
}

/// The snippets of the reference data: name and text.
pub(crate) fn snippets() -> Vec<(String, String)> {
    let lines = shared("html-inputs.jsonl").unwrap_or_default();
    let snippet = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (field("id"), field("input"))
    };
    lines.lines().map(snippet).collect()
}

/// Files with these endings that are installed on this machine: documentation of the compiler, packages of Python,
/// sources of crates.
pub(crate) fn installed(endings: &[&str], most: usize) -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let roots = [
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/doc"),
        home.join(".rustup/toolchains"),
        home.join(".cargo/registry/src"),
        PathBuf::from("/usr/share/doc"),
        PathBuf::from("/usr/share/mime"),
        PathBuf::from("/usr/share/xml"),
        PathBuf::from("/usr/lib/python3"),
        PathBuf::from("/usr/local/lib"),
        PathBuf::from("/usr/share"),
        PathBuf::from("/usr/lib"),
        home.join(".pyenv/versions"),
    ];
    let mut found = Vec::new();
    for root in roots {
        let mut folders = vec![root];
        // A few from each folder, and of each root: they are alike.
        let mut left = most / 3 + 1;
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            // Links may lead round in a circle.
            entries.retain(|path| !path.is_symlink());
            entries.sort();
            let (inner, files): (Vec<PathBuf>, Vec<PathBuf>) =
                entries.into_iter().partition(|path| path.is_dir());
            let fits =
                |path: &PathBuf| path.extension().is_some_and(|e| endings.iter().any(|w| e == *w));
            let some: Vec<PathBuf> = files.into_iter().filter(fits).take(4.min(left)).collect();
            left -= some.len();
            found.extend(some);
            if left == 0 {
                break;
            }
            folders.extend(inner);
        }
    }
    found.truncate(most);
    if found.is_empty() {
        println!("skipped: no installed {endings:?} files");
    }
    found
}
