//! Binary lexical shortlists of Marian (1.10 and later) and Bergamot: for each source word, the
//! target words it is likely to be translated by.
//!
//! ```text
//! 0    u64 magic = 0xF11A48D5013417F5
//! 8    u64 checksum of all that follows
//! 16   u64 first: the most frequent target words, allowed whatever the source is
//! 24   u64 best: the longest list of a source word
//! 32   u64 number of offsets = source words + 1
//! 40   u64 number of target words in all lists
//! 48   u64 offsets, the last one equal to the number of target words
//! …    u32 target words: those of source word i at offsets[i] .. offsets[i + 1], ascending
//! ```
//!
//! The checksum runs over u64 words; four bytes left over at the end are not part of it. Marian's
//! own check refuses files whose last source words have no list; they are correct and read here.

use std::path::Path;

use crate::reader::Reader;
use crate::writer::write_file;
use crate::{Error, Source};

const MAGIC: u64 = 0xF11A_48D5_0134_17F5;
/// An older format of the same suffix begins with this.
const OLD_MAGIC: u32 = 1_234_567_890;
const WORD: usize = size_of::<u64>();
const ID: usize = size_of::<u32>();

/// The target words that each source word may be translated by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortlist {
    /// How many of the first target words are always allowed.
    pub first: usize,
    /// The length of the longest list.
    pub best: usize,
    /// Where in `words` each list starts, and where the last one ends.
    offsets: Vec<usize>,
    words: Vec<u32>,
}

impl Shortlist {
    /// A shortlist from the target words of each source word.
    pub fn new(first: usize, best: usize, lists: &[Vec<u32>]) -> Self {
        let mut offsets = vec![0];
        let mut words = Vec::new();
        for list in lists {
            words.extend_from_slice(list);
            offsets.push(words.len());
        }
        Self { first, best, offsets, words }
    }

    /// The number of source words that have a list, which may be empty.
    pub fn source_words(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The target words of a source word; empty if the word is beyond the table.
    pub fn list(&self, source: u32) -> &[u32] {
        match self.offsets.get(source as usize..) {
            Some([start, end, ..]) => &self.words[*start..*end],
            _ => &[],
        }
    }
}

/// Reads a shortlist and verifies its checksum and every offset.
pub fn read(source: &Source) -> Result<Shortlist, Error> {
    let mut reader = Reader::new(source);
    let stated = read_magic(&mut reader)?;
    let computed = checksum(&source.bytes[reader.position()..]);
    let [first, best] = [reader.u64("the first words")?, reader.u64("the best words")?];
    let offset_count = reader.u64("the number of offsets")?;
    let word_count = reader.u64("the number of target words")?;
    let offsets = reader.take(offset_count.saturating_mul(WORD as u64), "the offsets")?;
    let words = reader.take(word_count.saturating_mul(ID as u64), "the target words")?;
    reader.expect_end("the last list")?;
    if stated != computed {
        let problem = format!("checksum {stated:#x}, expected {computed:#x}: the file is damaged");
        return Err(reader.error_at("byte 8", problem));
    }
    let offsets = offsets.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    Ok(Shortlist {
        first: bounded(&reader, first, "first")?,
        best: bounded(&reader, best, "best")?,
        offsets: check_offsets(&reader, offsets, word_count)?,
        words: words.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect(),
    })
}

/// Checks what kind of file it is and returns its checksum.
fn read_magic(reader: &mut Reader<'_>) -> Result<u64, Error> {
    match reader.u64("the magic number")? {
        MAGIC => reader.u64("the checksum"),
        magic if magic as u32 == OLD_MAGIC => {
            let problem = "a shortlist in an older format; make it again with marian-conv";
            Err(reader.error_at("byte 0", problem))
        }
        magic => {
            let problem =
                format!("magic number {magic:#x}, expected {MAGIC:#x}: not a binary shortlist");
            Err(reader.error_at("byte 0", problem))
        }
    }
}

/// Checks that a count of target words fits their 32-bit ids.
fn bounded(reader: &Reader<'_>, count: u64, what: &str) -> Result<usize, Error> {
    match u32::try_from(count) {
        Ok(count) => Ok(count as usize),
        Err(_) => Err(reader.error_at("header", format!("{what} is {count}, expected a count"))),
    }
}

/// Checks that offsets never decrease and that the last is the number of words in all lists.
fn check_offsets(
    reader: &Reader<'_>,
    offsets: impl Iterator<Item = u64>,
    words: u64,
) -> Result<Vec<usize>, Error> {
    let mut checked = Vec::new();
    let mut reached = 0;
    for (word, offset) in offsets.enumerate() {
        if offset < reached || offset > words {
            let problem = format!("offset {offset}, expected {reached} to {words}");
            return Err(reader.error_at(format!("source word {word}"), problem));
        }
        reached = offset;
        checked.push(offset as usize); // at most `words`, which are in memory
    }
    if checked.is_empty() || reached != words {
        let problem = format!("the lists end at {reached}, expected {words}");
        return Err(reader.error_at("last offset", problem));
    }
    Ok(checked)
}

fn checksum(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<WORD>();
    words.iter().fold(0, |hash, &word| hash ^ mixed(hash, u64::from_le_bytes(word)))
}

/// The term by which one more word changes the hash.
fn mixed(hash: u64, word: u64) -> u64 {
    const SALT: u64 = 0x9e37_79b9;
    word.wrapping_add(SALT).wrapping_add(hash << 6).wrapping_add(hash >> 2)
}

/// Writes a shortlist.
pub fn write(path: &Path, shortlist: &Shortlist) -> Result<(), Error> {
    let counts = [shortlist.first, shortlist.best, shortlist.offsets.len(), shortlist.words.len()];
    let mut body = Vec::new();
    for &number in counts.iter().chain(&shortlist.offsets) {
        body.extend((number as u64).to_le_bytes());
    }
    for word in &shortlist.words {
        body.extend(word.to_le_bytes());
    }
    write_file(path, |writer| {
        writer.u64(MAGIC)?;
        writer.u64(checksum(&body))?;
        writer.bytes(&body)
    })
}
