//! Masks: words that models copy.
//!
//! Measured on three models: `X1` came back in 77 of 77 sentences; `{1}`, `<1>` and other masks of rare characters in none.

use std::collections::HashSet;
use std::ops::Range;

/// The form of masks: a prefix and a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskStyle(&'static str);

impl MaskStyle {
    /// All styles, the best first.
    pub const ALL: [MaskStyle; 5] =
        [MaskStyle("X"), MaskStyle("XX"), MaskStyle("PH"), MaskStyle("N00"), MaskStyle("A1234")];

    /// The mask with that number.
    pub fn mask(self, number: usize) -> String {
        format!("{}{number}", self.0)
    }

    /// Masks for a text: numbers from 1 that the text does not hold.
    pub(super) fn masks_for(self, text: &str) -> impl Iterator<Item = String> + '_ {
        let held = self.numbers_in(text);
        let free = (1..).filter(move |number| !held.contains(number));
        free.map(move |number| self.mask(number))
    }

    /// The numbers that follow the prefix in a text, in any case, with all of their own prefixes.
    fn numbers_in(self, text: &str) -> HashSet<usize> {
        let (bytes, beginning) = (text.as_bytes(), self.0.as_bytes());
        let mut numbers = HashSet::new();
        for at in 0..(bytes.len() + 1).saturating_sub(beginning.len()) {
            if !bytes[at..at + beginning.len()].eq_ignore_ascii_case(beginning) {
                continue;
            }
            let mut number = 0;
            // No text has so many masks that a number needs ten digits.
            for digit in bytes[at + beginning.len()..].iter().take(9) {
                let Some(digit) = char::from(*digit).to_digit(10) else { break };
                number = 10 * number + digit as usize;
                numbers.insert(number);
            }
        }
        numbers
    }
}

/// The byte ranges of a mask in a text as a whole word, in any case.
pub(super) fn occurrences(text: &str, mask: &str) -> Vec<Range<usize>> {
    let (bytes, wanted) = (text.as_bytes(), mask.as_bytes());
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(window) = bytes.get(at..at + wanted.len()) {
        let end = at + wanted.len();
        let free = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        if window.eq_ignore_ascii_case(wanted) && free(before) && free(bytes.get(end)) {
            found.push(at..end);
            at = end;
        } else {
            at += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_text_holds_are_skipped() {
        let masks: Vec<String> = MaskStyle::ALL[0].masks_for("x1 and BX3").take(3).collect();
        assert_eq!(masks, ["X2", "X4", "X5"]);
    }

    #[test]
    fn masks_are_words() {
        assert_eq!(occurrences("X1, x1 X12 aX1 在X1中", "X1"), [0..2, 4..6, 18..20]);
        assert!(occurrences("", "X1").is_empty());
    }
}
