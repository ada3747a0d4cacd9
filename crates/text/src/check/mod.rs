//! Checks of a translation against its source that need no model: changed numbers, untranslated
//! text, unusual length, repetition.
//!
//! Each is a pure function of two texts in any languages.

mod copied;
mod length;
mod numbers;
mod repeats;

pub use copied::{is_copy, word_count};
pub use length::{LengthRange, length_ratio};
pub use numbers::numbers_agree;
pub use repeats::repeats_itself;

use crate::is_unspaced;

/// The words of a text in lower case; in a script without blanks every letter is a word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        match word.contains(is_unspaced) {
            true => words.extend(word.chars().map(String::from)),
            false => words.push(word.to_lowercase()),
        }
    }
    words
}
