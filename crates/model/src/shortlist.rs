//! Lexical shortlists: the target words worth scoring for a given source sentence.
//!
//! A table lists likely translations of every source word. The output layer then runs over a few
//! hundred words instead of the whole vocabulary, and the softmax over those only.

use std::path::{Path, PathBuf};

use peregrine_formats::Source;
use peregrine_text::Tokenizer;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::{ModelError, files};

/// The length of a selection is rounded up to this, as Marian does in every build.
const MULTIPLE: usize = 8;

/// A table, and the rules by which words are selected from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortlist {
    rules: Rules,
    /// Where the list of each source word begins in `lists`, and one end.
    offsets: Vec<u32>,
    lists: Vec<u32>,
}

/// What a selection needs besides the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// Words 0 .. first are always selected.
    pub first: usize,
    /// Words of the target side.
    pub target_size: usize,
    /// The end symbol, always selected.
    pub end: u32,
    /// Whether source ids are target ids too and stand for themselves.
    pub include_source: bool,
}

/// Where a shortlist comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ShortlistChoice {
    /// From the file the model's configuration names, if it names one.
    #[default]
    Auto,
    /// None, whatever the configuration says.
    Off,
    /// From this file.
    File(ShortlistFile),
}

/// A shortlist file and Marian's settings for reading it. A binary file (`.bin`) was made with its
/// own settings; there the numbers are not used.
#[derive(Debug, Clone, PartialEq)]
pub struct ShortlistFile {
    /// Lines `target source probability`, or Marian's binary form.
    pub path: PathBuf,
    /// How many first target words are always selected.
    pub first: usize,
    /// How many translations of a word are kept.
    pub best: usize,
    /// Only translations more probable than this.
    pub prune: f32,
    /// Amun's reading: lines with tabs are `source target probability`, and only words that are not
    /// selected anyway count as translations.
    pub amun: bool,
}

impl ShortlistFile {
    /// A file with Marian's defaults.
    pub fn new(path: impl Into<PathBuf>) -> ShortlistFile {
        ShortlistFile { path: path.into(), first: 100, best: 100, prune: 0.0, amun: false }
    }

    pub(crate) fn is_binary(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "bin")
    }
}

impl Shortlist {
    /// From the translations of every source word, `first` words always selected.
    pub fn new(lists: Vec<Vec<u32>>, first: usize, target_size: usize, end: u32) -> Shortlist {
        let exists = |&word: &u32| (word as usize) < target_size;
        let lists = lists.into_iter().map(|list| list.into_iter().filter(exists).collect());
        let (offsets, lists) = flatten(lists.collect());
        let rules = Rules { first, target_size, end, include_source: false };
        Shortlist { rules, offsets, lists }
    }

    /// The target words for a sentence, sorted, from its source ids with the frame around them.
    pub fn select(&self, framed_source_ids: &[u32]) -> Vec<u32> {
        let mut selected = Selection::new(self.rules.target_size);
        for id in 0..self.rules.first.min(self.rules.target_size) {
            selected.add(id as u32);
        }
        selected.add(self.rules.end);
        for &source in framed_source_ids {
            if self.rules.include_source {
                selected.add(source);
            }
            for &target in self.list(source) {
                selected.add(target);
            }
        }
        let mut filler = self.rules.first;
        while !selected.count.is_multiple_of(MULTIPLE) && filler < self.rules.target_size {
            selected.add(filler as u32);
            filler += 1;
        }
        selected.into_ids()
    }

    /// The translations of a source word; none for words beyond the table.
    pub fn list(&self, source: u32) -> &[u32] {
        let at = source as usize;
        match (self.offsets.get(at), self.offsets.get(at + 1)) {
            (Some(&begin), Some(&end)) => &self.lists[begin as usize..end as usize],
            _ => &[],
        }
    }

    /// How many words are always selected.
    pub fn first(&self) -> usize {
        self.rules.first
    }

