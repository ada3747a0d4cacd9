//! Deals the words of a translation to the cues that the sentence came from, and to lines.
//!
//! Words are never cut, and their order stays. A cue gets the share that it had of the characters, as far as words, ends of clauses
//! and pairs of tags allow.

use std::ops::Range;

use crate::format::find;
use peregrine_text::is_unspaced;

/// Characters that a line should have at most.
const WIDEST: usize = 42;

/// What an end of a clause is worth, in characters.
const CLAUSE: usize = 6;

/// What a pair of tags is worth that would be cut.
const PAIR: usize = 10_000;

/// Something that is not cut.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// How it is written, with tags.
    pub(super) bytes: Vec<u8>,
    /// How it is read.
    pub(super) text: String,
    /// Whether a blank stands before it, if it does not begin a line.
    pub(super) spaced: bool,
    /// Whether it begins inside a pair of tags.
    pub(super) inside: bool,
}

impl Word {
    /// Its width. Ideographs are as wide as two letters.
    fn width(&self) -> usize {
        width(&self.text)
    }

    /// Whether a clause ends with it.
    fn ends_clause(&self) -> bool {
        let text = self.text.trim_end_matches(['"', '\'', '”', '’', '»', ')', ']', '」', '』']);
        text.ends_with([
            '.', ',', ';', ':', '!', '?', '…', '。', '、', '，', '！', '？', '；', '：', '،', '؟',
            '।',
        ])
    }
}

pub(super) fn width(text: &str) -> usize {
    let wide = |c: char| is_unspaced(c) && !('\u{e00}'..='\u{17ff}').contains(&c);
    text.chars().map(|c| if wide(c) { 2 } else { 1 }).sum()
}

/// Whether a text may be cut before a character although there is no blank.
pub(super) fn may_cut(last: char, next: char) -> bool {
    let opens = matches!(last, '（' | '「' | '『' | '《' | '〈' | '【' | '“' | '‘' | '(' | '[');
    let is_mark = |c: char| !c.is_alphanumeric();
    // Marks of Thai and its neighbours stand above letters.
    let combines = matches!(next, '\u{e30}'..='\u{e3a}' | '\u{e45}'..='\u{e4e}' | '\u{eb0}'..='\u{ebc}' | '\u{ec8}'..='\u{ece}')
        || ('\u{f00}'..='\u{17ff}').contains(&next) && !next.is_alphabetic();
    (is_unspaced(last) || is_unspaced(next)) && !opens && !combines && !is_mark(next)
        || is_unspaced(last) && is_mark(last) && !opens && next.is_alphanumeric()
}

/// The widths of the words up to each, with the blanks between them: one more than there are words.
fn sums(words: &[Word]) -> Vec<usize> {
    let mut sums = vec![0];
    let mut sum = 0;
    for word in words {
        sum += word.width() + usize::from(word.spaced);
        sums.push(sum);
    }
    sums
}

/// Deals words to cues by the share that each had. No cue gets nothing: there must be as many words as cues.
pub(super) fn deal(words: &[Word], shares: &[usize]) -> Vec<Range<usize>> {
    let sums = sums(words);
    let (all, total) = (sums[words.len()], shares.iter().sum::<usize>().max(1));
    let mut ranges = Vec::with_capacity(shares.len());
    let (mut start, mut share) = (0, 0);
    for (number, part) in shares.iter().enumerate() {
        share += part;
        let left = shares.len() - number - 1;
        let end = match left {
            0 => words.len(),
            _ => {
                let wanted = (all as u128 * share as u128 / total as u128) as usize;
                let cost = |&end: &usize| {
                    let clause = if words[end - 1].ends_clause() { 0 } else { CLAUSE };
                    let pair = if words[end].inside { PAIR } else { 0 };
                    sums[end].abs_diff(wanted) + clause + pair
                };
                let most = (words.len() - left).max(start + 1);
                (start + 1..=most).min_by_key(cost).unwrap_or(most)
            }
        };
        ranges.push(start..end);
        start = end;
    }
    ranges
}

