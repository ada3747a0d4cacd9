//! Small helpers around the file system, with errors that name the path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ModelError;

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Arc<[u8]>, ModelError> {
    std::fs::read(path).map(Arc::from).map_err(ModelError::io(path))
}

/// The entries of a directory, sorted.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let entries = std::fs::read_dir(folder).map_err(ModelError::io(folder))?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(ModelError::io(folder))?;
    paths.sort();
    Ok(paths)
}

/// The last part of a path, as text.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The folder of a file; never empty, so that it can be listed.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.into(),
        _ => PathBuf::from("."),
    }
}

/// The first of these names that is a file in the folder.
pub(crate) fn first_of(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// The first bytes of a file; fewer where it is shorter.
pub(crate) fn head<const N: usize>(path: &Path) -> Result<Vec<u8>, ModelError> {
    use std::io::Read;
    let mut bytes = Vec::with_capacity(N);
    let file = std::fs::File::open(path).map_err(ModelError::io(path))?;
    file.take(N as u64).read_to_end(&mut bytes).map_err(ModelError::io(path))?;
    Ok(bytes)
}
