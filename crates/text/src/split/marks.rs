//! The marks that end sentences, and what may stand behind them.

/// Marks that may end a sentence.
pub(super) fn is_terminator(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…' | '‼' | '⁇' | '⁈' | '⁉' | '\u{37e}') || is_strong(c)
}

/// Marks that end a sentence whatever follows.
pub(super) fn is_strong(c: char) -> bool {
    is_wide(c) || matches!(c, '؟' | '۔' | '।' | '॥' | '።' | '፧' | '།' | '။' | '។')
}

/// Marks after which no blank is written.
pub(super) fn is_wide(c: char) -> bool {
    matches!(c, '。' | '！' | '？' | '｡' | '．')
}

/// Marks that close what a sentence stands in.
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
    )
}

/// Marks that may stand before the first letter of a sentence.
pub(super) fn is_opening(c: char) -> bool {
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

/// Where marks end.
#[derive(Clone, Copy)]
pub(super) struct MarkEnds {
    /// Behind the marks, and the quotes and brackets they close.
    pub(super) marks: usize,
    /// Behind what belongs to the sentence too: the number of a note, an emoji.
    pub(super) all: usize,
}

/// Where the marks that begin at `mark` end.
pub(super) fn end_of_marks(text: &str, mark: usize) -> MarkEnds {
    let after_marks = text[mark..].trim_start_matches(is_terminator);
    let mut marks = text.len() - after_marks.len();
    while let Some(length) = closing(&text[marks..]) {
        marks += length;
    }
    let rest = &text[marks..];
    let all = marks + note(rest).or_else(|| emoji(rest)).unwrap_or(0);
    MarkEnds { marks, all }
}

/// Bytes of the closing mark that a text begins with.
fn closing(text: &str) -> Option<usize> {
    let opens = |behind: &str| behind.starts_with(char::is_alphanumeric);
    let mut characters = text.chars();
    let first = characters.next()?;
    let behind = characters.as_str();
    match first {
        // A low quote that closes in German opens in English, and German turns French quotes around; before a letter they open.
        '“' | '«' | '‹' => (!opens(behind)).then_some(first.len_utf8()),
        // French writes a blank before a closing quote.
        ' ' | '\u{a0}' | '\u{202f}' => {
            let behind = behind.strip_prefix('»')?;
            (!opens(behind)).then_some(text.len() - behind.len())
        }
        _ => is_closing(first).then_some(first.len_utf8()),
    }
}

/// Bytes of the number of a note that a text begins with: `[3]`.
fn note(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('[')?;
    let behind = inside.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(']')?;
    let digits = inside.len() - behind.len() - 1;
    (1..=3).contains(&digits).then_some(text.len() - behind.len())
}

/// Bytes of the emoji that a text begins with, with blanks before them, if nothing but white space follows.
fn emoji(text: &str) -> Option<usize> {
    let behind = text.trim_start_matches(|c| c == ' ' || is_emoji(c));
    let run = &text[..text.len() - behind.len()];
    let emoji = run.trim_end_matches(' ');
    let alone =
        emoji.len() < run.len() || behind.is_empty() || behind.starts_with(char::is_whitespace);
    (!emoji.is_empty() && alone).then_some(emoji.len())
}

/// Whether a character is a part of an emoji.
fn is_emoji(c: char) -> bool {
    matches!(
        c,
        '\u{200d}'
            | '\u{2600}'..='\u{27bf}'
            | '\u{2b50}'
            | '\u{fe0f}'
            | '\u{1f1e6}'..='\u{1f1ff}'
            | '\u{1f300}'..='\u{1faff}'
    )
}
