//! The marks that end sentences, and the characters that may follow them.

/// Whether a mark may end a sentence.
pub(super) fn is_terminator(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…' | '‼' | '⁇' | '⁈' | '⁉' | '\u{37e}') || is_strong(c)
}

/// Whether a mark ends a sentence whatever follows.
pub(super) fn is_strong(c: char) -> bool {
    is_wide(c) || matches!(c, '؟' | '۔' | '।' | '॥' | '።' | '፧' | '།' | '။' | '។')
}

/// Whether no blank is written after a mark.
pub(super) fn is_wide(c: char) -> bool {
    matches!(c, '。' | '！' | '？' | '｡' | '．')
}

/// Whether a mark closes a quotation or bracket around a sentence.
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

/// Whether a mark may precede the first letter of a sentence.
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

/// The ends of a run of marks.
#[derive(Clone, Copy)]
pub(super) struct MarkEnds {
    /// The end of the marks and of closing quotes and brackets.
    pub(super) marks: usize,
    /// The end of everything that belongs to the sentence, with note numbers and emoji.
    pub(super) all: usize,
}

/// The ends of the marks that begin at `mark`.
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

/// The length in bytes of a closing mark at the start of a text.
fn closing(text: &str) -> Option<usize> {
    let opens = |behind: &str| behind.starts_with(char::is_alphanumeric);
    let mut characters = text.chars();
    let first = characters.next()?;
    let behind = characters.as_str();
    match first {
        // These quotes close in some languages and open in others (“ closes in German and opens in
        // English; German reverses French quotes). Before a letter they open.
        '“' | '«' | '‹' => (!opens(behind)).then_some(first.len_utf8()),
        // French writes a blank before a closing quote.
        ' ' | '\u{a0}' | '\u{202f}' => {
            let behind = behind.strip_prefix('»')?;
            (!opens(behind)).then_some(text.len() - behind.len())
        }
        _ => is_closing(first).then_some(first.len_utf8()),
    }
}

/// The length in bytes of a note number at the start of a text: `[3]`.
fn note(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('[')?;
    let behind = inside.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(']')?;
    let digits = inside.len() - behind.len() - 1;
    (1..=3).contains(&digits).then_some(text.len() - behind.len())
}

/// The length in bytes of the emoji at the start of a text, with blanks before them, if only white
/// space follows.
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
