//! Translated files that wait to be fetched: in memory, bounded, and gone after half an hour.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;

use crate::problem::{Kind, Outcome, Problem};

/// How long a file waits.
const KEPT: Duration = Duration::from_secs(30 * 60);

/// The most bytes of all files.
const MOST_BYTES: usize = 64 << 20;

/// A translated file.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
    /// What must be known besides the id, where the dialect wants that.
    pub(crate) key: String,
    pub(crate) characters: usize,
    at: Instant,
}

/// Files by id.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: Mutex<HashMap<String, File>>,
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, File>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, file| file.at.elapsed() < KEPT);
        files
    }

    /// Keeps a file; its id.
    pub(crate) fn put(
        &self,
        name: &str,
        bytes: Bytes,
        characters: usize,
    ) -> Outcome<(String, String)> {
        let mut files = self.lock();
        let held: usize = files.values().map(|file| file.bytes.len()).sum();
        if held + bytes.len() > MOST_BYTES {
            return Err(Problem::busy(Duration::from_secs(60)));
        }
        let (id, key) = (secret()?, secret()?);
        let file =
            File { name: name.to_owned(), bytes, key: key.clone(), characters, at: Instant::now() };
        files.insert(id.clone(), file);
        Ok((id, key))
    }

    /// The file of that id.
    pub(crate) fn get(&self, id: &str) -> Option<File> {
        self.lock().get(id).cloned()
    }

    /// Forgets a file.
    pub(crate) fn remove(&self, id: &str) {
        self.lock().remove(id);
    }
}

/// Thirty-two hexadecimal digits that nobody can guess.
pub(crate) fn secret() -> Outcome<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|_| Problem::new(Kind::Internal, "There are no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A file's name without folders and without what a header cannot hold: it is only ever shown, never opened.
pub(crate) fn safe_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let safe =
        |c: char| if c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ') { c } else { '_' };
    let name: String = last.chars().map(safe).take(100).collect();
    match name.trim_matches(['.', ' ']) {
        "" => "file".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        assert_eq!(safe_name("../../etc/passwd"), "passwd");
        assert_eq!(safe_name("a\\b\r\nc: d.txt"), "b__c_ d.txt");
        assert_eq!(safe_name(".."), "file");
        assert_eq!(safe_name("Résumé.txt"), "Résumé.txt");
    }

    #[test]
    fn files_are_bounded() {
        let files = Files::default();
        let (id, key) = files.put("a.txt", Bytes::from_static(b"x"), 1).unwrap();
        assert_eq!(files.get(&id).unwrap().key, key);
        assert!(files.put("b", Bytes::from(vec![0; MOST_BYTES]), 1).is_err());
        files.remove(&id);
        assert!(files.get(&id).is_none());
    }
}
