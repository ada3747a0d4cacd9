//! Lexical shortlists: the target words worth scoring for a given source sentence.
//!
//! A table lists likely translations of every source word. The output layer and the softmax are
//! then computed over a few hundred words instead of the whole vocabulary. Phrases of source words
//! may have lists of their own, as in CTranslate2's vocabulary maps.
//!
//! | file | what it does |
//! |---|---|
//! | `file.rs` | reads tables: text, Marian's binary form, `vmap.txt` |
//! | `phrases.rs` | lists of phrases |
//! | `learn.rs` | makes a table from parallel text |
//! | `write.rs` | writes one |

mod file;
mod learn;
mod phrases;
mod write;

use std::path::{Path, PathBuf};

use peregrine_text::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::shortlist::phrases::Phrases;
use crate::{ModelError, belonging};

pub use learn::{Learning, Lexicon, ParallelText, Progress, learn};
pub use write::write_shortlist;

/// The length of a selection is rounded up to this, as Marian does in every build.
const MULTIPLE: usize = 8;

/// A table and the rules by which target words are selected from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortlist {
    rules: Rules,
    /// The start of each source word's list in `lists`, and the end of the last.
    offsets: Vec<u32>,
    lists: Vec<u32>,
    phrases: Phrases,
}

/// The rules of a selection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// Words 0 .. first are always selected.
    pub first: usize,
    /// Size of the target vocabulary.
    pub target_size: usize,
    /// The end symbol, always selected.
    pub end: u32,
    /// Whether source ids are target ids too and select themselves.
    pub include_source: bool,
    /// More words that are always selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<u32>,
    /// The length of a selection is rounded up to a multiple of this.
    #[serde(default = "marian_multiple")]
    pub multiple: usize,
}

fn marian_multiple() -> usize {
    MULTIPLE
}

/// The stored form of a table.
pub(crate) struct Parts {
    pub rules: Rules,
    pub offsets: Vec<u32>,
    pub lists: Vec<u32>,
    /// Lists of phrases, see [`Phrases::to_numbers`].
    pub phrases: Vec<u32>,
}

/// Where a shortlist comes from.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum ShortlistChoice {
    /// The file that the model's configuration names, if it names one.
    #[default]
    Auto,
    /// No shortlist, whatever the configuration says.
    Off,
    /// The `vmap.txt` beside a CTranslate2 model, which that library uses only with `use_vmap`.
    Vmap,
    /// The given file.
    File(ShortlistFile),
}

/// A shortlist file and Marian's settings for reading it. The settings are not used for a binary
/// file (`.bin`), which contains its own, nor for a vocabulary map (`vmap*.txt` or `.vmap`).
#[derive(Debug, Clone, PartialEq)]
pub struct ShortlistFile {
    /// Lines `target source probability`, Marian's binary form, or CTranslate2's vocabulary map.
    pub path: PathBuf,
    /// The number of first target words that are always selected.
    pub first: usize,
    /// The most translations of a word.
    pub best: usize,
    /// The probability that a translation must exceed to be kept.
    pub prune: f32,
    /// Whether to read the file as Amun does: lines with tabs are `source target probability`, and
    /// words that are always selected do not count as translations.
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

    /// Whether the file name is that of a CTranslate2 vocabulary map.
    pub(crate) fn is_vmap(&self) -> bool {
        let ending = self.path.extension().unwrap_or_default();
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        ending == "vmap" || (ending == "txt" && name.starts_with("vmap"))
    }
}

impl Shortlist {
    /// A shortlist from the translations of every source word. The words 0 .. `first` are always
    /// selected.
    pub fn new(lists: Vec<Vec<u32>>, first: usize, target_size: usize, end: u32) -> Shortlist {
        let exists = |&word: &u32| (word as usize) < target_size;
        let lists = lists.into_iter().map(|list| list.into_iter().filter(exists).collect());
        let (offsets, lists) = flatten(lists.collect());
        let rules = Rules {
            first,
            target_size,
            end,
            include_source: false,
            always: Vec::new(),
            multiple: MULTIPLE,
        };
        Shortlist { rules, offsets, lists, phrases: Phrases::default() }
    }

