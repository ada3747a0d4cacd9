//! Words: tokens that belong together.

use std::ops::Range;

/// The words of a text, put together from its tokens.
///
/// A word ends at white space. In a script that writes no blanks between words every token is a word.
///
/// ```
/// use peregrine_text::Words;
///
/// let text = "unlock it";
/// let words = Words::new(text, &[0..2, 2..6, 7..9]);
/// assert_eq!(words.ranges, [0..6, 7..9]);
/// assert_eq!(words.of_token, [Some(0), Some(0), Some(1)]);
/// let words = Words::new("我爱你", &[0..3, 3..9]);
/// assert_eq!(words.ranges, [0..3, 3..9]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// Where each word is in the text.
    pub ranges: Vec<Range<usize>>,
    /// The word of each token. A token without text belongs to the word that begins where it stands, else to the
    /// one before.
    pub of_token: Vec<Option<usize>>,
}

impl Words {
    /// The words of `text`. `tokens` are byte ranges of it that never go backwards.
    pub fn new(text: &str, tokens: &[Range<usize>]) -> Words {
        let mut words = Words::default();
        for (number, token) in tokens.iter().enumerate() {
            let token = trim_range(text, token);
            if token.is_empty() {
                let next = tokens[number..].iter().map(|next| trim_range(text, next));
                let next = next.into_iter().find(|next| !next.is_empty());
                let begins = next.is_some_and(|next| next.start == token.start);
                let last = words.ranges.len().checked_sub(1);
                let word = match begins && words.breaks_at(text, token.start) {
                    true => Some(last.map_or(0, |last| last + 1)),
                    false => last,
                };
                words.of_token.push(word);
                continue;
            }
            if words.breaks_at(text, token.start) {
                words.ranges.push(token.clone());
            }
            if let Some(last) = words.ranges.last_mut() {
                last.end = token.end;
            }
            words.of_token.push(Some(words.ranges.len() - 1));
        }
        words
    }

    /// Whether a token that begins there begins a word.
    fn breaks_at(&self, text: &str, start: usize) -> bool {
        let Some(last) = self.ranges.last() else { return true };
        let gap = text.get(last.end..start).unwrap_or_default();
        gap.contains(char::is_whitespace)
            || text[..last.end].ends_with(is_unspaced)
            || text[start..].starts_with(is_unspaced)
    }
}

/// A range of a text without the white space at its ends; nothing but white space is an empty range at its end. An end within
/// a character is moved before it.
///
/// ```
/// use peregrine_text::trim_range;
/// assert_eq!(trim_range("one  two ", &(3..9)), 5..8);
/// assert_eq!(trim_range("one  two", &(3..5)), 5..5);
/// ```
pub fn trim_range(text: &str, range: &Range<usize>) -> Range<usize> {
    let end = text.floor_char_boundary(range.end);
    let inside = text[text.floor_char_boundary(range.start).min(end)..end].trim_start();
    let start = end - inside.len();
    start..start + inside.trim_end().len()
}

/// Whether a character belongs to a script that writes no blanks between words: Chinese, Japanese, Thai, Lao,
/// Khmer, Burmese, Tibetan.
pub fn is_unspaced(c: char) -> bool {
    matches!(
        c,
        '\u{e00}'..='\u{eff}'
            | '\u{f00}'..='\u{109f}'
            | '\u{1780}'..='\u{17ff}'
            | '\u{19e0}'..='\u{19ff}'
            | '\u{2e80}'..='\u{312f}'
            | '\u{31a0}'..='\u{9fff}'
            | '\u{a9e0}'..='\u{a9ff}'
            | '\u{aa60}'..='\u{aa7f}'
            | '\u{f900}'..='\u{faff}'
            | '\u{ff00}'..='\u{ff9f}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_without_text_belong_to_a_word_too() {
        // A blank of its own before a word, a character in bytes, a token that was dropped.
        let words = Words::new("a 🦀b c", &[0..1, 2..2, 2..2, 2..6, 6..7, 7..7, 8..9, 9..9]);
        assert_eq!(words.ranges, [0..1, 2..7, 8..9]);
        let expected = [0, 1, 1, 1, 1, 1, 2, 2].map(Some);
        assert_eq!(words.of_token, expected);
    }

    #[test]
    fn white_space_at_the_ends_of_tokens_is_left_out() {
        let words = Words::new(" one two\u{a0}three ", &[0..4, 4..8, 8..16]);
        assert_eq!(words.ranges, [1..4, 5..8, 10..15]);
    }

    #[test]
    fn nothing_has_no_words() {
        assert_eq!(Words::new("", &[]), Words::default());
        assert_eq!(Words::new("  ", &[0..1, 2..2]).of_token, [None, None]);
    }

    #[test]
    fn scripts_trim_range_beside_others() {
        let text = "iPhone手机";
        assert_eq!(Words::new(text, &[0..1, 1..6, 6..9, 9..12]).ranges, [0..6, 6..9, 9..12]);
        assert_eq!(Words::new("한국어 a", &[0..3, 3..9, 10..11]).ranges, [0..9, 10..11]);
    }
}
