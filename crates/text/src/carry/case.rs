//! Case: text in capitals or title case is converted to sentence case, which models read best.

use std::ops::Range;

use super::rewritten::Replacement;

/// The case of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Case {
    /// Sentence case.
    #[default]
    Sentence,
    /// ALL CAPITALS.
    Capitals,
    /// Title Case: Most Words Begin With a Capital.
    Title,
}

/// A text in capitals of fewer letters may be an abbreviation.
const LEAST_LETTERS: usize = 6;
/// A title of fewer words may be a name.
const LEAST_WORDS: usize = 4;

impl Case {
    /// The case of a text, given by the ranges that are not masked.
    pub(super) fn of<'a>(stretches: impl Iterator<Item = &'a str> + Clone) -> Case {
        let mut upper = 0;
        let mut lower = 0;
        for text in stretches.clone() {
            if text.is_ascii() {
                upper += text.bytes().filter(u8::is_ascii_uppercase).count();
                lower += text.bytes().filter(u8::is_ascii_lowercase).count();
            } else {
                upper += text.chars().filter(|c| c.is_uppercase()).count();
                lower += text.chars().filter(|c| c.is_lowercase()).count();
            }
        }
        // The usual case.
        if upper < 3 {
            return Case::Sentence;
        }
        let capitals = upper + lower >= LEAST_LETTERS && upper >= 4 * lower;
        let last = stretches.clone().last().and_then(|text| text.trim_end().chars().next_back());
        let ends = last.is_some_and(|c| matches!(c, '.' | '!' | '?' | '…' | '。' | '！' | '？'));
        if ends && !capitals {
            return Case::Sentence;
        }
        let words = || stretches.clone().flat_map(str::split_whitespace);
        let words = || words().filter(|word| word.contains(char::is_alphabetic));
        let count = words().count();
        if count >= 2 && capitals {
            return Case::Capitals;
        }
        let capitalised = words().filter(|word| is_capitalised(word)).count();
        match count >= LEAST_WORDS && 4 * capitalised >= 3 * count && !ends {
            true => Case::Title,
            false => Case::Sentence,
        }
    }
}

/// Whether only the first letter of a word is a capital.
fn is_capitalised(word: &str) -> bool {
    let mut letters = word.chars().filter(|c| c.is_alphabetic());
    letters.next().is_some_and(char::is_uppercase) && letters.all(|c| !c.is_uppercase())
}

/// A text up to the first character that belongs to no word.
fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

/// Converts a range of a text to sentence case. `begins` says whether the next letter begins a
/// sentence.
pub(super) fn lower<'a>(
    text: &str,
    range: Range<usize>,
    case: Case,
    begins: &mut bool,
    replacements: &mut Vec<Replacement<'a>>,
) {
    if case == Case::Sentence {
        return;
    }
    let inside = &text[range.clone()];
    let mut previous = text[..range.start].chars().next_back();
    let mut chars = inside.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let in_word = previous.is_some_and(char::is_alphanumeric);
        let next = chars.peek().map(|(_, c)| *c).or_else(|| text[range.end..].chars().next());
        // The English pronoun.
        let alone = c == 'I' && !in_word && next.is_none_or(|c| !c.is_alphanumeric());
        let stays = case == Case::Title && (in_word || !is_capitalised(first_word(&inside[at..])));
        if c.is_uppercase() && !*begins && !alone && !stays {
            let start = range.start + at;
            let lower: String = c.to_lowercase().collect();
            replacements.push((start..start + c.len_utf8(), lower.into()));
        }
        if c.is_alphanumeric() {
            *begins = false;
        }
        *begins |= c.is_whitespace() && previous.is_some_and(|p| matches!(p, '.' | '!' | '?'));
        previous = Some(c);
    }
}

/// Converts a range of a text to capitals.
pub(super) fn raise(text: &str, range: Range<usize>, replacements: &mut Vec<Replacement<'_>>) {
    for (at, c) in text[range.clone()].char_indices() {
        let upper: String = c.to_uppercase().collect();
        if !upper.chars().eq([c]) {
            let start = range.start + at;
            replacements.push((start..start + c.len_utf8(), upper.into()));
        }
    }
}

/// The share of a text's longer words that its translation still has, which is high for an
/// untranslated title.
pub fn copied_share(source: &str, translation: &str) -> f32 {
    const LONGER: usize = 3;
    let lower = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
        words.filter(|word| word.chars().count() >= LONGER).collect()
    };
    let (words, found) = (lower(source), lower(translation));
    let copied = words.iter().filter(|word| found.contains(word)).count();
    copied as f32 / words.len().max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carry::Rewritten;

    fn lowered(text: &str) -> String {
        let case = Case::of(std::iter::once(text));
        let (mut begins, mut replacements) = (true, Vec::new());
        lower(text, 0..text.len(), case, &mut begins, &mut replacements);
        Rewritten::new(text, &replacements).text
    }

    #[test]
    fn cases_are_told_apart() {
        let of = |text| Case::of(std::iter::once(text));
        assert_eq!(of("WARNING: DO NOT OPEN THIS DOOR."), Case::Capitals);
        assert_eq!(of("NO PARKING"), Case::Capitals);
        assert_eq!(of("How To Bake A Simple Loaf Of Bread"), Case::Title);
        for text in
            ["OK", "NASA", "NASA and ESA met.", "Mr. Brown met Mrs. Green in Rome.", "北京 WTO"]
        {
            assert_eq!(of(text), Case::Sentence, "{text}");
        }
    }

    #[test]
    fn sentence_case_keeps_what_begins_sentences() {
        assert_eq!(lowered("STOP! I AM TIRED. ÉCOUTE."), "Stop! I am tired. Écoute.");
        assert_eq!(
            lowered("The Old McDonald Had I Guess A Farm"),
            "The old McDonald had I guess a farm"
        );
        assert_eq!(lowered("As it was."), "As it was.");
    }

    #[test]
    fn copied_words_are_counted() {
        assert!(copied_share("The Old Man Who Lived", "O Velho Man Who Lived") > 0.5);
        assert!(copied_share("The Old Man Who Lived", "O velho que viveu") < 0.1);
    }
}
