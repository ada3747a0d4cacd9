//! A text rewritten for the model, and the restoration of its translation.

use std::borrow::Cow;
use std::ops::Range;

use super::case::{self, Case};
use super::mask::occurrences;
use super::rewritten::{Replacement, Rewritten};
use super::segments::{Segment, around};
use super::typography::{Kind, Marks, marks, originals};
use super::{MaskStyle, Speller};
use crate::is_unspaced;

/// A text rewritten so that a model can read all of it.
#[derive(Debug, Clone, Default)]
pub struct Carried {
    original: String,
    written: Rewritten,
    masks: Vec<Mask>,
    /// Byte ranges of white space in the original other than a single blank.
    spaces: Vec<Range<usize>>,
    case: Case,
    lowered: bool,
    /// Whether the model gets the text unchanged, so that nothing of a translation is restored.
    changes_nothing: bool,
}

/// A carried stretch of the original and its mask.
#[derive(Debug, Clone)]
struct Mask {
    text: String,
    stretch: Range<usize>,
    /// The text that replaces the mask in the translation, if it is not the stretch itself.
    back: Option<String>,
    /// The neighbours of the stretch.
    before: Touch,
    behind: Touch,
}

/// The neighbour of a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// No letter.
    Free,
    /// A letter of another word, in a script without blanks.
    Beside,
    /// A letter of the same word.
    Glued,
}

impl Touch {
    fn of(c: Option<char>) -> Touch {
        match c {
            Some(c) if is_unspaced(c) && c.is_alphanumeric() => Touch::Beside,
            Some(c) if c.is_alphanumeric() || c == '_' => Touch::Glued,
            _ => Touch::Free,
        }
    }

    /// The blank that separates a mask from its neighbour.
    fn padding(self) -> &'static str {
        if self == Touch::Free { "" } else { " " }
    }
}

/// A link of a word alignment: byte ranges of [`Carried::text`] and of the model's output.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The source word.
    pub source: Range<usize>,
    /// The target word.
    pub target: Range<usize>,
    /// The attention weight of the link.
    pub weight: f32,
}

/// A restored translation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// The text, with a map from byte ranges of the model's output.
    pub text: Rewritten,
    /// The number of masks that did not come back exactly once.
    pub lost: usize,
    /// The byte range of the text that replaced each mask; `None` if the mask was lost.
    pub places: Vec<Option<Range<usize>>>,
}

impl Speller {
    /// Rewrites a text for the model. `stretches` are those of [`Speller::stretches`]; without a
    /// style they are not masked. Text in capitals becomes sentence case, and so does a title with
    /// `lowers_titles`.
    pub fn write(
        &self,
        text: &str,
        stretches: &[Range<usize>],
        style: Option<MaskStyle>,
        lowers_titles: bool,
    ) -> Carried {
        let mut replacements = Vec::new();
        let masks = style.map(|style| self.masks(text, stretches, style)).unwrap_or_default();
        replacements.extend(masks.iter().map(Mask::written));
        let gaps = gaps(text, stretches);
        let case = Case::of(gaps.iter().map(|gap| &text[gap.clone()]));
        let lowered = match case {
            Case::Sentence => false,
            Case::Capitals => true,
            Case::Title => lowers_titles,
        };
        let mut spaces = Vec::new();
        let mut begins = stretches.first().is_none_or(|first| first.start > 0);
        for gap in gaps {
            self.write_plain(text, gap.clone(), &mut replacements, &mut spaces);
            if lowered {
                case::lower(text, gap.clone(), case, &mut begins, &mut replacements);
            }
            begins &= !text[gap].contains(char::is_alphanumeric);
        }
        replacements.sort_by_key(|(range, _)| range.start);
        let changes_nothing = replacements.is_empty() && stretches.is_empty() && !lowered;
        let written = Rewritten::new(text, &replacements);
        let original = text.to_owned();
        Carried { original, written, masks, spaces, case, lowered, changes_nothing }
    }

    /// The mask of each stretch.
    fn masks(&self, text: &str, stretches: &[Range<usize>], style: MaskStyle) -> Vec<Mask> {
        let mask = |(stretch, mask): (&Range<usize>, String)| {
            let before = text[..stretch.start].chars().rfind(|c| !self.drops(*c));
            let behind = text[stretch.end..].chars().find(|c| !self.drops(*c));
            let (before, behind) = (Touch::of(before), Touch::of(behind));
            Mask { text: mask, stretch: stretch.clone(), back: None, before, behind }
        };
        stretches.iter().zip(style.masks_for(text)).map(mask).collect()
    }

