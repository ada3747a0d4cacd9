//! A zip archive as bytes: its entries can be unpacked, and some of them replaced. All that is not replaced is copied as the bytes
//! it was, headers, dates, attributes and comments too.
//!
//! ```text
//! local header · packed data (· sizes) | … | directory: a record for each entry | end record · comment
//! ```
//!
//! The records of the directory are what counts. An entry goes from its local header to the next one, so that whatever a writer
//! puts behind the data is copied with it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::ops::Range;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::Error;

const LOCAL: &[u8] = b"PK\x03\x04";
const RECORD: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
/// The lengths of what is fixed in the three kinds of headers.
const LOCAL_LENGTH: usize = 30;
const RECORD_LENGTH: usize = 46;
const END_LENGTH: usize = 22;
const LONGEST_COMMENT: usize = 65_535;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Flags of an entry: it is encrypted; its sizes stand behind its data.
const ENCRYPTED: u16 = 1;
const SIZES_BEHIND: u16 = 8;

/// A part that is larger than this may not be more than so many times as large as its packed bytes. Real ones rarely
/// reach 100, a bomb reaches 1000.
const LARGE: usize = 16 << 20;
const HIGHEST_RATIO: usize = 200;

/// An archive.
#[derive(Debug)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The numbers of the entries by their names. One that is there twice has no number.
    names: HashMap<String, Option<usize>>,
    directory: Range<usize>,
    end_record: usize,
    /// The bytes that may still be unpacked.
    left: usize,
}

#[derive(Debug)]
struct Entry {
    name: String,
    flags: u16,
    method: u16,
    /// From its local header to the next entry or the directory.
    all: Range<usize>,
    data: Range<usize>,
    /// Its record in the directory.
    record: usize,
}

impl Archive {
    /// Reads the directory of an archive, of which at most `largest` bytes will be unpacked.
    pub(crate) fn new(bytes: Vec<u8>, largest: usize) -> Result<Archive, Error> {
        let end_record = find_end(&bytes).ok_or_else(|| {
            Error::whole("no zip archive, or only a part of one: the end record is missing")
        })?;
        let count = short(&bytes, end_record + 10);
        let (size, start) = (long(&bytes, end_record + 12), long(&bytes, end_record + 16));
        if count == 0xffff || size == 0xffff_ffff || start == 0xffff_ffff {
            return Err(Error::whole("a zip archive with 64-bit sizes (zip64) cannot be read"));
        }
        let directory = start..start + size;
        if directory.end > end_record {
            return Err(damaged("its directory is beyond its end"));
        }
        let mut entries = Vec::with_capacity(count);
        let mut at = directory.start;
        for _ in 0..count {
            let (entry, next) = read_record(&bytes, at, &directory)?;
            entries.push(entry);
            at = next;
        }
        set_ends(&mut entries, directory.start)?;
        let mut names = HashMap::new();
        for (number, entry) in entries.iter().enumerate() {
            let known = names.insert(entry.name.clone(), Some(number));
            if known.is_some() {
                names.insert(entry.name.clone(), None);
            }
        }
        Ok(Archive { bytes, entries, names, directory, end_record, left: largest })
    }

    /// The names of the entries, in the directory's order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The number of an entry.
    pub(crate) fn find(&self, name: &str) -> Result<Option<usize>, Error> {
        match self.names.get(name) {
            Some(None) => Err(damaged(&format!("there are two entries named {name}"))),
            found => Ok(found.copied().flatten()),
        }
    }

    /// An entry, unpacked. Sizes are counted, not believed.
    pub(crate) fn unpack(&mut self, number: usize) -> Result<Vec<u8>, Error> {
        let entry = &self.entries[number];
        let name = &entry.name;
        let packed = &self.bytes[entry.data.clone()];
        if entry.flags & ENCRYPTED != 0 {
            return Err(Error::whole("the archive is encrypted; save it without a password"));
        }
        let unpacked = match entry.method {
            STORED => packed.to_vec(),
            DEFLATED => {
                let mut most = self.left;
                if most > LARGE {
                    most = most.min(packed.len().saturating_mul(HIGHEST_RATIO).max(LARGE));
                }
                let mut unpacked = Vec::new();
                let mut decoder = DeflateDecoder::new(packed).take(most as u64 + 1);
                decoder
                    .read_to_end(&mut unpacked)
                    .map_err(|error| damaged(&format!("{name} cannot be unpacked ({error})")))?;
                if unpacked.len() > most {
                    let problem = format!("{name} has more than {most} bytes when unpacked");
                    return Err(Error::whole(problem));
                }
                unpacked
            }
            other => {
                let problem = format!("{name} is packed by method {other}; deflate was expected");
                return Err(Error::whole(problem));
            }
        };
        if checksum(&unpacked) != long(&self.bytes, entry.record + 16) as u32 {
            return Err(damaged(&format!("the checksum of {name} is wrong")));
        }
        let left = self.left.checked_sub(unpacked.len());
        self.left = left.ok_or_else(|| Error::whole("the archive's parts are too large"))?;
        Ok(unpacked)
    }