    /// The target words for a sentence, sorted, from its source ids with the frame around them.
    pub fn select(&self, framed_source_ids: &[u32]) -> Vec<u32> {
        let mut selected = Selection::new(self.rules.target_size);
        for id in 0..self.rules.first.min(self.rules.target_size) {
            selected.add(id as u32);
        }
        selected.add(self.rules.end);
        for &id in &self.rules.always {
            selected.add(id);
        }
        for &source in framed_source_ids {
            if self.rules.include_source {
                selected.add(source);
            }
            for &target in self.list(source) {
                selected.add(target);
            }
        }
        self.phrases.each(framed_source_ids, |target| selected.add(target));
        let mut filler = self.rules.first;
        while !selected.count.is_multiple_of(self.rules.multiple.max(1))
            && filler < self.rules.target_size
        {
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

    /// The number of words that are always selected.
    pub fn first(&self) -> usize {
        self.rules.first
    }

    /// Number of source words in the table.
    pub fn source_words(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// A description of the table in JSON.
    pub fn describe(&self) -> serde_json::Value {
        serde_json::json!({
            "first": self.rules.first,
            "include_source": self.rules.include_source,
            "source_words": self.source_words(),
            "entries": self.lists.len(),
            "always": self.rules.always.len(),
            "phrases": self.phrases.len(),
        })
    }

    /// The table in its stored form.
    pub(crate) fn parts(&self) -> Parts {
        Parts {
            rules: self.rules.clone(),
            offsets: self.offsets.clone(),
            lists: self.lists.clone(),
            phrases: self.phrases.to_numbers(),
        }
    }

    /// A table from its parts; every offset and id is checked.
    pub(crate) fn from_parts(path: &Path, parts: Parts) -> Result<Shortlist, ModelError> {
        let Parts { rules, offsets, lists, phrases } = parts;
        let rises = offsets.is_sorted() && offsets.first().is_none_or(|&first| first == 0);
        if !rises || offsets.last().is_some_and(|&last| last as usize > lists.len()) {
            return Err(ModelError::invalid(path, "the shortlist's offsets do not fit its lists"));
        }
        let Some(phrases) = Phrases::from_numbers(&phrases) else {
            return Err(ModelError::invalid(path, "the shortlist's phrases are cut short"));
        };
        let size = rules.target_size;
        let ids = lists.iter().chain([&rules.end]).chain(&rules.always).chain(phrases.targets());
        if let Some(id) = ids.copied().find(|&id| id as usize >= size) {
            let problem = format!("the shortlist names target word {id}, the model has {size}");
            return Err(ModelError::invalid(path, problem));
        }
        Ok(Shortlist { rules, offsets, lists, phrases })
    }

    /// Reads a file for a model. `shared` tells whether both sides have one vocabulary. A table that
    /// seems to be for other vocabularies gets a note.
    pub(crate) fn read(
        file: &ShortlistFile,
        source: &Tokenizer,
        target: &Tokenizer,
        shared: bool,
        notes: &mut Vec<String>,
    ) -> Result<Shortlist, ModelError> {
        let rules = Rules {
            first: file.first,
            target_size: target.size(),
            end: target.eos(),
            include_source: shared,
            always: Vec::new(),
            multiple: MULTIPLE,
        };
        let parts = if file.is_binary() {
            let parts = file::read_binary(&file.path, rules)?;
            let lists = parts.offsets.len().saturating_sub(1);
            notes.extend(belonging::numbered_shortlist(&file.path, lists, source.size()));
            parts
        } else if file.is_vmap() {
            file::read_vmap(&file.path, rules, source, target, notes)?
        } else {
            let (offsets, lists) = flatten(file::read_text(file, source, target, notes)?);
            Parts { rules, offsets, lists, phrases: Vec::new() }
        };
        Shortlist::from_parts(&file.path, parts)
    }
}

/// Lists as offsets and one array. Text tables have far fewer than 2^32 entries, since each takes a
/// line.
fn flatten(lists: Vec<Vec<u32>>) -> (Vec<u32>, Vec<u32>) {
    let (mut offsets, mut flat) = (vec![0], Vec::new());
    for list in lists {
        flat.extend(list);
        offsets.push(flat.len() as u32);
    }
    (offsets, flat)
}

/// A set of words as a bit set: vocabularies are small, and the ids come out sorted.
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

    fn rules(target_size: usize, end: u32) -> Rules {
        let always = Vec::new();
        Rules { first: 3, target_size, end, include_source: false, always, multiple: MULTIPLE }
    }

    fn parts(rules: Rules, offsets: &[u32], lists: &[u32], phrases: &[u32]) -> Parts {
        Parts { rules, offsets: offsets.into(), lists: lists.into(), phrases: phrases.into() }
    }

    fn shortlist(include_source: bool) -> Shortlist {
        let rules = Rules { include_source, ..rules(20, 7) };
        let parts = parts(rules, &[0, 2, 2, 4], &[9, 11, 19, 9], &[]);
        Shortlist::from_parts(Path::new("lex"), parts).unwrap()
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
        let parts = parts(rules(5, 0), &[0], &[], &[]);
        let short = Shortlist::from_parts(Path::new("lex"), parts).unwrap();
        assert_eq!(short.select(&[0]), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let error = |offsets: &[u32], lists: &[u32], phrases: &[u32], rules: Rules| {
            Shortlist::from_parts(Path::new("lex"), parts(rules, offsets, lists, phrases))
                .unwrap_err()
                .to_string()
        };
        assert!(error(&[0, 3], &[1, 2], &[], rules(20, 7)).contains("offsets"));
        assert!(error(&[0, 2, 1], &[1, 2], &[], rules(20, 7)).contains("offsets"));
        assert!(error(&[1, 2], &[1, 2], &[], rules(20, 7)).contains("offsets"));
        assert!(error(&[0, 2], &[1, 20], &[], rules(20, 7)).contains("target word 20"));
        assert!(error(&[], &[], &[], rules(20, 20)).contains("target word 20"));
        assert!(error(&[], &[], &[2, 1, 2, 1, 20], rules(20, 7)).contains("target word 20"));
        assert!(error(&[], &[], &[2, 1, 2, 9, 3], rules(20, 7)).contains("phrases"));
    }

    #[test]
    fn words_in_a_row_have_lists_of_their_own() {
        let rules = Rules { first: 0, multiple: 1, always: vec![1], ..rules(20, 7) };
        // 2 3 -> 9; 3 4 5 -> 10 11
        let phrases = [2, 2, 3, 1, 9, 3, 3, 4, 5, 2, 10, 11];
        let parts = parts(rules, &[0], &[], &phrases);
        let list = Shortlist::from_parts(Path::new("lex"), parts).unwrap();
        assert_eq!(list.select(&[2, 4, 3]), [1, 7]);
        assert_eq!(list.select(&[6, 2, 3]), [1, 7, 9]);
        assert_eq!(list.select(&[2, 3, 4, 5]), [1, 7, 9, 10, 11]);
        let again = Shortlist::from_parts(Path::new("lex"), list.parts()).unwrap();
        assert_eq!(again, list);
    }
}
