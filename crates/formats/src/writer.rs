//! Atomic writing: a file appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
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

/// Creates or replaces a file with these bytes. It appears whole or not at all: they are written to
/// a temporary file beside it, which is renamed when it is complete. The permissions of a replaced
/// file are kept, a symbolic link is followed, and a device or pipe is written to directly.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_file(path, |writer| writer.bytes(bytes))
}

/// [`write_whole`] for content that is produced while it is written. If that fails, nothing is created or replaced.
pub fn write_whole_from<E: From<Error>>(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    write_file(path, |writer| content(writer))
}

/// [`write_whole_from`] for formats. A process that has the old file open or mapped keeps seeing its
/// content.
pub(crate) fn write_file<E: From<Error>>(
    path: &Path,
    content: impl FnOnce(&mut Writer<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let failed = |cause| E::from(Error::io(path, "cannot be written", &cause));
    if is_stream(path) {
        // Append, to keep what a redirected output already holds.
        let file = File::options().append(true).open(path).map_err(failed)?;
        return fill(path, file, content);
    }
    let target = behind_links(path).map_err(failed)?;
    let (temporary, file) = create_beside(&target).map_err(failed)?;
    let result = keep_permissions(&target, &file)
        .map_err(failed)
        .and_then(|()| fill(path, file, content))
        .and_then(|()| fs::rename(&temporary, &target).map_err(failed));
    if result.is_err() {
        // Report the first error; a temporary file that cannot be removed only takes space.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Writes the content and closes the file.
fn fill<E: From<Error>>(
    path: &Path,
    file: File,
    content: impl FnOnce(&mut Writer<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut writer = Writer { path, file: BufWriter::new(file), position: 0 };
    content(&mut writer)?;
    Ok(writer.file.flush().map_err(|cause| Error::io(path, "cannot be written", &cause))?)
}

/// Whether a path is written to directly: a device, a pipe, or a file descriptor. (Renaming a file
/// over `/dev/null` would remove the device for the whole system.)
fn is_stream(path: &Path) -> bool {
    const BY_NUMBER: [&str; 5] = ["/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/proc"];
    BY_NUMBER.iter().any(|open| path.starts_with(open))
        || fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// The file that a path leads to through symbolic links, whether it exists or not.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    /// The number of links that Linux follows.
    const MOST_LINKS: usize = 40;
    let mut target = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => {
                // A relative link is resolved from its own folder.
                target = target.with_file_name("").join(fs::read_link(&target)?);
            }
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            _ => return Ok(target),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// A new file with a hidden name in the same folder, so that renaming does not cross file systems.
fn create_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = target.with_file_name(format!(".peregrine-{}-{count}.tmp", process::id()));
        match File::create_new(&path) {
            // Left by a killed process with the same id, perhaps in another container.
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (path, file)),
        }
    }
}

/// Gives a new file the permissions of the one it is going to replace, if there is one.
fn keep_permissions(target: &Path, file: &File) -> io::Result<()> {
    match fs::metadata(target) {
        Ok(replaced) => file.set_permissions(replaced.permissions()),
        Err(_) => Ok(()),
    }
}

/// Its errors name the file.
impl Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
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

    /// Converts a number to the narrower type of its field; fails if it does not fit.
    pub(crate) fn narrow<Wide, Narrow>(&self, value: Wide, what: &str) -> Result<Narrow, Error>
    where
        Wide: Copy + std::fmt::Display,
        Narrow: TryFrom<Wide>,
    {
        Narrow::try_from(value)
            .map_err(|_| self.error(format!("{what}: {value} is too large for this format")))
    }

    /// An error about the content to be written.
    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        Error::new(self.path, "", format!("cannot be written: {}", problem.into()))
    }
}
