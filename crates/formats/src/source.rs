//! Shared bytes, mapped from a file or held in memory.

use std::fmt;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;

use crate::Error;

/// Shared, immutable bytes: a memory map or a vector, or a part of one. Cloning is cheap.
#[derive(Clone)]
pub struct Bytes {
    whole: Whole,
    range: Range<usize>,
}

/// The owner of the memory.
#[derive(Clone)]
enum Whole {
    Static(&'static [u8]),
    Vector(Arc<Vec<u8>>),
    Map(Arc<Mmap>),
}

impl Whole {
    fn bytes(&self) -> &[u8] {
        match self {
            Whole::Static(bytes) => bytes,
            Whole::Vector(vector) => vector,
            Whole::Map(map) => map,
        }
    }
}

impl Bytes {
    /// Bytes compiled into the program.
    pub fn from_static(bytes: &'static [u8]) -> Self {
        Self::all(Whole::Static(bytes))
    }

    /// A part of these bytes, sharing their memory.
    ///
    /// # Panics
    ///
    /// As slices do, if the range does not lie within the bytes: check lengths that come from a
    /// file first.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "slice {range:?} out of range"
        );
        let start = self.range.start;
        Self { whole: self.whole.clone(), range: start + range.start..start + range.end }
    }

    /// Advises the system that these bytes will not be read soon. Pages of a mapped file leave
    /// memory, and are read again from the file if they are needed.
    pub fn release(&self) {
        if let Whole::Map(map) = &self.whole {
            release(map, self.range.clone());
        }
    }

    fn all(whole: Whole) -> Self {
        let range = 0..whole.bytes().len();
        Self { whole, range }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.whole.bytes()[self.range.clone()]
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(vector: Vec<u8>) -> Self {
        Self::all(Whole::Vector(Arc::new(vector)))
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Bytes({})", self.len())
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

/// An opened file: its path, for messages, and its bytes.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path as given by the caller.
    pub path: PathBuf,
    /// The whole content.
    pub bytes: Bytes,
}

impl Source {
    /// Maps a file into memory.
    ///
    /// The file must stay as it is while the source or anything read from it is in use: another
    /// program that shortens it in place makes the mapped pages vanish. (Replacing a file by
    /// renaming another over it, as this crate's writers do, is harmless.)
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |cause| Error::io(path, "cannot be opened", &cause);
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Error::new(path, "", "cannot be opened: not a regular file"));
        }
        if metadata.len() == 0 {
            return Ok(Self::new(path, Vec::new())); // an empty range cannot be mapped
        }
        let map = map(&file).map_err(failed)?;
        Ok(Self { path: path.to_owned(), bytes: Bytes::all(Whole::Map(Arc::new(map))) })
    }

    /// A source of bytes already in memory; the path is used in messages only.
    pub fn new(path: impl Into<PathBuf>, bytes: impl Into<Bytes>) -> Self {
        Self { path: path.into(), bytes: bytes.into() }
    }
}

#[allow(unsafe_code)]
fn map(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is private and read-only, and no code of ours shortens a file or changes bytes
    // it has (writers rename a finished file over the old one, and only append to open streams).
    // That no other program changes the file while it is mapped is the documented condition of
    // `Source::open`.
    unsafe { Mmap::map(file) }
}

#[cfg(unix)]
#[allow(unsafe_code)]
fn release(map: &Mmap, range: Range<usize>) {
    use memmap2::UncheckedAdvice::DontNeed;
    // SAFETY: the map is of a file and never written to, so a page that is dropped holds the same
    // bytes when it is read again. Where the system does not follow the advice nothing is lost.
    let _ = unsafe { map.unchecked_advise_range(DontNeed, range.start, range.len()) };
}

#[cfg(not(unix))]
fn release(_: &Mmap, _: Range<usize>) {}
