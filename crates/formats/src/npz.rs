//! `.npz`: a ZIP archive with one array a member.
//!
//! The member `NAME.npy` is the array `NAME`; see `zip.rs` and `npy.rs` for the two layouts.
//!
//! Marian stores members uncompressed, sorted by name, with sizes and checksums in the local
//! headers, time and date 0, no extra fields and no comment. `numpy.savez` adds extra fields and
//! `numpy.savez_compressed` deflates; all of these are read. Stored members become views of the
//! file. The checksums of all members are verified.

use std::path::Path;

use crate::checksum::crc32;
use crate::writer::{Writer, write_file};
use crate::zip::{self, Member};
use crate::{Bytes, Error, Source, Tensor, Tensors, npy};

const SUFFIX: &str = ".npy";

/// Reads all arrays of an archive and verifies their checksums.
pub fn read(source: &Source) -> Result<Tensors, Error> {
    let members = zip::members(source)?;
    let tensors = arrays(source, &members);
    // Verify first: damage explains every other error.
    zip::verify(source, &members)?;
    tensors
}

fn arrays(source: &Source, members: &[Member]) -> Result<Tensors, Error> {
    let mut tensors = Tensors::new();
    let mut budget = inflation_budget(source);
    for member in members {
        let refuse = |problem: String| Error::new(&source.path, &member.name, problem);
        let Some(name) = member.name.strip_suffix(SUFFIX) else {
            return Err(refuse(format!("a member that is no array, expected NAME{SUFFIX}")));
        };
        let data = content(member, &mut budget).map_err(refuse)?;
        tensors.insert(name.to_owned(), npy::read(&source.path, &member.name, &data)?);
    }
    Ok(tensors)
}

/// How many bytes all members together may inflate to. Weights hardly shrink when deflated, but
/// the zeros of a fresh bias shrink a thousandfold, so small files get a flat allowance.
fn inflation_budget(source: &Source) -> u64 {
    const FLAT: u64 = 16 << 20;
    const RATIO: u64 = 16;
    FLAT + RATIO * source.bytes.len() as u64
}

fn content(member: &Member, budget: &mut u64) -> Result<Bytes, String> {
    if let Some(stored) = member.stored() {
        return Ok(stored);
    }
    *budget = budget.checked_sub(member.length).ok_or_else(|| {
        let length = member.length;
        format!("would inflate to {length} bytes, which is out of proportion to the file")
    })?;
    member.inflate()
}

/// Writes an archive as Marian does: stored members, sorted by name.
pub fn write(path: &Path, tensors: &Tensors) -> Result<(), Error> {
    write_file(path, |writer| {
        let mut directory = Vec::new();
        for (name, tensor) in tensors {
            let entry = Entry::new(writer, name, tensor)?;
            writer.u32(zip::LOCAL_HEADER)?;
            entry.write_common(writer)?;
            writer.bytes(entry.name.as_bytes())?;
            writer.bytes(&entry.header)?;
            writer.bytes(&tensor.data)?;
            directory.push(entry);
        }
        write_directory(writer, &directory)
    })
}

/// A member being written.
struct Entry {
    name: String,
    /// The numpy header, everything before the elements.
    header: Vec<u8>,
    checksum: u32,
    length: u32,
    offset: u32,
}

impl Entry {
    fn new(writer: &Writer<'_>, name: &str, tensor: &Tensor) -> Result<Self, Error> {
        let Some(header) = npy::header(tensor) else {
            let dtype = tensor.dtype.name();
            return Err(writer.error(format!("{name} is of type {dtype}, which npz has not")));
        };
        Ok(Self {
            name: format!("{name}{SUFFIX}"),
            checksum: crc32(&header, &tensor.data),
            length: writer.narrow(header.len() + tensor.data.len(), "the size of an array")?,
            offset: writer.narrow(writer.position(), "the size of the file")?,
            header,
        })
    }

    /// The fields that a local header and a directory entry share, up to the extra field's length.
    fn write_common(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        const VERSION: u16 = 20;
        writer.u16(VERSION)?;
        writer.u16(0)?; // flags
        writer.u16(zip::STORED)?;
        writer.u32(0)?; // time and date
        writer.u32(self.checksum)?;
        writer.u32(self.length)?; // stored size
        writer.u32(self.length)?;
        writer.u16(writer.narrow(self.name.len(), "the length of a name")?)?;
        writer.u16(0) // extra field
    }

    fn write_directory_entry(&self, writer: &mut Writer<'_>) -> Result<(), Error> {
        const WRITTEN_BY_VERSION: u16 = 20;
        writer.u32(zip::DIRECTORY_ENTRY)?;
        writer.u16(WRITTEN_BY_VERSION)?;
        self.write_common(writer)?;
        writer.zeros(10)?; // comment, disk, attributes
        writer.u32(self.offset)?;
        writer.bytes(self.name.as_bytes())
    }
}

fn write_directory(writer: &mut Writer<'_>, entries: &[Entry]) -> Result<(), Error> {
    let start = writer.position();
    for entry in entries {
        entry.write_directory_entry(writer)?;
    }
    let size = writer.position() - start;
    let count: u16 = writer.narrow(entries.len(), "the number of arrays")?;
    writer.bytes(&zip::END_RECORD)?;
    writer.u32(0)?; // disks
    writer.u16(count)?;
    writer.u16(count)?;
    writer.u32(writer.narrow(size, "the size of the directory")?)?;
    writer.u32(writer.narrow(start, "the size of the file")?)?;
    writer.u16(0) // comment
}
