//! Numbers of a source that its translation lacks.

use std::ops::Range;

/// A number with fewer digits may become a word or Roman numerals.
const LEAST_DIGITS: usize = 3;

/// The numbers of a text that its translation lacks, with any separators. Numbers of one or two
/// digits are ignored, because hours and centuries may change. Three zeros may become a word.
///
/// ```
/// use peregrine_text::carry::missing_numbers;
/// let source = "1,250 people came in 1987 at 7 pm.";
/// assert!(missing_numbers(source, "Em 1987 vieram 1.250 pessoas às 19h.").is_empty());
/// assert_eq!(missing_numbers(source, "Em 1978 vieram 1.250 pessoas às 19h."), [21..25]);
/// ```
pub fn missing_numbers(source: &str, translation: &str) -> Vec<Range<usize>> {
    if !source.bytes().any(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let found = digits(translation);
    let missing = |number: &Range<usize>| {
        let wanted = digits(&source[number.clone()]);
        let rounded = wanted.trim_end_matches("000");
        wanted.len() >= LEAST_DIGITS && !found.contains(rounded)
    };
    numbers(source).into_iter().filter(missing).collect()
}

/// The byte ranges of numbers in a text: digits, with a separator between two of them, or a blank
/// before three.
pub(crate) fn numbers(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !digit(at) {
            at += 1;
            continue;
        }
        let start = at;
        loop {
            while digit(at) {
                at += 1;
            }
            let separated = matches!(bytes.get(at), Some(b'.' | b',')) && digit(at + 1);
            let group = bytes.get(at) == Some(&b' ')
                && (1..4).all(|place| digit(at + place))
                && !digit(at + 4);
            if !separated && !group {
                break;
            }
            at += 1;
        }
        found.push(start..at);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_one_number() {
        let text = "1 250 000 and 3.75, 12/05/2024 or 7 8 9";
        let texts: Vec<&str> = numbers(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(texts, ["1 250 000", "3.75", "12", "05", "2024", "7", "8", "9"]);
    }

    #[test]
    fn separators_and_order_may_change() {
        assert!(missing_numbers("12/25/2024: 1,234.56", "25/12/2024: 1.234,56").is_empty());
        assert!(missing_numbers("in the '90s", "nos anos 1990").is_empty());
        assert!(missing_numbers("3 dogs", "três cães").is_empty());
        assert_eq!(missing_numbers("147 dogs", "122 cães").first(), Some(&(0..3)));
        assert!(missing_numbers("at 11 p.m., 15th century", "às 23h, século XV").is_empty());
        assert!(missing_numbers("330,000 of 6,000,000", "330 mil de 6 milhões").is_empty());
    }
}
