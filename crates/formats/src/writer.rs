//! Files that appear whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;

/// Writes a file's content, counting its bytes.
pub(crate) struct Writer<'a> {
    /// The file as the caller named it, for messages.
    path: &'a Path,
    file: BufWriter<File>,
    position: u64,
}

/// Creates or replaces a file: what `content` writes goes to a file beside it, which is renamed
/// when it is complete. Whoever reads or maps the old file meanwhile keeps it.
pub(crate) fn write_file(
    path: &Path,
    content: impl FnOnce(&mut Writer<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let temporary = temporary_name(path);
    let failed = |cause| Error::io(path, "cannot be written", &cause);
    let file = BufWriter::new(File::create_new(&temporary).map_err(failed)?);
    let mut writer = Writer { path, file, position: 0 };
    let result = content(&mut writer)
        .and_then(|()| writer.file.flush().map_err(failed))
        .and_then(|()| fs::rename(&temporary, path).map_err(failed));
    if result.is_err() {
        // The first error is the one to tell; a file that cannot be removed only takes room.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// A hidden name in the same directory, so that renaming does not cross file systems.
fn temporary_name(path: &Path) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{count}.tmp", process::id()));
    path.with_file_name(name)
}

impl Writer<'_> {
    /// How many bytes have been written.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.position += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .map_err(|cause| Error::io(self.path, "cannot be written", &cause))
    }

    /// Writes `count` zero bytes: fewer than a page, as padding is.
    pub(crate) fn zeros(&mut self, count: u64) -> Result<(), Error> {
        (0..count).try_for_each(|_| self.bytes(&[0]))
    }

    pub(crate) fn u8(&mut self, value: u8) -> Result<(), Error> {
        self.bytes(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> Result<(), Error> {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<(), Error> {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> Result<(), Error> {
        self.bytes(&value.to_le_bytes())
    }

    /// A number as the narrower type that the format has for it.
    pub(crate) fn narrow<Wide, Narrow>(&self, value: Wide, what: &str) -> Result<Narrow, Error>
    where
        Wide: Copy + std::fmt::Display,
        Narrow: TryFrom<Wide>,
    {
        Narrow::try_from(value)
            .map_err(|_| self.error(format!("{what}: {value} is too large for this format")))
    }

    /// An error about what is to be written.
    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        Error::new(self.path, "", format!("cannot be written: {}", problem.into()))
    }
}
