//! Detection of repetition.

use super::words;

/// The longest repeated phrase that is detected, in words.
const LONGEST: usize = 24;

/// A phrase of at least so many words does not occur twice in a row by chance.
const LONG: usize = 4;

/// Whether a translation repeats a phrase where its source does not: four words or more twice in a
/// row, two or three words three times, one word four times. In a script without blanks a letter
/// counts as a word, and the numbers are doubled.
///
/// ```
/// use peregrine_text::check::repeats_itself;
/// assert!(repeats_itself("He ran away.", "Ele fugiu, ele fugiu, ele fugiu."));
/// assert!(!repeats_itself("No, no, no, no!", "Não, não, não, não!"));
/// assert!(!repeats_itself("It is very, very cold.", "Está muito, muito frio."));
/// ```
pub fn repeats_itself(source: &str, translation: &str) -> bool {
    has_loop(translation) && !has_loop(source)
}

fn has_loop(text: &str) -> bool {
    let unit = if text.contains(crate::is_unspaced) { 2 } else { 1 };
    let words = words(text);
    let repeated = |period: usize| {
        let needed = match period {
            period if period >= LONG * unit => period,
            1 => 3 * unit,
            _ => 2 * period,
        };
        let equal = words.iter().zip(words.iter().skip(period)).map(|(a, b)| a == b);
        let mut run = 0;
        equal.into_iter().any(|same| {
            run = if same { run + 1 } else { 0 };
            run >= needed
        })
    };
    (1..=LONGEST.min(words.len() / 2)).any(repeated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_told_from_emphasis() {
        let source = "The train was late.";
        assert!(repeats_itself(source, "O trem estava atrasado. O trem estava atrasado."));
        assert!(repeats_itself(source, "O trem atrasado atrasado atrasado atrasado"));
        assert!(!repeats_itself(source, "O trem atrasado atrasado atrasado"));
        assert!(!repeats_itself(source, "O trem e o avião e o navio estavam atrasados."));
        assert!(!repeats_itself(source, ""));
    }

    #[test]
    fn loops_in_scripts_without_blanks() {
        assert!(repeats_itself("Good.", "好的好的好的好的好的好的"));
        assert!(!repeats_itself("Bye-bye.", "再见再见"));
        assert!(!repeats_itself("哈哈哈哈哈哈哈哈", "哈哈哈哈哈哈哈哈哈"));
    }
}
