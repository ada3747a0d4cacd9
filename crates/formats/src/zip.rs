//! The directory of a ZIP archive, for `.npz` and PyTorch files.
//!
//! ```text
//! local header, data      for each member; the header is PK\3\4, 30 bytes, name, extra field
//! central directory       for each member PK\1\2, 46 bytes, name, extra field, comment
//! [ZIP64 end record]      PK\6\6, only when a field of the end record overflows
//! [ZIP64 locator]         PK\6\7, the offset of the ZIP64 end record
//! end record              PK\5\6, 22 bytes, comment; found by searching backwards
//! ```
//!
//! Sizes are taken from the central directory, because writers that stream (PyTorch) leave zeros
//! in the local headers. From a local header only the lengths of its name and extra field are
//! needed, which say where the data starts. A field of the directory that does not fit 32 bits is
//! all ones, and its value is in the extra field with the number 1.
//!
//! Members are only looked at, never extracted, so names such as `../x` mean nothing here.
//!
//! The directory has a CRC-32 of every member. [`verify`] checks the stored members on all cores,
//! without a copy; inflating checks the others. A checksum of 0 means none: PyTorch has an option
//! to leave them out.

use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;

use flate2::read::DeflateDecoder;

use crate::checksum::{self, Checked, crc32, damage};
use crate::reader::{Reader, quoted};
use crate::{Bytes, Error, Source};

pub(crate) const LOCAL_HEADER: u32 = u32::from_le_bytes(*b"PK\x03\x04");
pub(crate) const DIRECTORY_ENTRY: u32 = u32::from_le_bytes(*b"PK\x01\x02");
pub(crate) const END_RECORD: [u8; 4] = *b"PK\x05\x06";
const ZIP64_END_RECORD: u32 = u32::from_le_bytes(*b"PK\x06\x06");
const ZIP64_LOCATOR: u32 = u32::from_le_bytes(*b"PK\x06\x07");

/// The compression methods.
pub(crate) const STORED: u16 = 0;
const DEFLATED: u16 = 8;

const END_RECORD_LENGTH: usize = 22;
const ZIP64_LOCATOR_LENGTH: usize = 20;
const ZIP64_EXTRA_FIELD: u16 = 1;
const ENCRYPTED: u16 = 1;

/// A member of an archive.
pub(crate) struct Member {
    pub(crate) name: String,
    /// The data as stored in the file, perhaps compressed.
    data: Bytes,
    method: u16,
    checksum: u32,
    /// The length of the data once inflated.
    pub(crate) length: u64,
}

impl Member {
    /// A view of the data, if it is not compressed.
    pub(crate) fn stored(&self) -> Option<Bytes> {
        (self.method == STORED).then(|| self.data.clone())
    }

    /// The inflated data, which takes at most `length` bytes of memory. The error says what is
    /// wrong, without the place.
    pub(crate) fn inflate(&self) -> Result<Bytes, String> {
        if self.method != DEFLATED {
            let method = self.method;
            return Err(format!(
                "compression method {method}, expected stored (0) or deflated (8)"
            ));
        }
        let mut inflated = Vec::new();
        DeflateDecoder::new(&*self.data)
            .take(self.length.saturating_add(1))
            .read_to_end(&mut inflated)
            .map_err(|cause| format!("cannot be inflated: {cause}"))?;
        if inflated.len() as u64 != self.length {
            return Err(format!("inflates to another length than the {} it states", self.length));
        }
        match damage(crc32(&[], &inflated), self.checksum).filter(|_| self.checksum != 0) {
            Some(problem) => Err(problem),
            None => Ok(inflated.into()),
        }
    }
}

/// Verifies the checksums of all stored members.
pub(crate) fn verify(source: &Source, members: &[Member]) -> Result<(), Error> {
    let stated = members.iter().filter(|member| member.method == STORED && member.checksum != 0);
    let parts = stated.map(|member| Checked {
        name: member.name.clone(),
        head: Vec::new(),
        data: member.data.clone(),
        checksum: member.checksum,
    });
    checksum::verify(&source.path, parts.collect())
}

