//! Sentence splitting.
//!
//! The rules use punctuation, the letter after it and lists of abbreviations, for the languages of
//! Europe and for Chinese, Japanese, Indic, Arabic and Ethiopic punctuation. There are no
//! dictionaries and no statistics: the same text is always split at the same places. In doubt a
//! text is not split, because two sentences together are translated better than half of one.

mod abbreviations;
mod marks;
mod over_long;

pub use over_long::{LONGEST, Piece, cut_place, encode_pieces};

use std::ops::Range;

use crate::{is_unspaced, trim_range};
use marks::{MarkEnds, end_of_marks, is_opening, is_strong, is_terminator, is_wide};

/// How text is split before it is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Split {
    /// Every text is one sentence.
    #[default]
    None,
    /// A line may have several sentences, and a line break ends one.
    Sentence,
    /// Sentences may continue on the next line; an empty line ends a paragraph.
    Paragraph,
}

impl Split {
    /// The byte ranges of the sentences of a text. Unless a text is one sentence, they exclude the
    /// white space around them.
    ///
    /// ```
    /// use peregrine_text::Split;
    /// let text = "One. Two\nlines.\n\nThree.\n";
    /// assert_eq!(Split::None.sentences(text), [0..24]);
    /// assert_eq!(Split::Sentence.sentences(text), [0..4, 5..8, 9..15, 17..23]);
    /// assert_eq!(Split::Paragraph.sentences(text), [0..4, 5..15, 17..23]);
    /// ```
    pub fn sentences(self, text: &str) -> Vec<Range<usize>> {
        match self {
            Split::None => std::iter::once(0..text.len()).collect(),
            Split::Paragraph => sentences(text),
            Split::Sentence => {
                let mut ranges = Vec::new();
                let mut start = 0;
                for line in text.split_inclusive('\n') {
                    add_sentences(text, start..start + line.len(), &mut ranges);
                    start += line.len();
                }
                ranges
            }
        }
    }
}

impl std::str::FromStr for Split {
    type Err = String;

    fn from_str(name: &str) -> Result<Split, String> {
        match name {
            "none" => Ok(Split::None),
            "sentence" => Ok(Split::Sentence),
            "paragraph" => Ok(Split::Paragraph),
            _ => Err("expected none, sentence or paragraph".to_owned()),
        }
    }
}

/// The byte ranges of the sentences of a text, without the white space around them. A sentence may
/// continue after a line break, but not after an empty line.
///
/// ```
/// use peregrine_text::sentences;
/// let text = "Dr. Smith paid 3.50 on Jan. 3. \"Why?\" he asked. Nobody knew.";
/// let found: Vec<&str> = sentences(text).into_iter().map(|range| &text[range]).collect();
/// assert_eq!(found, [
///     "Dr. Smith paid 3.50 on Jan. 3.",
///     "\"Why?\" he asked.",
///     "Nobody knew.",
/// ]);
/// ```
pub fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut end) = (0, 0);
    for line in text.split_inclusive('\n') {
        end += line.len();
        if end == text.len() || line.trim_start().is_empty() {
            add_sentences(text, start..end, &mut ranges);
            start = end;
        }
    }
    ranges
}

/// Adds the sentences of a part of a text.
fn add_sentences(text: &str, part: Range<usize>, ranges: &mut Vec<Range<usize>>) {
    let offset = part.start;
    let text = &text[part];
    let mut push = |range: Range<usize>| {
        let range = trim_range(text, &range);
        if !range.is_empty() {
            ranges.push(offset + range.start..offset + range.end);
        }
    };
    let mut start = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find(is_terminator) {
        let mark = at + found;
        let ends = end_of_marks(text, mark);
        if ends_sentence(text, start, mark, ends) {
            push(start..ends.all);
            start = ends.all;
        }
        at = ends.all;
    }
    push(start..text.len());
}

/// Whether the marks from `mark` end the sentence that began at `start`.
fn ends_sentence(text: &str, start: usize, mark: usize, ends: MarkEnds) -> bool {
    let marks = &text[mark..ends.marks];
    let after = &text[ends.all..];
    if after.trim_start().is_empty() {
        return true;
    }
    let closing = marks.trim_start_matches(is_terminator);
    let core = &marks[..marks.len() - closing.len()];
    if core.contains(is_wide) {
        return closing.is_empty() || !goes_on_after_quotation(after);
    }
    if core.contains(is_strong) {
        return after
            .starts_with(|c: char| c.is_whitespace() || c.is_alphanumeric() || is_opening(c));
    }
    if !after.starts_with(char::is_whitespace) {
        return false;
    }
    let next = after.trim_start().trim_start_matches(|c| is_opening(c) || c == ' ');
    if is_list_letter(next) && is_list_letter(text[start..mark].trim_start()) {
        return true;
    }
    if next.starts_with(char::is_lowercase) && !is_camel(next) {
        return false;
    }
    match core {
        "." => !is_abbreviation(&text[start..mark], next),
        // In scripts without case a pause cannot be told from the end of a sentence.
        "..." | "…" => !next.starts_with(|c: char| is_caseless(c) && !is_unspaced(c)),
        _ => true,
    }
}

