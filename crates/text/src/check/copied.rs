//! Detection of untranslated text.

use std::collections::HashSet;

use crate::is_unspaced;

use super::words;

/// The fewest words for which a share is significant.
const ENOUGH: usize = 4;

/// A translation with at least this share of the source's words is a copy. Related languages have
/// many words in common.
const MOSTLY: f32 = 0.75;

/// Whether a translation is a copy of its source: equal except for case, or with most of at least
/// four words unchanged. Names are usually not translated, so words with a capital do not count,
/// and neither does a text of fewer than four such words.
///
/// ```
/// use peregrine_text::check::is_copy;
/// assert!(is_copy("Please wash your hands before lunch.", "Please wash your hands before o almoço."));
/// assert!(is_copy("save as", "Save as"));
/// assert!(!is_copy("Barack Obama", "Barack Obama"));
/// assert!(!is_copy("Barack Obama met Angela Merkel.", "Barack Obama conheceu Angela Merkel."));
/// ```
pub fn is_copy(source: &str, translation: &str) -> bool {
    let fold = |text: &str| text.trim().to_lowercase();
    if fold(source) == fold(translation) {
        return word_count(source) >= ENOUGH || has_plain_word(source);
    }
    if source.contains(is_unspaced) {
        let (source, translation) = (words(source), words(translation));
        let found: HashSet<&[String]> = translation.windows(2).collect();
        let pairs = source.windows(2);
        let all = pairs.len().max(1) as f32;
        let share = pairs.filter(|pair| found.contains(pair)).count() as f32 / all;
        return source.len() >= ENOUGH && share >= MOSTLY;
    }
    // Short words count too: related languages differ most in them.
    let plain: Vec<&str> = source.split_whitespace().filter(|word| has_plain_word(word)).collect();
    let plain = words(&plain.join(" "));
    let found: HashSet<String> = words(translation).into_iter().collect();
    let copied = plain.iter().filter(|word| found.contains(*word)).count();
    plain.len() >= ENOUGH && copied as f32 / plain.len() as f32 >= MOSTLY
}

/// The number of words with letters; in a script without blanks every letter is one.
pub fn word_count(text: &str) -> usize {
    words(text).iter().filter(|word| word.contains(char::is_alphabetic)).count()
}

/// Whether a text has a word that does not begin with a capital.
fn has_plain_word(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter_map(|w| w.chars().next());
    words.any(|first| first.is_alphabetic() && !first.is_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_in_scripts_without_blanks() {
        assert!(is_copy("我们昨天在车站看到了他。", "我们昨天在车站看到了他 ."));
        assert!(!is_copy("我们昨天在车站看到了他。", "私たちは昨日駅で彼を見ました。"));
        assert!(!is_copy("我们昨天在车站看到了他。", "We saw him at the station."));
    }

    #[test]
    fn related_languages_are_no_copies() {
        let (spanish, portuguese) =
            ("La casa de mi madre es grande y bonita.", "A casa da minha mãe é grande e bonita.");
        assert!(!is_copy(spanish, portuguese));
    }

    #[test]
    fn nothing_to_translate_is_no_copy() {
        for text in ["", "42", "?!", "OK", "IKEA", "New York"] {
            assert!(!is_copy(text, text), "{text}");
        }
        assert!(is_copy("THE QUICK BROWN FOX", "THE QUICK BROWN FOX"));
    }
}