/// Verifies the checksums of an archive, as its readers do, and returns how many members have one;
/// `None` for a file that is not an archive. Compressed members count as verified, because a reader
/// has inflated them.
pub fn verify_archive(source: &Source) -> Result<Option<usize>, Error> {
    if !source.bytes.starts_with(&LOCAL_HEADER.to_le_bytes()) {
        return Ok(None);
    }
    let members = members(source)?;
    verify(source, &members)?;
    Ok(Some(members.iter().filter(|member| member.checksum != 0).count()))
}

/// All members of an archive, in the order of its directory.
pub(crate) fn members(source: &Source) -> Result<Vec<Member>, Error> {
    let mut reader = Reader::new(source);
    let directory = find_directory(&mut reader, &source.bytes)?;
    reader.seek(directory.offset, "the central directory")?;
    let (mut ranges, mut members) = (Vec::new(), Vec::new());
    for _ in 0..directory.entries {
        let (range, member) = locate(source, read_entry(&mut reader)?)?;
        ranges.push(range);
        members.push(member);
    }
    let names = || members.iter().map(|member| member.name.as_str());
    refuse_duplicates(&reader, names())?;
    refuse_overlaps(&reader, ranges.into_iter().zip(names()).collect())?;
    Ok(members)
}

/// The position of the central directory.
struct Directory {
    offset: u64,
    entries: u64,
}

fn find_directory(reader: &mut Reader<'_>, bytes: &[u8]) -> Result<Directory, Error> {
    let end = find_end_record(bytes)
        .ok_or_else(|| reader.error_at("", "not a ZIP archive, or cut short: no end record"))?;
    reader.seek(end as u64, "the end record")?;
    reader.take(10, "the end record")?;
    let entries = reader.u16("the number of members")?;
    reader.u32("the size of the directory")?;
    let offset = reader.u32("the offset of the directory")?;
    if entries != u16::MAX && offset != u32::MAX {
        return Ok(Directory { offset: offset.into(), entries: entries.into() });
    }
    let Some(locator) = end.checked_sub(ZIP64_LOCATOR_LENGTH) else {
        return Err(reader.error("no room for a ZIP64 locator before the end record"));
    };
    find_zip64_directory(reader, locator)
}

/// The offset of the last end record whose comment reaches exactly to the end of the file.
fn find_end_record(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(END_RECORD_LENGTH)?;
    let first = last.saturating_sub(u16::MAX.into());
    (first..=last).rev().find(|&offset| {
        let record = &bytes[offset..offset + END_RECORD_LENGTH];
        let comment = u16::from_le_bytes([record[20], record[21]]);
        record.starts_with(&END_RECORD) && offset + usize::from(comment) == last
    })
}

fn find_zip64_directory(reader: &mut Reader<'_>, locator: usize) -> Result<Directory, Error> {
    reader.seek(locator as u64, "the ZIP64 locator")?;
    expect_signature(reader, ZIP64_LOCATOR, "a ZIP64 locator")?;
    reader.u32("the disk of the ZIP64 end record")?;
    let offset = reader.u64("the offset of the ZIP64 end record")?;
    reader.seek(offset, "the ZIP64 end record")?;
    expect_signature(reader, ZIP64_END_RECORD, "a ZIP64 end record")?;
    reader.take(28, "the ZIP64 end record")?;
    let entries = reader.u64("the number of members")?;
    reader.u64("the size of the directory")?;
    let offset = reader.u64("the offset of the directory")?;
    Ok(Directory { offset, entries })
}

fn expect_signature(reader: &mut Reader<'_>, expected: u32, what: &str) -> Result<(), Error> {
    let position = reader.position();
    if reader.u32(what)? == expected {
        return Ok(());
    }
    Err(reader.error_at(format!("byte {position}"), format!("expected {what} here")))
}

/// An entry of the central directory.
struct Entry {
    name: String,
    method: u16,
    checksum: u32,
    compressed: u64,
    length: u64,
    header: u64,
}

