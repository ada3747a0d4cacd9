//! Byte-pair encoding codes as `subword-nmt` learns them: words to subwords, marked with `@@`.
//!
//! A codes file lists merges in order of priority. A word starts as its characters, the last one glued to
//! an end marker (format 0.2) or followed by it (0.1); the merge of highest priority is applied to all its
//! occurrences, and so on. Symbols are numbered at load so that a merge compares two integers.
//!
//! Glossaries and vocabulary thresholds, two options of the original tool, are not supported.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::Error;
use crate::error::check_size;

const END_OF_WORD: &str = "</w>";
const NONE: usize = usize::MAX;

/// A character that occurs in no merge.
const UNLISTED: u32 = u32::MAX;

/// A list of merges, ready to split words.
///
/// ```
/// let codes = peregrine_text::BpeCodes::from_bytes("codes", b"#version: 0.2\nl o\nlo w</w>\n")?;
/// assert_eq!(codes.segment("low"), ["low"]);
/// assert_eq!(codes.segment("slower"), ["s", "lo", "w", "e", "r"]);
/// # Ok::<(), peregrine_text::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BpeCodes {
    symbols: FxHashMap<String, u32>,
    merges: FxHashMap<(u32, u32), Merge>,
    /// Format 0.1: the end marker is a symbol of its own.
    separate_end: bool,
}

#[derive(Debug, Clone, Copy)]
struct Merge {
    rank: u32,
    result: u32,
}

impl BpeCodes {
    /// Reads a codes file of format 0.1 or 0.2; `name` is repeated in error messages.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        check_size(name, bytes)?;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            Error::new(name, format!("byte {}", error.valid_up_to()), "not UTF-8")
        })?;
        let mut codes = Self {
            symbols: FxHashMap::default(),
            merges: FxHashMap::default(),
            separate_end: true,
        };
        let mut lines = (1..).zip(text.trim_end_matches('\n').split('\n')).peekable();
        if let Some((_, version)) = lines.next_if(|(_, line)| line.starts_with("#version:")) {
            codes.separate_end = is_version_1(name, version)?;
        }
        for (number, line) in lines {
            if !text.is_empty() {
                codes
                    .add_merge(line)
                    .map_err(|problem| Error::new(name, format!("line {number}"), problem))?;
            }
        }
        Ok(codes)
    }

    /// Of a pair listed twice the first line counts.
    fn add_merge(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim_matches([' ', '\r']);
        let mut parts = line.split(' ');
        let (Some(left), Some(right), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(format!("expected two symbols, found {line:?}"));
        };
        if left.is_empty() || right.is_empty() {
            return Err(format!("expected two symbols, found {line:?}"));
        }
        let pair = (self.number(left), self.number(right));
        let result = self.number(&format!("{left}{right}"));
        let rank = self.merges.len() as u32;
        self.merges.entry(pair).or_insert(Merge { rank, result });
        Ok(())
    }

    fn number(&mut self, symbol: &str) -> u32 {
        if let Some(&number) = self.symbols.get(symbol) {
            return number;
        }
        let number = self.symbols.len() as u32;
        self.symbols.insert(symbol.to_owned(), number);
        number
    }

    /// The parts of a word, without `@@`.
    pub fn segment<'w>(&self, word: &'w str) -> Vec<&'w str> {
        self.split(word).map(|range| &word[range]).collect()
    }

    /// The parts of a word as byte ranges.
    pub(crate) fn split(&self, word: &str) -> impl Iterator<Item = Range<usize>> + use<> {
        let mut symbols = self.characters(word);
        // The original leaves words of a single character alone.
        if word.chars().nth(1).is_some() {
            Merger { codes: self, symbols: &mut symbols }.run();
        }
        // The end marker covers no bytes of the word.
        symbols.into_iter().map(|symbol| symbol.range).filter(|range| !range.is_empty())
    }

    fn characters(&self, word: &str) -> Vec<Symbol> {
        let mut symbols = Vec::with_capacity(word.len() + 1);
        for (start, character) in word.char_indices() {
            let range = start..start + character.len_utf8();
            let last = range.end == word.len() && !self.separate_end;
            let number = match last {
                true => self.look_up(&format!("{character}{END_OF_WORD}")),
                false => self.look_up(character.encode_utf8(&mut [0; 4])),
            };
            symbols.push(Symbol { number, range, previous: NONE, next: NONE, alive: true });
        }
        if self.separate_end {
            let range = word.len()..word.len();
            let number = self.look_up(END_OF_WORD);
            symbols.push(Symbol { number, range, previous: NONE, next: NONE, alive: true });
        }
        link(&mut symbols);
        symbols
    }

    fn look_up(&self, symbol: &str) -> u32 {
        self.symbols.get(symbol).copied().unwrap_or(UNLISTED)
    }
}

