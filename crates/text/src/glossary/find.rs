//! Search for terms in a text.

use std::ops::Range;

use super::Entry;
use crate::is_unspaced;

/// A term found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The term's byte range in the text.
    pub range: Range<usize>,
    /// The index of the entry with the term's translation.
    pub entry: Option<usize>,
    /// The indices of the entries with forbidden translations.
    pub forbidden: Vec<usize>,
}

/// The case-folded sources of all entries, sorted. A search narrows the range of those that match a
/// prefix of the text.
#[derive(Default)]
pub(super) struct Index {
    keys: Vec<Key>,
}

struct Key {
    folded: Vec<char>,
    /// The indices of the entries with this source, in any case.
    entries: Vec<usize>,
}

impl Index {
    pub(super) fn new(entries: &[Entry]) -> Index {
        let folded = |entry: &Entry| Folded::new(&entry.source).map(|(c, _)| c).collect();
        let key = |(number, entry)| Key { folded: folded(entry), entries: vec![number] };
        let mut keys: Vec<Key> = entries.iter().enumerate().map(key).collect();
        keys.sort_by(|a, b| a.folded.cmp(&b.folded));
        keys.dedup_by(|next, first| {
            let same = next.folded == first.folded;
            if same {
                first.entries.append(&mut next.entries);
            }
            same
        });
        Index { keys }
    }

    /// The terms in a text.
    pub(super) fn find(&self, entries: &[Entry], text: &str) -> Vec<Found> {
        let mut found = Vec::new();
        let mut end = 0;
        for (at, _) in text.char_indices() {
            if at < end || self.keys.is_empty() || !is_edge(text, at) {
                continue;
            }
            if let Some(term) = self.longest(entries, text, at) {
                end = term.range.end;
                found.push(term);
            }
        }
        found
    }

    /// The longest term that begins at a byte offset of a text.
    fn longest(&self, entries: &[Entry], text: &str, start: usize) -> Option<Found> {
        let mut keys = self.keys.as_slice();
        let mut longest = None;
        for (depth, (c, end)) in Folded::new(&text[start..]).enumerate() {
            let first = keys.partition_point(|key| key.folded.get(depth) < Some(&c));
            let last = keys.partition_point(|key| key.folded.get(depth) <= Some(&c));
            keys = &keys[first..last];
            let Some(key) = keys.first() else { break };
            // A character that folds to several ends with the last one.
            if let (true, Some(end)) = (key.folded.len() == depth + 1, end) {
                longest = Index::matching(key, entries, text, start..start + end).or(longest);
            }
        }
        longest
    }

    /// The match of a key's entries with a range of a text, if any applies.
    fn matching(key: &Key, entries: &[Entry], text: &str, range: Range<usize>) -> Option<Found> {
        let is_whole = is_edge(text, range.end);
        let surface = &text[range.clone()];
        let fits = |number: &&usize| {
            let entry = &entries[**number];
            (is_whole || entry.prefix)
                && (!entry.is_cased()
                    || surface.split_whitespace().eq(entry.source.split_whitespace()))
        };
        let (forbidden, told): (Vec<usize>, Vec<usize>) =
            key.entries.iter().filter(fits).partition(|number| entries[**number].forbid);
        // Of entries that differ only in case, prefer the one with the text's case.
        let exact = told.iter().find(|number| entries[**number].source == surface);
        let entry = exact.or(told.first()).copied();
        let any = entry.is_some() || !forbidden.is_empty();
        any.then_some(Found { range, entry, forbidden })
    }
}

/// The characters of a text in lower case, with white space as one blank, each with the byte offset
/// of its end. If a character folds to several, only the last has the offset.
struct Folded<'t> {
    text: &'t str,
    at: usize,
    lower: Option<(std::char::ToLowercase, usize)>,
}

impl Folded<'_> {
    fn new(text: &str) -> Folded<'_> {
        Folded { text, at: 0, lower: None }
    }
}

impl Iterator for Folded<'_> {
    type Item = (char, Option<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((lower, end)) = &mut self.lower {
                if let Some(c) = lower.next() {
                    return Some((c, (lower.len() == 0).then_some(*end)));
                }
                self.lower = None;
            }
            let rest = &self.text[self.at..];
            let c = rest.chars().next()?;
            if c.is_whitespace() {
                self.at += rest.len() - rest.trim_start().len();
                return Some((' ', Some(self.at)));
            }
            self.at += c.len_utf8();
            let plain = if c == '’' { '\'' } else { c };
            self.lower = Some((plain.to_lowercase(), self.at));
        }
    }
}

/// Whether a word may begin or end at a byte offset: not between two letters of a script with
/// blanks.
pub(crate) fn is_edge(text: &str, at: usize) -> bool {
    let (before, behind) = (text[..at].chars().next_back(), text[at..].chars().next());
    let (Some(before), Some(behind)) = (before, behind) else { return true };
    !is_mark(behind)
        && (!(is_letter(before) && is_letter(behind)) || is_unspaced(before) || is_unspaced(behind))
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || is_mark(c)
}

/// Whether a character is a combining mark.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{93c}' | '\u{94d}' | '\u{200d}' | '\u{fe0f}')
}

#[cfg(test)]
mod tests {
    use super::super::Glossary;
    use super::*;

    fn found<'t>(terms: &[&str], text: &'t str) -> Vec<&'t str> {
        let entries = terms.iter().map(|source| Entry::new(source, "x"));
        let glossary = Glossary::new(entries).expect("a glossary");
        glossary.find(text).into_iter().map(|found| &text[found.range]).collect()
    }

    #[test]
    fn the_longest_whole_words() {
        assert_eq!(
            found(&["bus", "bus stop"], "A bus, a Bus  stop and busses."),
            ["bus", "Bus  stop"]
        );
        assert_eq!(
            found(&["new york", "New York City"], "new york city; NEW YORK"),
            ["new york city", "NEW YORK"]
        );
        assert_eq!(found(&[".NET", "C++"], "C++ and ASP.NET, or .NET"), ["C++", ".NET", ".NET"]);
        assert!(found(&["cafe"], "cafe\u{301} cafes _cafe").is_empty());
        assert!(found(&[], "bus").is_empty());
    }

    #[test]
    fn scripts_without_blanks_have_no_edges() {
        assert_eq!(found(&["人工", "人工智能"], "新人工智能和人工"), ["人工智能", "人工"]);
        assert_eq!(found(&["iPhone"], "新iPhone手机"), ["iPhone"]);
    }

    #[test]
    fn case_counts_where_it_tells_something() {
        assert_eq!(found(&["IT", "iPhone"], "It is IT: an Iphone, an iPhone"), ["IT", "iPhone"]);
        assert_eq!(
            found(&["İstanbul", "don't"], "i\u{307}stanbul, İSTANBUL: Don’t"),
            ["i\u{307}stanbul", "İSTANBUL", "Don’t"]
        );
        let entries = [Entry::new("polish", "polir"), Entry::new("Polish", "polaco")];
        let glossary = Glossary::new(entries).expect("a glossary");
        let entry = |text: &str| glossary.find(text)[0].entry;
        assert_eq!(
            (entry("polish"), entry("Polish"), entry("POLISH")),
            (Some(0), Some(1), Some(0))
        );
    }

    #[test]
    fn a_prefix_may_go_on() {
        let prefix = Entry::new("Bahn", "x").with_flag("prefix").expect("a flag");
        let glossary = Glossary::new([prefix]).expect("a glossary");
        assert_eq!(glossary.find("Bahnhof, Autobahn").len(), 1);
    }
}