fn read_entry(reader: &mut Reader<'_>) -> Result<Entry, Error> {
    expect_signature(reader, DIRECTORY_ENTRY, "a directory entry")?;
    reader.u32("the versions")?;
    let flags = reader.u16("the flags")?;
    let method = reader.u16("the compression method")?;
    reader.u32("the time")?;
    let checksum = reader.u32("the checksum")?;
    let compressed = reader.u32("the compressed size")?;
    let length = reader.u32("the size")?;
    let name_length = reader.u16("the length of the name")?;
    let extra_length = reader.u16("the length of the extra field")?;
    let comment_length = reader.u16("the length of the comment")?;
    reader.u64("the attributes")?;
    let header = reader.u32("the offset of the local header")?;
    let name = reader.take(name_length.into(), "the name")?;
    let name = match str::from_utf8(name) {
        Ok(name) => name.to_owned(),
        Err(_) => return Err(reader.error("the member's name is not UTF-8")),
    };
    if flags & ENCRYPTED != 0 {
        return Err(reader.error_at(name, "the member is encrypted"));
    }
    let extra = reader.view(extra_length.into(), "the extra field")?;
    reader.take(comment_length.into(), "the comment")?;
    // The extra field holds the overflowing values in this order.
    match Zip64Fields::find(&extra).widen([length, compressed, header]) {
        Some([length, compressed, header]) => {
            Ok(Entry { name, method, checksum, compressed, length, header })
        }
        None => Err(reader.error_at(name, "a size over 32 bits is missing in the extra field")),
    }
}

/// The 64-bit values of a directory entry's extra field.
struct Zip64Fields<'a>(&'a [u8]);

impl<'a> Zip64Fields<'a> {
    /// Searches the records of an extra field: each has a number, a length and its data.
    fn find(mut extra: &'a [u8]) -> Self {
        while let Some((&[number, number_high, length, length_high], rest)) =
            extra.split_first_chunk()
        {
            let length = usize::from(u16::from_le_bytes([length, length_high]));
            let Some((data, rest)) = rest.split_at_checked(length) else { break };
            if u16::from_le_bytes([number, number_high]) == ZIP64_EXTRA_FIELD {
                return Self(data);
            }
            extra = rest;
        }
        Self(&[])
    }

    /// Replaces every value that is all ones by the next of the 64-bit values.
    fn widen<const N: usize>(mut self, narrow: [u32; N]) -> Option<[u64; N]> {
        let mut wide = narrow.map(u64::from);
        for value in wide.iter_mut().filter(|value| **value == u64::from(u32::MAX)) {
            let (&bytes, rest) = self.0.split_first_chunk()?;
            *value = u64::from_le_bytes(bytes);
            self.0 = rest;
        }
        Some(wide)
    }
}

/// Finds a member's data behind its local header; also returns the bytes that both take.
fn locate(source: &Source, entry: Entry) -> Result<(Range<usize>, Member), Error> {
    let Entry { name, method, checksum, compressed, length, header } = entry;
    let mut reader = Reader::of_part(&source.path, &name, &source.bytes);
    reader.seek(header, "the local header")?;
    let start = reader.position();
    expect_signature(&mut reader, LOCAL_HEADER, "a local header")?;
    reader.take(22, "the local header")?;
    let name_length = reader.u16("the length of the name")?;
    let extra_length = reader.u16("the length of the extra field")?;
    let local_name = reader.take(name_length.into(), "the name")?;
    if local_name != name.as_bytes() {
        let found = quoted(&String::from_utf8_lossy(local_name));
        return Err(reader.error(format!("the local header belongs to {found}")));
    }
    reader.take(extra_length.into(), "the extra field")?;
    let data = reader.view(compressed, "the member's data")?;
    if method == STORED && compressed != length {
        let problem = format!("stored, but its two sizes differ: {compressed} and {length}");
        return Err(Error::new(&source.path, name, problem));
    }
    let range = start..reader.position();
    Ok((range, Member { name, data, method, checksum, length }))
}

fn refuse_duplicates<'a>(
    reader: &Reader<'_>,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(), Error> {
    let mut seen = HashSet::new();
    match names.find(|name| !seen.insert(*name)) {
        Some(name) => Err(reader.error_at(name, "a second member of this name")),
        None => Ok(()),
    }
}

/// Refuses members that share bytes, by which a small archive can inflate to a huge one.
fn refuse_overlaps(
    reader: &Reader<'_>,
    mut members: Vec<(Range<usize>, &str)>,
) -> Result<(), Error> {
    members.sort_unstable_by_key(|(range, _)| range.start);
    for pair in members.windows(2) {
        let [(first, first_name), (second, second_name)] = [&pair[0], &pair[1]];
        if second.start < first.end {
            let problem = format!("overlaps with the member {}", quoted(second_name));
            return Err(reader.error_at(*first_name, problem));
        }
    }
    Ok(())
}
