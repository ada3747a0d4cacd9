//! Emoji and faces made of punctuation.

use super::run;

/// Whether a character is an emoji, or begins one.
pub(in super::super) fn is_emoji(c: char) -> bool {
    matches!(
        c,
        '\u{1f000}'..='\u{1faff}'
            | '\u{2600}'..='\u{27bf}'
            | '\u{2b05}'..='\u{2b07}'
            | '\u{2b1b}' | '\u{2b1c}' | '\u{2b50}' | '\u{2b55}'
            | '\u{231a}' | '\u{231b}' | '\u{2328}' | '\u{23cf}'
            | '\u{23e9}'..='\u{23fa}'
            | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
    )
}

/// Whether a character joins or modifies emoji: joiner, variation selector, keycap, tags of flags.
fn continues(c: char) -> bool {
    matches!(c, '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' | '\u{20e3}' | '\u{e0020}'..='\u{e007f}')
}

/// A run of emoji without blanks.
pub(super) fn emoji(text: &str, at: usize) -> Option<usize> {
    Some(at + run(&text[at..], |c| is_emoji(c) || continues(c)))
}

/// A keycap: a digit in a box.
pub(super) fn keycap(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at + 1..];
    let length = run(rest, continues);
    rest[..length].contains('\u{20e3}').then_some(at + 1 + length)
}

/// `:-)`, `;)`, `<3`.
pub(super) fn emoticon(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let alone =
        |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || matches!(c, '.' | ',' | '!'));
    if !text[..at].chars().next_back().is_none_or(char::is_whitespace) {
        return None;
    }
    let eyes = 1;
    let nose = usize::from(rest[eyes..].starts_with('-'));
    let mouth = rest[eyes + nose..].chars().next()?;
    let end = eyes + nose + mouth.len_utf8();
    let is_face =
        matches!(mouth, ')' | '(' | 'D' | 'P' | 'p' | 'O' | 'o' | '/' | '|' | ']' | '[' | '*');
    let is_heart = rest.starts_with("<3");
    let is_face = is_face && !rest.starts_with('<') || is_heart;
    (is_face && alone(rest[end..].chars().next())).then_some(at + end)
}
