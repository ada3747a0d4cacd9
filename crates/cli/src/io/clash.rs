//! Whether a file that is to be written is one that is read.
//!
//! Names say little: a file can be reached through links, through `..`, or as standard input. Files that
//! exist are the same if their device and inode are, others if their names are in the same directory.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::bail;

/// A file of a command, by the option that names it.
#[derive(Debug, Clone)]
pub(crate) struct Named<'a> {
    option: &'a str,
    place: Place<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    Path(&'a Path),
    Input,
    Output,
}

impl<'a> Named<'a> {
    /// The file an option names; `-` is standard input.
    pub(crate) fn read(option: &'a str, path: &'a Path) -> Named<'a> {
        let standard = peregrine_args::lines::is_standard(path);
        Named { option, place: if standard { Place::Input } else { Place::Path(path) } }
    }

    /// The file an option names; `-` is standard output.
    pub(crate) fn written(option: &'a str, path: &'a Path) -> Named<'a> {
        let standard = peregrine_args::lines::is_standard(path);
        Named { option, place: if standard { Place::Output } else { Place::Path(path) } }
    }

    /// Standard input.
    pub(crate) fn input() -> Named<'a> {
        Named { option: "standard input", place: Place::Input }
    }

    /// Standard output.
    pub(crate) fn output() -> Named<'a> {
        Named { option: "standard output", place: Place::Output }
    }

    fn identity(&self) -> Option<Identity> {
        match self.place {
            Place::Path(path) => of_path(path),
            Place::Input => of_stream(io::stdin()),
            Place::Output => of_stream(io::stdout()),
        }
    }

    fn told(&self) -> String {
        match self.place {
            Place::Path(path) => format!("{} {}", self.option, path.display()),
            Place::Input | Place::Output => self.option.to_owned(),
        }
    }
}

/// Refuses to write a file that is read, and to write one file twice. To be called before any of
/// them is opened for writing.
pub(crate) fn refuse(written: &[Named<'_>], read: &[Named<'_>]) -> anyhow::Result<()> {
    let mut known: HashMap<Identity, &Named<'_>> = HashMap::new();
    for file in read {
        if let Some(identity) = file.identity() {
            known.entry(identity).or_insert(file);
        }
    }
    let mut made: HashMap<Identity, &Named<'_>> = HashMap::new();
    for target in written {
        let Some(identity) = target.identity() else { continue };
        if let Some(other) = known.get(&identity) {
            bail!("{}: this file is read ({}); write to another", target.told(), other.told());
        }
        if let Some(other) = made.insert(identity, target) {
            bail!("{}: this file is written by {} too", target.told(), other.told());
        }
    }
    Ok(())
}

/// What tells one file from another.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Identity {
    /// Device and inode.
    #[cfg(unix)]
    Inode(u64, u64),
    /// The name in its directory, for files that do not exist yet.
    Name(PathBuf),
}

fn of_path(path: &Path) -> Option<Identity> {
    match path.metadata() {
        Ok(metadata) => of_metadata(&metadata, path),
        Err(_) => {
            // A link to nowhere is made by writing to it.
            let path =
                std::fs::read_link(path).map_or(path.to_owned(), |to| path.with_file_name(to));
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let folder = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
            Some(Identity::Name(folder.join(path.file_name()?)))
        }
    }
}

/// Terminals and devices are no files: they may be read and written.
fn is_stored(metadata: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        metadata.is_file() || metadata.file_type().is_fifo()
    }
    #[cfg(not(unix))]
    metadata.is_file()
}

#[cfg(unix)]
fn of_metadata(metadata: &Metadata, _: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    is_stored(metadata).then(|| Identity::Inode(metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn of_metadata(metadata: &Metadata, path: &Path) -> Option<Identity> {
    is_stored(metadata).then(|| path.canonicalize().ok()).flatten().map(Identity::Name)
}

#[cfg(unix)]
fn of_stream(stream: impl std::os::fd::AsFd) -> Option<Identity> {
    let file = File::from(stream.as_fd().try_clone_to_owned().ok()?);
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    of_metadata(&metadata, Path::new(""))
}

#[cfg(not(unix))]
fn of_stream<T>(_: T) -> Option<Identity> {
    None
}
