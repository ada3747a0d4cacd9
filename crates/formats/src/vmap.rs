//! CTranslate2's vocabulary maps, `vmap.txt`: target words for n-grams of source words.
//!
//! ```text
//! word word … TAB target target …
//! ```
//!
//! A line's key is one or more source words separated by single blanks; its targets may be
//! separated by several. An empty key (the line begins with a tab) lists the targets that are
//! always allowed. Of several lines with one key, also the empty one, the last counts (checked
//! against CTranslate2 4.8.4). A final carriage return is not part of a line, and empty lines are
//! skipped. Lines without a tab or with two are refused, because CTranslate2 misreads them. Words
//! must be UTF-8.

use std::str;

use crate::{Error, Source};

/// A line: an n-gram of source words, and the target words it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The line number, from 1.
    pub line: usize,
    /// Source words; empty where the targets are always allowed.
    pub key: Vec<&'a str>,
    /// Target words.
    pub targets: Vec<&'a str>,
}

/// Reads the lines of a map, in order.
pub fn read(source: &Source) -> Result<Vec<Entry<'_>>, Error> {
    let lines = source.bytes.split(|&byte| byte == b'\n').enumerate();
    let lines = lines.map(|(i, line)| (i + 1, line.strip_suffix(b"\r").unwrap_or(line)));
    lines.filter(|(_, line)| !line.is_empty()).map(|(n, line)| entry(source, n, line)).collect()
}

fn entry<'a>(source: &Source, number: usize, line: &'a [u8]) -> Result<Entry<'a>, Error> {
    let error = |problem: &str| Error::new(&source.path, format!("line {number}"), problem);
    let text = str::from_utf8(line).map_err(|_| error("not UTF-8"))?;
    let fields: Vec<&str> = text.split('\t').collect();
    let [key, targets] = fields[..] else {
        return Err(error("expected `source words TAB target words`"));
    };
    let key: Vec<&str> = if key.is_empty() { Vec::new() } else { key.split(' ').collect() };
    if key.iter().any(|word| word.is_empty()) {
        return Err(error("expected single blanks between source words"));
    }
    let targets = targets.split(' ').filter(|word| !word.is_empty()).collect();
    Ok(Entry { line: number, key, targets })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &[u8]) -> Source {
        Source::new("vmap.txt", text.to_vec())
    }

    #[test]
    fn lines_are_read_as_they_stand() {
        let source = source("\ta b\n\nder\tthe\r\nin der\tin the  inside \n".as_bytes());
        let entries = read(&source).unwrap();
        let entry = |line, key: &[&'static str], targets: &[&'static str]| Entry {
            line,
            key: key.to_vec(),
            targets: targets.to_vec(),
        };
        assert_eq!(entries[0], entry(1, &[], &["a", "b"]));
        assert_eq!(entries[1], entry(3, &["der"], &["the"]));
        assert_eq!(entries[2], entry(4, &["in", "der"], &["in", "the", "inside"]));
    }

    #[test]
    fn what_is_no_map_is_refused_by_line() {
        let message = |text: &[u8]| read(&source(text)).unwrap_err().to_string();
        assert_eq!(
            message(b"a\tb\na b\n"),
            "vmap.txt: line 2: expected `source words TAB target words`"
        );
        assert!(message(b"a\tb\tc").starts_with("vmap.txt: line 1: expected"));
        assert!(message(b"\n\na  b\tc").contains("line 3: expected single blanks"));
        assert!(message(b" \tc").contains("line 1: expected single blanks"));
        assert!(message(b"a\t\xff").contains("line 1: not UTF-8"));
    }
}