/// Puts words into lines, so many at most: few lines, of at most 42 characters if that can be, and about equally long.
pub(super) fn wrap(words: &[Word], most_lines: usize) -> Vec<Range<usize>> {
    let sums = sums(words);
    let needed = fill(words, &sums, WIDEST).len();
    let count = needed.min(most_lines.max(1));
    let fits = needed <= count;
    if count == 2 {
        let widths = |end: usize| {
            let blank = usize::from(words[end].spaced);
            (sums[end] - usize::from(words[0].spaced), sums[words.len()] - sums[end] - blank)
        };
        let cost = |&end: &usize| {
            let (first, second) = widths(end);
            let over = if fits && first.max(second) > WIDEST { PAIR } else { 0 };
            let clause = if words[end - 1].ends_clause() { 0 } else { CLAUSE };
            first.max(second) + clause + over
        };
        let end = (1..words.len()).min_by_key(cost).unwrap_or(words.len());
        return vec![0..end, end..words.len()];
    }
    // The least width with which so many lines are enough.
    let (mut low, mut high) = (1, sums[words.len()].max(1));
    while low < high {
        let middle = low + (high - low) / 2;
        match fill(words, &sums, middle).len() <= count {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    fill(words, &sums, low)
}

/// Lines that are filled one after the other. A word that is wider has a line of its own.
fn fill(words: &[Word], sums: &[usize], widest: usize) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    for end in 1..=words.len() {
        let blank = usize::from(words[start].spaced);
        let next = if end < words.len() { sums[end + 1] - sums[start] - blank } else { usize::MAX };
        if next > widest {
            lines.push(start..end);
            start = end;
        }
    }
    lines
}

/// Writes words in lines.
pub(super) fn write(words: &[Word], most_lines: usize, newline: &[u8], to: &mut Vec<u8>) {
    for (number, line) in wrap(words, most_lines).into_iter().enumerate() {
        if number > 0 {
            to.extend_from_slice(newline);
        }
        let start = line.start;
        for place in line {
            if words[place].spaced && place > start {
                to.push(b' ');
            }
            let word = &words[place].bytes;
            // This is what times are known by.
            match find(word, b"-->") {
                Some(at) => to.extend([&word[..at], b"->".as_slice(), &word[at + 3..]].concat()),
                None => to.extend_from_slice(word),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<Word> {
        let word = |(number, text): (usize, &str)| Word {
            bytes: text.into(),
            text: text.to_owned(),
            spaced: number > 0,
            inside: false,
        };
        text.split_whitespace().enumerate().map(word).collect()
    }

    fn dealt(text: &str, shares: &[usize]) -> Vec<String> {
        let words = words(text);
        let joined = |range: Range<usize>| {
            let texts: Vec<&str> = words[range].iter().map(|word| word.text.as_str()).collect();
            texts.join(" ")
        };
        deal(&words, shares).into_iter().map(joined).collect()
    }

    #[test]
    fn words_are_dealt_at_ends_of_clauses() {
        let text = "Se você não vier, eu vou sozinho para casa.";
        assert_eq!(dealt(text, &[20, 22]), ["Se você não vier,", "eu vou sozinho para casa."]);
        assert_eq!(dealt("a b", &[100, 1]), ["a", "b"]);
        assert_eq!(dealt("a b c d", &[1, 1, 1, 100]), ["a", "b", "c", "d"]);
    }

    #[test]
    fn lines_are_few_and_balanced() {
        let lines = |text: &str, most: usize| -> Vec<String> {
            let mut bytes = Vec::new();
            write(&words(text), most, b"\n", &mut bytes);
            String::from_utf8_lossy(&bytes).split('\n').map(str::to_owned).collect()
        };
        assert_eq!(lines("One short line", 2), ["One short line"]);
        assert_eq!(
            lines("This is a line that is a little longer than it should be", 2),
            ["This is a line that is a", "little longer than it should be"]
        );
        assert_eq!(lines("a --> b", 1), ["a -> b"]);
        assert_eq!(lines(&"word ".repeat(30), 2).len(), 2);
        assert_eq!(lines(&"word ".repeat(24), 4).len(), 3);
    }

    #[test]
    fn ideographs_are_cut_between_but_not_before_marks() {
        assert!(may_cut('我', '爱') && may_cut('我', 'x') && may_cut('。', '我'));
        assert!(!may_cut('我', '。') && !may_cut('「', '我') && !may_cut('a', 'b'));
        assert!(!may_cut('ก', '\u{e34}'));
    }

    proptest! {
        #[test]
        fn every_word_is_dealt_once(
            lengths in prop::collection::vec(1_usize..15, 1..60),
            shares in prop::collection::vec(0_usize..80, 1..5),
            most in 1_usize..5,
        ) {
            let text: Vec<String> = lengths.iter().map(|&length| "x".repeat(length)).collect();
            let words = words(&text.join(" "));
            if words.len() >= shares.len() {
                let ranges = deal(&words, &shares);
                prop_assert_eq!(ranges.len(), shares.len());
                prop_assert!(ranges.iter().all(|range| !range.is_empty()));
                prop_assert_eq!(ranges.into_iter().flatten().collect::<Vec<_>>(), (0..words.len()).collect::<Vec<_>>());
            }
            let lines = wrap(&words, most);
            prop_assert!(lines.len() <= most && lines.iter().all(|line| !line.is_empty()));
            prop_assert_eq!(lines.clone().into_iter().flatten().collect::<Vec<_>>(), (0..words.len()).collect::<Vec<_>>());
            // Lines are too long only if they would be too many.
            let widest = lines.into_iter().map(|line| {
                text[line].join(" ").len()
            }).max().unwrap_or(0);
            let naive = naive_lines(&text);
            prop_assert!(widest <= WIDEST || naive > most, "{widest} in {naive} lines");
        }
    }

    /// The lines that a plain loop needs.
    fn naive_lines(words: &[String]) -> usize {
        let (mut lines, mut length) = (1, 0);
        for word in words {
            if length > 0 && length + 1 + word.len() > WIDEST {
                lines += 1;
                length = 0;
            }
            length += word.len() + usize::from(length > 0);
        }
        lines
    }
}