/// Whether a sentence continues after a quotation that ends in a mark.
fn goes_on_after_quotation(after: &str) -> bool {
    if after.starts_with(['と', 'っ', 'の', '、', '，', ',', '的', '）']) {
        return true;
    }
    // In Chinese, a clause that names the speaker follows, up to the next mark.
    let clause = after.split(['，', '。', '！', '？', '：', '；']).next().unwrap_or_default();
    let says = clause.ends_with(['说', '說', '问', '問', '道', '喊', '答', '叫', '想']);
    says && !clause.ends_with("知道") && clause.chars().count() <= 6
}

/// Whether a text begins with a small letter that numbers an item of a list: `b. Turn right`.
fn is_list_letter(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|c| c.is_ascii_lowercase())
        && characters.next() == Some('.')
        && characters.next().is_some_and(char::is_whitespace)
        && characters.next().is_some_and(char::is_uppercase)
}

/// Whether a text begins with a name such as `iPhone`.
fn is_camel(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(char::is_lowercase)
        && characters.next().is_some_and(char::is_uppercase)
        && characters.next().is_some_and(char::is_alphabetic)
}

/// Whether a letter is neither small nor capital.
fn is_caseless(c: char) -> bool {
    c.is_alphabetic() && !c.is_lowercase() && !c.is_uppercase()
}

/// Whether a full stop after `before` belongs to its last word. `next` is the text after the stop.
fn is_abbreviation(before: &str, next: &str) -> bool {
    let (rest, word) = last_word(before);
    let word = word.trim_start_matches(is_opening);
    let word = word.trim_start_matches(['’', '\'', '/']);
    let next_word = next.split_whitespace().next().unwrap_or_default();
    if word.is_empty() {
        return false;
    }
    let first = rest.trim_start().is_empty();
    if word.chars().all(|c| c.is_ascii_digit()) {
        let small = word.len() <= 2;
        return small && (first || abbreviations::is_counted(next_word) || is_counted(next_word));
    }
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    let initial = letters == 1 && word.chars().all(|c| c.is_uppercase() || c == '.');
    let single = letters == 1 && word.chars().count() == 1;
    let dotted = word.contains('.')
        && word.split(['.', '-']).filter(|part| !part.is_empty()).all(is_one_capital);
    if dotted || word == "St" {
        return !abbreviations::begins_sentence(next_word);
    }
    initial && word != "I"
        || single && (first || word.chars().all(is_caseless))
        || is_spaced(word)
            && (is_spaced_next(next_word) || is_spaced_next(last_word(rest.trim_end()).1))
        || word == "Co" && is_capitals(next_word)
        || abbreviations::never_ends(word)
        || next.starts_with(|c: char| c.is_numeric()) && abbreviations::goes_with_number(word)
}

/// A text without its last word, and that word.
fn last_word(text: &str) -> (&str, &str) {
    let start = text
        .rfind(char::is_whitespace)
        .map_or(0, |i| i + text[i..].chars().next().map_or(0, char::len_utf8));
    text.split_at(start)
}

/// Whether a word may be a part of an abbreviation with blanks in it: one letter, or a capital twice (`z. B.`, `EE. UU.`).
fn is_spaced(word: &str) -> bool {
    let mut letters = word.chars();
    match (letters.next(), letters.next(), letters.next()) {
        (Some(only), None, _) => only.is_alphabetic() && word != "I",
        (Some(first), Some(second), None) => first == second && first.is_uppercase(),
        _ => false,
    }
}

/// Like [`is_spaced`], for a word with its full stop.
fn is_spaced_next(word: &str) -> bool {
    word.strip_suffix('.').is_some_and(is_spaced)
}

/// Whether a number with a full stop belongs to a next number (`24. 12.`) or to a name (`1. FC`).
fn is_counted(next_word: &str) -> bool {
    let number = next_word.strip_suffix('.');
    number.is_some_and(|n| matches!(n.len(), 1 | 2) && n.bytes().all(|b| b.is_ascii_digit()))
        || is_capitals(next_word) && next_word.chars().count() <= 3
}

/// Whether a word is two or more capitals.
fn is_capitals(word: &str) -> bool {
    word.chars().count() > 1 && word.chars().all(char::is_uppercase)
}

fn is_one_capital(part: &str) -> bool {
    let mut letters = part.chars();
    letters.next().is_some_and(char::is_uppercase) && letters.next().is_none()
}

/// Joins the translations of two parts. `between` is the text between their sources. It is kept,
/// except that scripts without blanks get none and others get one. A line break is always kept.
///
/// ```
/// use peregrine_text::join;
/// assert_eq!(join("One.", "  ", "Two."), "One.  Two.");
/// assert_eq!(join("One.", "", "Two."), "One. Two.");
/// assert_eq!(join("一。", " ", "二。"), "一。二。");
/// assert_eq!(join("一。", " \n", ""), "一。 \n");
/// ```
pub fn join(left: &str, between: &str, right: &str) -> String {
    format!("{left}{}{right}", separator(left, between, right))
}

/// The text that [`join`] puts between two translations.
pub fn separator<'a>(left: &str, between: &'a str, right: &str) -> &'a str {
    let unspaced = |c: char| matches!(c, '\u{3000}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ff00}'..='\u{ffef}');
    let tight = left.ends_with(unspaced) || right.starts_with(unspaced);
    match between {
        _ if between.contains('\n') => between,
        _ if left.is_empty() || right.is_empty() => "",
        " " | "" if tight => "",
        "" => " ",
        _ => between,
    }
}

#[cfg(test)]
mod tests;
