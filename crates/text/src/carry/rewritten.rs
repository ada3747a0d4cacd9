//! A text with replacements, and the map between old and new byte ranges.

use std::borrow::Cow;
use std::ops::Range;

/// A byte range of a text and its replacement.
pub type Replacement<'a> = (Range<usize>, Cow<'a, str>);

/// A text with replacements, which converts ranges between the old text and the new one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// The new text.
    pub text: String,
    edits: Vec<Edit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    old: Range<usize>,
    new: Range<usize>,
}

impl Rewritten {
    /// Replaces ranges of a text, which must be sorted and must not overlap.
    pub fn new(text: &str, replacements: &[Replacement<'_>]) -> Rewritten {
        let mut rewritten = Rewritten {
            text: String::with_capacity(text.len()),
            edits: Vec::with_capacity(replacements.len()),
        };
        let mut at = 0;
        for (old, with) in replacements {
            rewritten.text.push_str(&text[at..old.start]);
            let start = rewritten.text.len();
            rewritten.text.push_str(with);
            rewritten.edits.push(Edit { old: old.clone(), new: start..rewritten.text.len() });
            at = old.end;
        }
        rewritten.text.push_str(&text[at..]);
        rewritten
    }

    /// The inverse: the edits that turn the new text into the old one.
    pub(super) fn inverse(&self, old: &str) -> Rewritten {
        let edit = |edit: &Edit| Edit { old: edit.new.clone(), new: edit.old.clone() };
        Rewritten { text: old.to_owned(), edits: self.edits.iter().map(edit).collect() }
    }

    /// The byte range of the old text for a range of the new one. A part of a replacement maps to
    /// the whole replaced range.
    pub fn old_range(&self, range: &Range<usize>) -> Range<usize> {
        convert(&self.edits, |edit| (&edit.new, &edit.old), range)
    }

    /// The byte range of the new text for a range of the old one.
    pub fn new_range(&self, range: &Range<usize>) -> Range<usize> {
        convert(&self.edits, |edit| (&edit.old, &edit.new), range)
    }
}

/// Converts a range from one side of the edits to the other.
fn convert(
    edits: &[Edit],
    sides: impl Fn(&Edit) -> (&Range<usize>, &Range<usize>),
    range: &Range<usize>,
) -> Range<usize> {
    let begins = |edit: &Edit| sides(edit).0.start;
    let at_start = edits.partition_point(|edit| begins(edit) <= range.start);
    let at_end = edits.partition_point(|edit| begins(edit) < range.end);
    let start = match edits[..at_start].last().map(&sides) {
        Some((from, to)) if range.start < from.end => to.start,
        Some((from, to)) => to.end + (range.start - from.end),
        None => range.start,
    };
    let end = match edits[..at_end].last().map(&sides) {
        Some((from, to)) if range.end <= from.end => to.end,
        Some((from, to)) => to.end + (range.end - from.end),
        None => range.end,
    };
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_both_ways() {
        let old = "see {name} — now";
        let replacements = [(4..10, "X1".into()), (11..14, "-".into())];
        let new = Rewritten::new(old, &replacements);
        assert_eq!(new.text, "see X1 - now");
        assert_eq!(new.old_range(&(4..6)), 4..10);
        assert_eq!(new.old_range(&(4..5)), 4..10);
        assert_eq!(new.old_range(&(5..6)), 4..10);
        assert_eq!(new.old_range(&(9..12)), 15..18);
        assert_eq!(new.old_range(&(0..12)), 0..18);
        assert_eq!(new.new_range(&(4..10)), 4..6);
        assert_eq!(new.new_range(&(15..18)), 9..12);
        assert_eq!(new.new_range(&(0..3)), 0..3);
    }

    #[test]
    fn what_is_dropped_belongs_to_no_range() {
        let new = Rewritten::new("a\u{ad}b", &[(1..3, "".into())]);
        assert_eq!(new.text, "ab");
        assert_eq!((new.old_range(&(0..1)), new.old_range(&(1..2))), (0..1, 3..4));
        assert_eq!(new.new_range(&(0..4)), 0..2);
    }
}
