//! Where sentences end.
//!
//! Rules over punctuation, the letter behind it and lists of abbreviations, for the languages of
//! Europe; Chinese, Japanese, Indic, Arabic and Ethiopic punctuation. No dictionary and no
//! statistics: the same text is always split at the same places. A doubtful place is not split,
//! since two sentences together are translated better than half a one.

mod abbreviations;
mod over_long;

pub use over_long::{LONGEST, Piece, cut_place, encode_pieces};

use std::ops::Range;

use crate::trim_range;

/// How text is split before it is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Split {
    /// A text is a sentence.
    #[default]
    None,
    /// A line may hold several sentences, and every line ends one.
    Sentence,
    /// Sentences may go on over lines; an empty line ends a paragraph.
    Paragraph,
}

impl Split {
    /// The sentences of a text that is split this way: where each begins and ends. Unless a text is one sentence, they are without
    /// the white space around them.
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

/// The sentences of a text: where each begins and ends, without the white space around it. A sentence may go on over the
/// end of a line, but not over an empty line.
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
        let end = end_of_marks(text, mark);
        if ends_sentence(text, start, mark, end) {
            push(start..end);
            start = end;
        }
        at = end;
    }
    push(start..text.len());
}

fn is_terminator(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…' | '‼' | '⁇' | '⁈' | '⁉' | '\u{37e}') || is_strong(c)
}

/// Marks that end a sentence whatever follows.
fn is_strong(c: char) -> bool {
    is_wide(c) || matches!(c, '؟' | '۔' | '।' | '॥' | '።' | '፧' | '།' | '။' | '។')
}

/// Marks after which no blank is written.
fn is_wide(c: char) -> bool {
    matches!(c, '。' | '！' | '？' | '｡' | '．')
}

fn is_closing(c: char) -> bool {
    matches!(
        c,
        '"' | '\''
            | '”'
            | '’'
            | '»'
            | '›'
            | ')'
            | ']'
            | '}'
            | '」'
            | '』'
            | '）'
            | '】'
            | '》'
            | '〉'
            | '］'
            | '“'
    )
}

fn is_opening(c: char) -> bool {
    matches!(
        c,
        '"' | '\''
            | '“'
            | '‘'
            | '„'
            | '‚'
            | '«'
            | '‹'
            | '»'
            | '('
            | '['
            | '{'
            | '¿'
            | '¡'
            | '「'
            | '『'
            | '（'
            | '【'
            | '-'
            | '–'
            | '—'
            | '*'
            | '•'
    )
}

/// Behind the marks that begin at `mark`, and the quotes and brackets they close.
fn end_of_marks(text: &str, mark: usize) -> usize {
    let rest = &text[mark..];
    let after_marks = rest.trim_start_matches(is_terminator);
    // A low quote that closes in German opens in English; after a mark and before a letter it opens.
    let mut end = text.len() - after_marks.len();
    for c in after_marks.chars() {
        let behind = &text[end + c.len_utf8()..];
        if !is_closing(c) || (c == '“' && behind.starts_with(char::is_alphanumeric)) {
            break;
        }
        end += c.len_utf8();
    }
    end
}

/// Whether the marks from `mark` to `end` end the sentence that began at `start`.
fn ends_sentence(text: &str, start: usize, mark: usize, end: usize) -> bool {
    let marks = &text[mark..end];
    let after = &text[end..];
    if after.trim_start().is_empty() {
        return true;
    }
    if marks.starts_with(is_wide) {
        // A quotation that the sentence goes on after.
        let quoted = marks.ends_with(is_closing);
        return !(quoted && after.starts_with(['と', 'っ', 'の', '、', '，', ',', '的', '）']));
    }
    if !after.starts_with(char::is_whitespace) {
        return false;
    }
    if marks.starts_with(is_strong) {
        return true;
    }
    let next = after.trim_start().trim_start_matches(|c| is_opening(c) || c == ' ');
    if next.starts_with(char::is_lowercase) {
        return false;
    }
    if marks.trim_end_matches(is_closing) == "." {
        return !is_abbreviation(&text[start..mark], next);
    }
    true
}

/// Whether a full stop behind `before` belongs to its last word. `next` follows.
fn is_abbreviation(before: &str, next: &str) -> bool {
    let word_start = before
        .rfind(char::is_whitespace)
        .map_or(0, |i| i + before[i..].chars().next().map_or(0, char::len_utf8));
    let word = before[word_start..].trim_start_matches(is_opening);
    let word = word.trim_start_matches(['’', '\'', '/']);
    if word.is_empty() {
        return false;
    }
    if word.chars().all(|c| c.is_ascii_digit()) {
        let first = before.trim_start().len() == word.len();
        let small = word.len() <= 2;
        let next_word: &str = next.split_whitespace().next().unwrap_or("");
        return small && (first || abbreviations::is_counted(next_word));
    }
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    let initial = letters == 1 && word.chars().all(|c| c.is_uppercase() || c == '.');
    let dotted = word.contains('.') && word.split('.').all(is_one_capital);
    initial && word != "I"
        || dotted
        || abbreviations::never_ends(word)
        || (next.starts_with(|c: char| c.is_numeric()) && abbreviations::goes_with_number(word))
}

fn is_one_capital(part: &str) -> bool {
    let mut letters = part.chars();
    letters.next().is_some_and(char::is_uppercase) && letters.next().is_none()
}

/// Puts the translations of two parts together. `between` is what stood between their sources: it
/// is kept, but scripts that need no blank get none and others get one. The end of a line is always kept.
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

/// What [`join`] puts between two translations.
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
