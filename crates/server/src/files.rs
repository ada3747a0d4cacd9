//! Files that are being translated or wait to be fetched, in memory of bounded size, for half an
//! hour.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use peregrine::document::Format;

use crate::problem::{Kind, Outcome, Problem};

/// The time that a file is stored.
const KEPT: Duration = Duration::from_secs(30 * 60);

/// The most bytes of all files.
const MOST_BYTES: usize = 256 << 20;

/// The most files at a time.
const MOST_FILES: usize = 1000;

/// A translated file.
#[derive(Debug, Clone)]
pub(crate) struct TranslatedFile {
    pub(crate) bytes: Bytes,
    pub(crate) format: Format,
    /// The number of characters of the source text.
    pub(crate) characters: usize,
}

/// A file.
#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) name: String,
    /// The secret that a request must give besides the id, in dialects that have one.
    pub(crate) key: String,
    pub(crate) state: State,
    at: Instant,
}

/// The state of a file's translation.
#[derive(Debug, Clone)]
pub(crate) enum State {
    Translating,
    Done(TranslatedFile),
    Failed(Problem),
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

    /// Registers a file that is going to be translated; returns its id and key.
    pub(crate) fn begin(&self, name: &str) -> Outcome<(String, String)> {
        let mut files = self.lock();
        if files.len() >= MOST_FILES || held(&files) >= MOST_BYTES {
            return Err(Problem::busy(Duration::from_secs(60)));
        }
        let (id, key) = (secret()?, secret()?);
        let state = State::Translating;
        let file = File { name: name.to_owned(), key: key.clone(), state, at: Instant::now() };
        files.insert(id.clone(), file);
        Ok((id, key))
    }

    /// Stores the result of a file's translation.
    pub(crate) fn finish(&self, id: &str, made: Outcome<TranslatedFile>) -> Outcome<()> {
        let mut files = self.lock();
        let room = MOST_BYTES.saturating_sub(held(&files));
        let full = || Problem::busy(Duration::from_secs(60));
        let made = made.and_then(|made| match made.bytes.len() <= room {
            true => Ok(made),
            false => Err(full()),
        });
        let (state, outcome) = match made {
            Ok(made) => (State::Done(made), Ok(())),
            Err(problem) => (State::Failed(problem.clone()), Err(problem)),
        };
        if let Some(file) = files.get_mut(id) {
            file.state = state;
        }
        outcome
    }

    /// The file of that id.
    pub(crate) fn get(&self, id: &str) -> Option<File> {
        self.lock().get(id).cloned()
    }

    /// Removes a file.
    pub(crate) fn remove(&self, id: &str) {
        self.lock().remove(id);
    }
}

/// The number of bytes of all files.
fn held(files: &HashMap<String, File>) -> usize {
    let bytes = |file: &File| match &file.state {
        State::Done(made) => made.bytes.len(),
        _ => 0,
    };
    files.values().map(bytes).sum()
}

/// Thirty-two random hexadecimal digits, from the system's secure generator.
pub(crate) fn secret() -> Outcome<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|_| Problem::new(Kind::Internal, "There are no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A file name without folders and without characters that a header cannot hold. It is only shown,
/// never opened.
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
        let made = |length: usize| {
            Ok(TranslatedFile {
                bytes: vec![0; length].into(),
                format: Format::Text,
                characters: length,
            })
        };
        let (id, key) = files.begin("a.txt").unwrap();
        assert!(matches!(files.get(&id).unwrap().state, State::Translating));
        files.finish(&id, made(1)).unwrap();
        assert_eq!(files.get(&id).unwrap().key, key);
        assert!(matches!(files.get(&id).unwrap().state, State::Done(_)));
        let (large, _) = files.begin("b.txt").unwrap();
        assert!(files.finish(&large, made(MOST_BYTES)).is_err());
        assert!(matches!(files.get(&large).unwrap().state, State::Failed(_)));
        files.remove(&id);
        assert!(files.get(&id).is_none());
    }
}