    pub(crate) fn describe(&self) -> serde_json::Value {
        serde_json::json!({
            "first": self.rules.first,
            "include_source": self.rules.include_source,
            "source_words": self.offsets.len().saturating_sub(1),
            "entries": self.lists.len(),
        })
    }

    /// The rules, offsets and lists, for saving.
    pub(crate) fn parts(&self) -> (&Rules, &[u32], &[u32]) {
        (&self.rules, &self.offsets, &self.lists)
    }

    /// A table from its parts; every offset and id is checked.
    pub(crate) fn from_parts(
        path: &Path,
        rules: Rules,
        offsets: Vec<u32>,
        lists: Vec<u32>,
    ) -> Result<Shortlist, ModelError> {
        let rises = offsets.is_sorted() && offsets.first().is_none_or(|&first| first == 0);
        if !rises || offsets.last().is_some_and(|&last| last as usize > lists.len()) {
            return Err(ModelError::invalid(path, "the shortlist's offsets do not fit its lists"));
        }
        let size = rules.target_size;
        let ids = lists.iter().chain([&rules.end]);
        if let Some(id) = ids.copied().find(|&id| id as usize >= size) {
            let problem = format!("the shortlist names target word {id}, the model has {size}");
            return Err(ModelError::invalid(path, problem));
        }
        Ok(Shortlist { rules, offsets, lists })
    }

    /// Reads a file for a model. `shared` tells whether both sides have one vocabulary.
    pub(crate) fn read(
        file: &ShortlistFile,
        source: &Tokenizer,
        target: &Tokenizer,
        shared: bool,
    ) -> Result<Shortlist, ModelError> {
        let rules = Rules {
            first: file.first,
            target_size: target.size(),
            end: target.eos(),
            include_source: shared,
        };
        if file.is_binary() {
            return read_binary(&file.path, rules);
        }
        let table = read_text(file, source, target)?;
        let (offsets, lists) = flatten(table);
        Shortlist::from_parts(&file.path, rules, offsets, lists)
    }
}

fn read_binary(path: &Path, mut rules: Rules) -> Result<Shortlist, ModelError> {
    let stored = peregrine_formats::shortlist::read(&Source::open(path)?)?;
    rules.first = stored.first;
    let (mut offsets, mut lists) = (vec![0], Vec::new());
    for word in 0..offset(path, stored.source_words())? {
        lists.extend(stored.list(word));
        offsets.push(offset(path, lists.len())?);
    }
    Shortlist::from_parts(path, rules, offsets, lists)
}

fn offset(path: &Path, length: usize) -> Result<u32, ModelError> {
    u32::try_from(length).map_err(|_| ModelError::invalid(path, "the shortlist is too long"))
}

type Table = FxHashMap<u32, FxHashMap<u32, f32>>;

fn read_text(
    file: &ShortlistFile,
    source: &Tokenizer,
    target: &Tokenizer,
) -> Result<Vec<Vec<u32>>, ModelError> {
    let bytes = files::read(&file.path)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let what = "compressed shortlists are not supported; unpack it first";
        return Err(ModelError::unsupported(&file.path, what));
    }
    let id = |side: &Tokenizer, word: &str| side.id(word).or_else(|| side.unk());
    let mut table = Table::default();
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        // Blanks of other scripts may be part of words.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (words, probability) = match fields[..] {
            [] => continue,
            [from, to, probability] if file.amun && line.contains('\t') => {
                ((to, from), probability.parse::<f32>().ok())
            }
            [to, from, probability] => ((to, from), probability.parse::<f32>().ok()),
            _ => (("", ""), None),
        };
        let Some(probability) = probability else {
            let problem = format!("line {}: expected `target source probability`", number + 1);
            return Err(ModelError::invalid(&file.path, problem));
        };
        let (to, from) = words;
        if to != "NULL"
            && from != "NULL"
            && let (Some(from), Some(to)) = (id(source, from), id(target, to))
        {
            table.entry(from).or_default().insert(to, probability);
        }
    }
    Ok(prune(table, source.size(), file))
}