    /// Replaces typographic characters and white space of a range by plain characters.
    fn write_plain(
        &self,
        text: &str,
        gap: Range<usize>,
        replacements: &mut Vec<Replacement<'_>>,
        spaces: &mut Vec<Range<usize>>,
    ) {
        let inside = &text[gap.clone()];
        if is_plain(inside) {
            return;
        }
        let mut chars = inside.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let start = gap.start + at;
            let end = start + c.len_utf8();
            if c.is_whitespace() {
                let length = inside[at..].find(|c: char| !c.is_whitespace());
                let run = start..length.map_or(gap.end, |length| start + length);
                while chars.next_if(|(at, _)| gap.start + at < run.end).is_some() {}
                if &text[run.clone()] != " " {
                    replacements.push((run.clone(), " ".into()));
                    spaces.push(run);
                }
            } else if c == '\\' && chars.next_if(|(_, next)| matches!(next, '"' | '\'')).is_some() {
                replacements.push((start..end, "".into()));
            } else if let Some(twin) = self.twin(c).filter(|_| !c.is_ascii()) {
                replacements.push((start..end, twin.into()));
            }
        }
    }
}

/// Whether there is certainly nothing to replace: only ASCII, single blanks, no backslash. A short cut, as most text is so.
fn is_plain(text: &str) -> bool {
    let mut blank = false;
    text.bytes().all(|byte| {
        let before = std::mem::replace(&mut blank, byte == b' ');
        matches!(byte, b' '..=b'~') && byte != b'\\' && !(before && blank)
    })
}

/// The text between stretches.
pub(super) fn gaps(text: &str, stretches: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut at = 0;
    let ends = stretches.iter().cloned().chain(std::iter::once(text.len()..text.len()));
    let gap = ends.map(|stretch| std::mem::replace(&mut at, stretch.end)..stretch.start);
    gap.filter(|gap| !gap.is_empty()).collect()
}

impl Mask {
    /// The replacement of the stretch in the model's input.
    fn written(&self) -> Replacement<'static> {
        let (left, right) = (self.before.padding(), self.behind.padding());
        (self.stretch.clone(), Cow::Owned(format!("{left}{}{right}", self.text)))
    }

    /// The replacement of the mask in the translation.
    fn back<'a>(&'a self, original: &'a str) -> &'a str {
        self.back.as_deref().unwrap_or(&original[self.stretch.clone()])
    }

    /// The byte range of the mask in a translation, with the blanks that were inserted beside it.
    fn place(&self, output: &str, found: Range<usize>) -> Range<usize> {
        let before = self.before == Touch::Glued && output[..found.start].ends_with(' ');
        let behind = self.behind == Touch::Glued && output[found.end..].starts_with(' ');
        found.start - usize::from(before)..found.end + usize::from(behind)
    }
}

impl Carried {
    /// A text in which only the stretches are replaced by masks.
    pub fn masked(text: &str, stretches: &[Range<usize>], style: Option<MaskStyle>) -> Carried {
        let masks = style.map(|style| Speller::default().masks(text, stretches, style));
        let masks = masks.unwrap_or_default();
        let replacements: Vec<Replacement<'_>> = masks.iter().map(Mask::written).collect();
        let written = Rewritten::new(text, &replacements);
        Carried { original: text.to_owned(), written, masks, ..Carried::default() }
    }

    /// The same text, with `back` in place of a stretch in the translation.
    pub fn returning(mut self, stretch: &Range<usize>, back: &str) -> Carried {
        let masks = self.masks.iter_mut().filter(|mask| mask.stretch == *stretch);
        masks.for_each(|mask| mask.back = Some(back.to_owned()));
        self
    }

    /// The text for the model.
    pub fn text(&self) -> &str {
        &self.written.text
    }

    /// Whether the model gets the text unchanged.
    pub fn is_plain(&self) -> bool {
        self.masks.is_empty() && self.written.text == self.original
    }

    /// The number of stretches that are carried.
    pub fn masks(&self) -> usize {
        self.masks.len()
    }

    /// The stretches that are carried.
    pub fn stretches(&self) -> impl Iterator<Item = &Range<usize>> {
        self.masks.iter().map(|mask| &mask.stretch)
    }

