//! What a model can spell, and the stretches of a text that it cannot.

use std::ops::Range;

use super::typography::{twin, twinned};
use super::{MaskStyle, patterns};
use crate::{Tokenizer, is_unspaced};

/// The most bytes on either side of an unknown character that are searched for the ends of its
/// word.
const LONGEST_WORD: usize = 256;

/// What a model can spell.
#[derive(Debug, Clone, Default)]
pub struct Speller {
    /// Whether an id of the source vocabulary is its unknown symbol or a byte piece. Greater ids are not.
    unspelt_ids: Vec<bool>,
    /// Typographic characters that the model cannot spell but whose plain equivalents it can,
    /// sorted.
    twinned: Vec<char>,
    /// Characters that normalisation changes, sorted: `²` becomes `2`.
    changing: Vec<char>,
    /// Mask styles that both vocabularies can spell, the best first.
    styles: Vec<MaskStyle>,
}

impl Speller {
    /// The speller of a model with these vocabularies.
    pub fn new(source: &Tokenizer, target: &Tokenizer) -> Speller {
        let bytes = (0..=255).filter_map(|byte: u8| source.id(&format!("<0x{byte:02X}>")));
        let mut unspelt_ids: Vec<u32> = bytes.chain(source.unk()).collect();
        unspelt_ids.sort_unstable();
        let can = |text: &str| {
            let ids = source.encode(text).ids;
            !ids.is_empty() && !ids.iter().any(|id| unspelt_ids.binary_search(id).is_ok())
        };
        let returns = |text: &str| {
            let ids = target.encode(text).ids;
            Some(true) == target.unk().map(|unk| !ids.contains(&unk)) && target.decode(&ids) == text
        };
        let changing = changing()
            .filter(|c| source.decode(&source.encode(&c.to_string()).ids) != c.to_string());
        let changing = changing.collect();
        let mut speller = Speller { changing, ..Speller::from_fn(can) };
        speller.styles.retain(|style| returns(&style.mask(1)));
        let greatest = unspelt_ids.last().map_or(0, |&id| id as usize + 1);
        speller.unspelt_ids = vec![false; greatest];
        unspelt_ids.iter().for_each(|&id| speller.unspelt_ids[id as usize] = true);
        speller
    }

    /// A speller by a function that says whether a character or a mask can be spelt.
    pub fn from_fn(can: impl Fn(&str) -> bool) -> Speller {
        let lost = |c: &char| {
            let plain = twin(*c).unwrap_or_default();
            !can(&c.to_string()) && (plain.trim().is_empty() || can(plain))
        };
        Speller {
            twinned: twinned().filter(lost).collect(),
            styles: MaskStyle::ALL.into_iter().filter(|style| can(&style.mask(1))).collect(),
            ..Speller::default()
        }
    }

    /// The mask styles that the model can spell, the best first.
    pub fn styles(&self) -> &[MaskStyle] {
        &self.styles
    }