/// The best translations of every source word, by probability and then id, falling.
fn prune(table: Table, source_size: usize, file: &ShortlistFile) -> Vec<Vec<u32>> {
    let mut lists = vec![Vec::new(); source_size];
    for (source, translations) in table {
        let mut kept: Vec<(f32, u32)> = translations
            .into_iter()
            .map(|(target, probability)| (probability, target))
            .filter(|(probability, _)| *probability > file.prune)
            .filter(|(_, target)| !file.amun || *target as usize >= file.first)
            .collect();
        kept.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        kept.truncate(file.best);
        if let Some(list) = lists.get_mut(source as usize) {
            *list = kept.into_iter().map(|(_, target)| target).collect();
        }
    }
    lists
}

/// Text tables are far below 2^32 entries: each took a line.
fn flatten(lists: Vec<Vec<u32>>) -> (Vec<u32>, Vec<u32>) {
    let (mut offsets, mut flat) = (vec![0], Vec::new());
    for list in lists {
        flat.extend(list);
        offsets.push(flat.len() as u32);
    }
    (offsets, flat)
}

/// A set of words as a bit each: vocabularies are small, and the ids come out sorted.
struct Selection {
    bits: Vec<u64>,
    size: usize,
    count: usize,
}

impl Selection {
    fn new(size: usize) -> Selection {
        Selection { bits: vec![0; size.div_ceil(64)], size, count: 0 }
    }

    fn add(&mut self, id: u32) {
        let id = id as usize;
        if id >= self.size {
            return;
        }
        let (word, bit) = (&mut self.bits[id / 64], 1 << (id % 64));
        self.count += usize::from(*word & bit == 0);
        *word |= bit;
    }

    fn into_ids(self) -> Vec<u32> {
        let mut ids = Vec::with_capacity(self.count);
        for (index, &word) in self.bits.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                ids.push(index as u32 * 64 + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortlist(include_source: bool) -> Shortlist {
        let rules = Rules { first: 3, target_size: 20, end: 7, include_source };
        let offsets = vec![0, 2, 2, 4];
        Shortlist::from_parts(Path::new("lex"), rules, offsets, vec![9, 11, 19, 9]).unwrap()
    }

    #[test]
    fn a_selection_is_sorted_and_filled_up() {
        // 0 1 2 (first), 7 (end), 9 11 19 (lists), then 3 to make eight.
        assert_eq!(shortlist(false).select(&[0, 2, 0]), [0, 1, 2, 3, 7, 9, 11, 19]);
        // With the source words 0, 2 and 15 it is eight already.
        assert_eq!(shortlist(true).select(&[0, 2, 15]), [0, 1, 2, 7, 9, 11, 15, 19]);
    }

    #[test]
    fn words_beyond_the_table_have_no_list() {
        assert_eq!(shortlist(false).select(&[99, u32::MAX]).len(), 8);
        assert!(shortlist(false).list(u32::MAX).is_empty());
    }

    #[test]
    fn filling_ends_with_the_vocabulary() {
        let rules = Rules { first: 3, target_size: 5, end: 0, include_source: false };
        let short = Shortlist::from_parts(Path::new("lex"), rules, vec![0], vec![]).unwrap();
        assert_eq!(short.select(&[0]), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let rules = Rules { first: 3, target_size: 20, end: 7, include_source: false };
        let error = |offsets: &[u32], lists: &[u32], rules: &Rules| {
            Shortlist::from_parts(Path::new("lex"), rules.clone(), offsets.into(), lists.into())
                .unwrap_err()
                .to_string()
        };
        assert!(error(&[0, 3], &[1, 2], &rules).contains("offsets"));
        assert!(error(&[0, 2, 1], &[1, 2], &rules).contains("offsets"));
        assert!(error(&[1, 2], &[1, 2], &rules).contains("offsets"));
        assert!(error(&[0, 2], &[1, 20], &rules).contains("target word 20"));
        assert!(error(&[], &[], &Rules { end: 20, ..rules.clone() }).contains("target word 20"));
    }
}