fn is_version_1(name: &str, line: &str) -> Result<bool, Error> {
    match line.trim_start_matches("#version:").trim() {
        "0.1" => Ok(true),
        "0.2" => Ok(false),
        other => {
            let problem = format!("version {other:?} of the codes, expected 0.1 or 0.2");
            Err(Error::new(name, "line 1", problem))
        }
    }
}

struct Symbol {
    number: u32,
    range: Range<usize>,
    previous: usize,
    next: usize,
    alive: bool,
}

fn link(symbols: &mut [Symbol]) {
    for index in 1..symbols.len() {
        symbols[index].previous = index - 1;
        symbols[index - 1].next = index;
    }
}

struct Merger<'c> {
    codes: &'c BpeCodes,
    symbols: &'c mut Vec<Symbol>,
}

/// A mergeable pair: priority, then position.
type Candidate = Reverse<(u32, usize)>;

impl Merger<'_> {
    /// Applies merges by priority. All occurrences of one merge are done, from left to right, before any
    /// pair they gave rise to is considered, even one of higher priority.
    fn run(mut self) {
        let mut agenda: BinaryHeap<Candidate> =
            (0..self.symbols.len()).filter_map(|left| self.candidate(left)).collect();
        let mut new = Vec::new();
        while let Some(&Reverse((rank, _))) = agenda.peek() {
            while let Some(&Reverse((next_rank, left))) = agenda.peek()
                && next_rank == rank
            {
                agenda.pop();
                self.merge(rank, left, &mut new);
            }
            agenda.extend(new.drain(..));
        }
        self.symbols.retain(|symbol| symbol.alive);
    }

    /// The pair that begins at `left`, if it is one of the merges.
    fn pair(&self, left: usize) -> Option<Merge> {
        let first = &self.symbols[left];
        let second = self.symbols.get(first.next)?;
        self.codes.merges.get(&(first.number, second.number)).copied()
    }

    fn candidate(&self, left: usize) -> Option<Candidate> {
        Some(Reverse((self.pair(left)?.rank, left)))
    }

    fn merge(&mut self, rank: u32, left: usize, new: &mut Vec<Candidate>) {
        // An earlier merge may have taken either side since the pair was found.
        if !self.symbols[left].alive {
            return;
        }
        let Some(merge) = self.pair(left).filter(|merge| merge.rank == rank) else { return };
        let right = self.symbols[left].next;
        let (end, after) = (self.symbols[right].range.end, self.symbols[right].next);
        self.symbols[right].alive = false;
        self.symbols[left].number = merge.result;
        self.symbols[left].range.end = end;
        self.symbols[left].next = after;
        if let Some(symbol) = self.symbols.get_mut(after) {
            symbol.previous = left;
        }
        new.extend(self.candidate(left));
        let before = self.symbols[left].previous;
        if before != NONE {
            new.extend(self.candidate(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_codes_name_the_line() {
        for (bytes, place) in [
            (&b"#version: 0.3\na b\n"[..], "line 1"),
            (b"a b\na b c\n", "line 2"),
            (b"a b\n\nc d\n", "line 2"),
            (b"a \xff\n", "byte 2"),
        ] {
            assert_eq!(BpeCodes::from_bytes("codes", bytes).unwrap_err().place, place);
        }
    }

    #[test]
    fn no_codes_split_into_characters() {
        for text in ["", "#version: 0.2\n"] {
            let codes = BpeCodes::from_bytes("codes", text.as_bytes()).unwrap();
            assert_eq!(codes.segment("añb"), ["a", "ñ", "b"]);
            assert_eq!(codes.segment("ñ"), ["ñ"]);
            assert!(codes.segment("").is_empty());
        }
    }

    #[test]
    fn a_new_pair_of_higher_priority_waits_for_the_current_merge() {
        // "b c" gives rise to "a bc", listed first; still both "b c" are merged before it.
        let codes = BpeCodes::from_bytes("codes", b"#version: 0.2\na bc\nabc b\nb c\n").unwrap();
        assert_eq!(codes.segment("abcbcx"), ["abc", "bc", "x"]);
    }
}