    /// The texts of the masks.
    pub fn mask_texts(&self) -> impl Iterator<Item = &str> {
        self.masks.iter().map(|mask| mask.text.as_str())
    }

    /// Whether links between words are needed to put white space back.
    pub fn has_spaces(&self) -> bool {
        !self.spaces.is_empty()
    }

    /// Whether the text is a title that was not converted to sentence case.
    pub fn is_title(&self) -> bool {
        self.case == Case::Title && !self.lowered
    }

    /// The byte range of the original for a range of the text for the model.
    pub fn source_range(&self, range: &Range<usize>) -> Range<usize> {
        self.written.old_range(range)
    }

    /// The original text.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// A partial translation with its masks replaced.
    pub fn preview(&self, output: &str) -> String {
        let mut replacements: Vec<Replacement<'_>> = Vec::new();
        for mask in &self.masks {
            if let Some(found) = occurrences(output, &mask.text).into_iter().next() {
                replacements.push((mask.place(output, found), mask.back(&self.original).into()));
            }
        }
        put_in_order(&mut replacements);
        let text = Rewritten::new(output, &replacements).text;
        match self.lowered && self.case == Case::Capitals && self.masks.is_empty() {
            true => text.to_uppercase(),
            false => text,
        }
    }

    /// Whether each mask is in a model's output exactly once.
    pub fn returned(&self, output: &str) -> bool {
        self.masks.iter().all(|mask| occurrences(output, &mask.text).len() == 1)
    }

    /// The original, split at the carried stretches, which are kept.
    pub fn in_parts(&self) -> Vec<Segment> {
        let kept: Vec<_> = self.masks.iter().map(|mask| mask.stretch.clone()).collect();
        around(&self.original, &kept)
    }

    /// Restores masks, capitals, marks and white space in a model's output. Links give the places
    /// of lost masks and of white space.
    pub fn restore(&self, output: &str, links: &[Link]) -> Restored {
        if self.changes_nothing {
            return Restored { text: Rewritten::new(output, &[]), ..Restored::default() };
        }
        if output == self.written.text && self.masks.iter().all(|mask| mask.back.is_none()) {
            let places = self.masks.iter().map(|mask| Some(mask.stretch.clone())).collect();
            return Restored { text: self.written.inverse(&self.original), lost: 0, places };
        }
        let mut replacements: Vec<Replacement<'_>> = Vec::new();
        let mut lost = 0;
        let mut firsts = Vec::with_capacity(self.masks.len());
        for mask in &self.masks {
            let found = occurrences(output, &mask.text);
            lost += usize::from(found.len() != 1);
            firsts.push(found.first().cloned());
            match found.split_first() {
                Some((first, others)) => {
                    let back = mask.back(&self.original);
                    replacements.push((mask.place(output, first.clone()), back.into()));
                    replacements.extend(others.iter().map(|again| (again.clone(), "".into())));
                }
                None => replacements.push(self.put_in(mask, output, links)),
            }
        }
        let masked: Vec<Range<usize>> =
            replacements.iter().map(|(range, _)| range.clone()).collect();
        self.restore_marks(output, &masked, &mut replacements);
        self.restore_spaces(output, links, &masked, &mut replacements);
        if self.lowered && self.case == Case::Capitals {
            let mut sorted = masked;
            sorted.sort_by_key(|range| range.start);
            for gap in gaps(output, &disjoint(sorted)) {
                case::raise(output, gap, &mut replacements);
            }
        }
        put_in_order(&mut replacements);
        let text = Rewritten::new(output, &replacements);
        let places = firsts.into_iter().map(|found| Some(text.new_range(&found?))).collect();
        Restored { text, lost, places }
    }