    /// The archive with new contents for some entries, in the order of their numbers.
    pub(crate) fn with(&self, new: &[(usize, Vec<u8>)]) -> Vec<u8> {
        if new.is_empty() {
            return self.bytes.clone();
        }
        let mut out = Vec::with_capacity(self.bytes.len());
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by_key(|&number| self.entries[number].all.start);
        let first =
            order.first().map_or(self.directory.start, |&first| self.entries[first].all.start);
        out.extend_from_slice(&self.bytes[..first]);
        // For each entry where it is now, and its record's fields if they are new.
        let mut places = vec![0; self.entries.len()];
        let mut headers: Vec<Option<Header>> = vec![None; self.entries.len()];
        for number in order {
            places[number] = out.len();
            let entry = &self.entries[number];
            match new.binary_search_by_key(&number, |(number, _)| *number) {
                Ok(found) => headers[number] = Some(self.replace(entry, &new[found].1, &mut out)),
                Err(_) => out.extend_from_slice(&self.bytes[entry.all.clone()]),
            }
        }
        let directory = out.len();
        out.extend_from_slice(&self.bytes[self.directory.start..]);
        let moved = |place: usize| place - self.directory.start + directory;
        for (number, entry) in self.entries.iter().enumerate() {
            let record = moved(entry.record);
            set_long(&mut out, record + 42, places[number]);
            if let Some(header) = &headers[number] {
                header.put(&mut out, record + 8, record + 16);
            }
        }
        set_long(&mut out, moved(self.end_record) + 16, directory);
        out
    }

    /// Writes an entry with new content: its name, date and method are as they were.
    fn replace(&self, entry: &Entry, content: &[u8], out: &mut Vec<u8>) -> Header {
        let packed = match entry.method {
            STORED => content.to_vec(),
            _ => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                // Writing to memory does not fail.
                let written = encoder.write_all(content).and_then(|()| encoder.finish());
                written.unwrap_or_default()
            }
        };
        let header = Header {
            flags: entry.flags & !SIZES_BEHIND,
            checksum: checksum(content),
            packed: packed.len(),
            unpacked: content.len(),
        };
        let at = out.len();
        out.extend_from_slice(&self.bytes[entry.all.start..entry.data.start]);
        header.put(out, at + 6, at + 14);
        out.extend_from_slice(&packed);
        header
    }
}

/// The fields that are new in the headers of an entry with new content.
#[derive(Debug, Clone)]
struct Header {
    flags: u16,
    checksum: u32,
    packed: usize,
    unpacked: usize,
}

impl Header {
    fn put(&self, out: &mut [u8], flags: usize, sizes: usize) {
        out[flags..flags + 2].copy_from_slice(&self.flags.to_le_bytes());
        out[sizes..sizes + 4].copy_from_slice(&self.checksum.to_le_bytes());
        set_long(out, sizes + 4, self.packed);
        set_long(out, sizes + 8, self.unpacked);
    }
}

/// Reads a record of the directory and the local header it points to. Gives the place of the next record.
fn read_record(bytes: &[u8], at: usize, directory: &Range<usize>) -> Result<(Entry, usize), Error> {
    let is_header = |at: usize, signature: &[u8], length: usize, end: usize| {
        at + length <= end && bytes[at..].starts_with(signature)
    };
    if !is_header(at, RECORD, RECORD_LENGTH, directory.end) {
        return Err(damaged("its directory has fewer records than it says"));
    }
    let lengths = [28, 30, 32].map(|field| short(bytes, at + field));
    let next = at + RECORD_LENGTH + lengths.iter().sum::<usize>();
    if next > directory.end {
        return Err(damaged("a name in its directory is too long"));
    }
    let name = &bytes[at + RECORD_LENGTH..at + RECORD_LENGTH + lengths[0]];
    let shown = String::from_utf8_lossy(name).into_owned();
    let local = long(bytes, at + 42);
    let packed = long(bytes, at + 20);
    if [local, packed, long(bytes, at + 24)].contains(&0xffff_ffff) {
        return Err(Error::whole(format!(
            "{shown} has 64-bit sizes (zip64), which cannot be read"
        )));
    }
    if !is_header(local, LOCAL, LOCAL_LENGTH, directory.start) {
        return Err(damaged(&format!("{shown} is not where its directory says")));
    }
    let own_name = short(bytes, local + 26);
    let data = local + LOCAL_LENGTH + own_name + short(bytes, local + 28);
    if data + packed > directory.start {
        return Err(damaged(&format!("{shown} goes beyond its end")));
    }
    if bytes[local + LOCAL_LENGTH..][..own_name] != *name {
        return Err(damaged(&format!("{shown} has another name at its place")));
    }
    let entry = Entry {
        name: shown,
        flags: short(bytes, at + 8) as u16,
        method: short(bytes, at + 10) as u16,
        all: local..data + packed,
        data: data..data + packed,
        record: at,
    };
    Ok((entry, next))
}

/// Lengthens each entry to where the next one begins.
fn set_ends(entries: &mut [Entry], directory: usize) -> Result<(), Error> {
    let mut order: Vec<&mut Entry> = entries.iter_mut().collect();
    order.sort_by_key(|entry| entry.all.start);
    let mut end = directory;
    for entry in order.into_iter().rev() {
        if entry.all.end > end {
            return Err(damaged(&format!("{} overlaps another entry", entry.name)));
        }
        entry.all.end = end;
        end = entry.all.start;
    }
    Ok(())
}

/// The end record: the last one with a comment that fits.
fn find_end(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(END_LENGTH)?;
    let first = last.saturating_sub(LONGEST_COMMENT);
    (first..=last).rev().find(|&at| {
        bytes[at..].starts_with(END) && at + END_LENGTH + short(bytes, at + 20) <= bytes.len()
    })
}

fn damaged(problem: &str) -> Error {
    Error::whole(format!("the zip archive is damaged: {problem}"))
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn long(bytes: &[u8], at: usize) -> usize {
    short(bytes, at) | short(bytes, at + 2) << 16
}

fn set_long(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
}