    /// The plain equivalent of a character that the model cannot spell.
    pub(super) fn twin(&self, c: char) -> Option<&'static str> {
        self.twinned.binary_search(&c).ok().and_then(|_| twin(c))
    }

    /// The byte ranges of a text that have unknown tokens or byte pieces.
    pub fn unspelt(&self, ids: &[u32], spans: &[Range<usize>]) -> Vec<Range<usize>> {
        let unspelt = |id: &u32| self.unspelt_ids.get(*id as usize) == Some(&true);
        let spans = ids.iter().zip(spans).filter(|(id, span)| unspelt(id) && !span.is_empty());
        spans.map(|(_, span)| span.clone()).collect()
    }

    /// The stretches of a text that must be carried: matches of patterns, and words that cannot be
    /// spelt. `unspelt` is the result of [`Self::unspelt`].
    pub fn stretches(&self, text: &str, unspelt: &[Range<usize>]) -> Vec<Range<usize>> {
        let mut found = patterns::find(text);
        let known = found.len();
        let may_be_changed = !unspelt.is_empty() || !text.is_ascii();
        if may_be_changed && !self.styles.is_empty() {
            let changing = text
                .char_indices()
                .filter(|(_, c)| !c.is_ascii() && self.changing.binary_search(c).is_ok());
            let changing: Vec<_> = changing.map(|(at, c)| at..at + c.len_utf8()).collect();
            for range in runs(unspelt).iter().chain(&changing) {
                if !covers(&found[..known], range) {
                    found.extend(self.word_to_carry(text, range));
                }
            }
        }
        self.join(text, found)
    }

    /// Whether a character is removed for the model.
    pub(super) fn drops(&self, c: char) -> bool {
        self.twin(c) == Some("")
    }

    /// Merges stretches that are adjacent or separated by one blank.
    fn join(&self, text: &str, mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
        found.sort_by_key(|range| (range.start, range.end));
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for range in found {
            let gap = joined.last().and_then(|last| text.get(last.end..range.start));
            let touches = gap.is_none_or(|gap| gap == " " || gap.chars().all(|c| self.drops(c)));
            match joined.last_mut() {
                Some(last) if touches => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        joined
    }

    /// The word around bytes that cannot be spelt; `None` if they have a plain equivalent.
    fn word_to_carry(&self, text: &str, range: &Range<usize>) -> Option<Range<usize>> {
        let spelt = |c: char| c.is_whitespace() || self.twin(c).is_some();
        let inside = text.get(range.clone())?;
        let unspelt = inside.trim_matches(spelt);
        let escapes = inside == "\\" && text[range.end..].starts_with(['"', '\'']);
        if unspelt.is_empty() || escapes {
            return None;
        }
        let start = range.start + inside.len() - inside.trim_start_matches(spelt).len();
        let range = start..start + unspelt.len();
        if unspelt.chars().any(is_unspaced) {
            // In scripts without blanks the end of a word is unknown, so a character between others
            // is left to the model.
            let joins = |c: Option<char>| c.is_some_and(|c| is_unspaced(c) && c.is_alphabetic());
            let before = text[..range.start].chars().next_back();
            let behind = text[range.end..].chars().next();
            return (!joins(before) && !joins(behind)).then_some(range);
        }
        let ends = |c: char| c.is_whitespace() || is_unspaced(c) || matches!(c, '—' | '–' | '…');
        let from = text.floor_char_boundary(range.start.saturating_sub(LONGEST_WORD));
        let to = text.floor_char_boundary(range.end + LONGEST_WORD);
        let before = text[from..range.start].char_indices().rfind(|(_, c)| ends(*c));
        let first = before.map_or(from, |(at, c)| from + at + c.len_utf8());
        let last = text[range.end..to].find(ends).map_or(to, |at| range.end + at);
        let word = &text[first..last];
        let core = word.trim_matches(|c: char| !c.is_alphanumeric());
        let core_start =
            first + word.len() - word.trim_start_matches(|c: char| !c.is_alphanumeric()).len();
        let core = core_start..core_start + core.len();
        if core.start <= range.start && range.end <= core.end && !core.is_empty() {
            return Some(core.start..with_closers(text, &core));
        }
        // A sign next to digits belongs to the number; next to letters it is carried alone.
        let digits = !core.is_empty() && !text[core.clone()].contains(char::is_alphabetic);
        match digits && (core.end == range.start || range.end == core.start) {
            true => Some(core.start.min(range.start)..core.end.max(range.end)),
            false => Some(range),
        }
    }
}

/// The end of a word, with the closing brackets after it that match opening ones within it.
fn with_closers(text: &str, word: &Range<usize>) -> usize {
    let mut end = word.end;
    for c in text[word.end..].chars() {
        let open = match c {
            ')' => '(',
            ']' => '[',
            '}' => '{',
            '>' => '<',
            _ => break,
        };
        let inside = &text[word.start..end];
        if inside.matches(open).count() <= inside.matches(c).count() {
            break;
        }
        end += 1;
    }
    end
}

/// Whether one of some sorted ranges contains another range.
fn covers(ranges: &[Range<usize>], range: &Range<usize>) -> bool {
    let first = ranges.get(ranges.partition_point(|other| other.end < range.end));
    first.is_some_and(|other| other.start <= range.start)
}

/// Merges adjacent ranges; they must be sorted.
fn runs(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match runs.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => runs.push(range.clone()),
        }
    }
    runs
}

/// Characters that normalisation may change.
fn changing() -> impl Iterator<Item = char> {
    let raised = ['ª', '²', '³', '¹', 'º', '¼', '½', '¾'].into_iter();
    raised
        .chain('\u{2070}'..='\u{209c}')
        .chain('\u{2100}'..='\u{218b}')
        .chain('\u{2460}'..='\u{24ff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried<'t>(text: &'t str, unspelt: &str) -> Vec<&'t str> {
        let speller = Speller::from_fn(|text| !text.contains(|c| unspelt.contains(c)));
        let ranges = text.match_indices(|c| unspelt.contains(c)).map(|(at, c)| at..at + c.len());
        let stretches = speller.stretches(text, &ranges.collect::<Vec<_>>());
        stretches.into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn words_are_carried_whole() {
        assert_eq!(carried("in Łódź, and \"Ł.\"", "Ł"), ["Łódź", "Ł"]);
        assert_eq!(
            carried("If x < 5: Vec<Option<String>> holds", "<"),
            ["<", "Vec<Option<String>>"]
        );
        assert_eq!(carried("50 € or £45.", "€£"), ["€", "£45"]);
        assert_eq!(carried("**Note:** this", "*"), ["**", "**"]);
        assert!(carried("有㐀山。", "㐀").is_empty());
        assert_eq!(carried("、㐀㐁、山。", "㐀㐁"), ["㐀㐁"]);
        assert!(carried("plain words", "€").is_empty());
    }

    #[test]
    fn what_has_a_twin_is_not_carried() {
        assert!(carried("“yes” — don’t…", "“”—’…").is_empty());
        assert_eq!(carried("“Łódź”—yes", "“”—Ł"), ["Łódź"]);
    }

    #[test]
    fn neighbours_are_joined() {
        assert_eq!(carried("{first} {last}, hi 🍕 🍕!", ""), ["{first} {last}", "🍕 🍕"]);
    }
}