    /// Inserts the stretch of a lost mask after the translation of the word before it.
    fn put_in(&self, mask: &Mask, output: &str, links: &[Link]) -> Replacement<'_> {
        let stretch = mask.back(&self.original);
        let place = self.place_of(mask.stretch.start, output, links);
        let place = output[place..].find(' ').map_or(output.len(), |blank| place + blank);
        let lead = if place == 0 || mask.before == Touch::Glued { "" } else { " " };
        (place..place, format!("{lead}{stretch}").into())
    }

    /// The place in the output for a place of the original: after the translation of the word
    /// before it.
    fn place_of(&self, at: usize, output: &str, links: &[Link]) -> usize {
        let before = self.original[..at].trim_end().len();
        let before = self.written.new_range(&(0..before)).end;
        let linked = |link: &&Link| link.source.start < before && before <= link.source.end;
        let best = links.iter().filter(linked).max_by(|a, b| a.weight.total_cmp(&b.weight));
        let place = match best {
            Some(link) => link.target.end,
            None => before * output.len() / self.written.text.len().max(1),
        };
        output.floor_char_boundary(place.min(output.len()))
    }

    /// Restores quotation marks, dashes and the ellipsis.
    fn restore_marks<'s>(
        &'s self,
        output: &str,
        masked: &[Range<usize>],
        replacements: &mut Vec<Replacement<'s>>,
    ) {
        let written = &self.written.text;
        let masks: Vec<Range<usize>> =
            self.masks.iter().map(|mask| self.written.new_range(&mask.stretch)).collect();
        for kind in Kind::ALL {
            let source = marks(written, kind, &masks);
            let original = |range: &Range<usize>| self.original_mark(range);
            let source_marks: Vec<&str> = source.iter().map(original).collect();
            let changed =
                source.iter().zip(&source_marks).any(|(at, mark)| written[at.clone()] != **mark);
            if !changed {
                continue;
            }
            let found = marks(output, kind, masked);
            let source = Marks { text: written, places: &source, originals: &source_marks };
            let originals = originals(&source, kind, output, &found);
            for (range, mark) in found.into_iter().zip(originals) {
                let mark = mark.filter(|mark| output[range.clone()] != **mark);
                replacements.extend(mark.map(|mark| (range, mark.into())));
            }
        }
    }

    /// The original of a mark of the rewritten text, with a backslash before it.
    fn original_mark(&self, range: &Range<usize>) -> &str {
        let mut old = self.written.old_range(range);
        let is_quote = matches!(&self.written.text[range.clone()], "\"" | "'");
        if is_quote && self.original[..old.start].ends_with('\\') {
            old.start -= 1;
        }
        &self.original[old]
    }

    /// Restores white space: each run replaces the blank nearest to its place.
    fn restore_spaces<'s>(
        &'s self,
        output: &str,
        links: &[Link],
        masked: &[Range<usize>],
        replacements: &mut Vec<Replacement<'s>>,
    ) {
        let free = |at: &usize| !masked.iter().any(|range| range.contains(at));
        let mut blanks: Vec<usize> =
            output.match_indices(' ').map(|(at, _)| at).filter(free).collect();
        for run in &self.spaces {
            let place = self.place_of(run.start, output, links);
            let nearest = (0..blanks.len()).min_by_key(|&number| blanks[number].abs_diff(place));
            let Some(nearest) = nearest else { break };
            let at = blanks.remove(nearest);
            replacements.push((at..at + 1, self.original[run.clone()].into()));
        }
    }
}

/// Sorts replacements. The blank between two masks belongs to the first, and insertions follow it.
fn put_in_order(replacements: &mut [Replacement<'_>]) {
    replacements.sort_by_key(|(range, _)| (range.start, range.end));
    let mut end = 0;
    for (range, _) in replacements {
        *range = range.start.max(end)..range.end.max(end);
        end = range.end;
    }
}

/// Sorted ranges, each without the overlap with the one before.
fn disjoint(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut end = 0;
    let clip = |range: Range<usize>| {
        let start = range.start.max(end);
        end = end.max(range.end);
        start..end.max(start)
    };
    ranges.into_iter().map(clip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// What the model gets unchanged comes back unchanged, with or without the short cut.
        #[test]
        fn the_short_cut_changes_nothing(
            text in "[A-Za-z0-9 .,'\"\\\\\\-–—“”’…é\t]{0,40}",
            output in "[A-Za-z0-9 .,'\"\\\\\\-é]{0,40}",
        ) {
            let speller = Speller::from_fn(|text| !text.contains(['“', '”', '—', '…', '\\']));
            let style = speller.styles().first().copied();
            for (style, lowers) in [(style, true), (None, false)] {
                let stretches = speller.stretches(&text, &[]);
                let carried = speller.write(&text, &stretches, style, lowers);
                let slowly = Carried { changes_nothing: false, ..carried.clone() };
                let (quick, slow) = (carried.restore(&output, &[]), slowly.restore(&output, &[]));
                proptest::prop_assert_eq!(quick, slow, "{:?} {:?}", &text, &output);
            }
        }
    }
}
