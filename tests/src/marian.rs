//! Reading what Marian printed: n-best lists, word scores, alignments.

use std::path::Path;

use crate::lines;

/// A hypothesis as Marian printed it.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Its words: tokens if the file was made with `--no-spm-decode`, else text.
    pub words: String,
    /// A log-probability for each token, the end symbol's last; empty if they were not asked for.
    pub word_scores: Vec<f32>,
    /// Sums of the log-probabilities of each network.
    pub features: Vec<f32>,
    /// What the list is ordered by.
    pub score: f32,
}

/// An n-best list, the hypotheses of each line together.
pub fn n_best(path: &Path) -> Vec<Vec<Entry>> {
    let mut lists: Vec<Vec<Entry>> = Vec::new();
    for line in lines(path) {
        let (number, entry) = parse_entry(&line).unwrap_or_else(|| panic!("n-best line {line:?}"));
        lists.resize_with(lists.len().max(number + 1), Vec::new);
        lists[number].push(entry);
    }
    lists
}

/// `number ||| words [||| WordScores= …] ||| F0= … ||| score`. Words may hold bars themselves, so the
/// other fields are taken from the end. (The numpy reference leaves out the sums of nothing.)
fn parse_entry(line: &str) -> Option<(usize, Entry)> {
    let (number, rest) = line.split_once(" ||| ")?;
    if rest == " ||| WordScores= 0.00000" {
        return Some((number.parse().ok()?, Entry::default()));
    }
    let (rest, score) = rest.rsplit_once(" ||| ")?;
    let (rest, features) = rest.rsplit_once(" ||| ")?;
    let (words, word_scores) = split_word_scores(rest);
    let features = features.split_whitespace().filter(|field| !field.starts_with('F'));
    let entry = Entry {
        words: words.to_owned(),
        word_scores,
        features: features.map(|x| x.parse().ok()).collect::<Option<_>>()?,
        score: score.parse().ok()?,
    };
    Some((number.parse().ok()?, entry))
}

/// `words ||| WordScores= …`, or words alone.
pub fn split_word_scores(text: &str) -> (&str, Vec<f32>) {
    match text.rsplit_once("WordScores=") {
        Some((words, scores)) => {
            (words.strip_suffix(" ||| ").unwrap_or(words), numbers(scores, ' '))
        }
        None => (text, Vec::new()),
    }
}

/// Soft alignments: a row of weights for each target token.
pub fn soft(text: &str) -> Vec<Vec<f32>> {
    text.split_whitespace().map(|row| numbers(row, ',')).collect()
}

/// Hard alignments: the source token of each target token.
pub fn hard(text: &str) -> Vec<usize> {
    let pair = |pair: &str| {
        let (source, target) = pair.split_once('-')?;
        Some((target.parse::<usize>().ok()?, source.parse::<usize>().ok()?))
    };
    let mut pairs: Vec<(usize, usize)> =
        text.split_whitespace().map(|p| pair(p).unwrap_or_else(|| panic!("pair {p:?}"))).collect();
    pairs.sort_unstable();
    assert!(pairs.iter().map(|pair| pair.0).eq(0..pairs.len()), "a pair for each token: {text}");
    pairs.into_iter().map(|pair| pair.1).collect()
}

/// Numbers between separators.
pub fn numbers(text: &str, separator: char) -> Vec<f32> {
    let fields = text.split(separator).map(str::trim).filter(|field| !field.is_empty());
    fields.map(|x| x.parse().unwrap_or_else(|_| panic!("number {x:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_from_the_end() {
        let line = "7 ||| a ||| b ||| WordScores= -0.1 -0.25 ||| F0= -0.35 F1= -2 ||| -0.175";
        let (number, entry) = parse_entry(line).unwrap();
        assert_eq!((number, entry.words.as_str()), (7, "a ||| b"));
        assert_eq!(entry.word_scores, [-0.1, -0.25]);
        assert_eq!((entry.features, entry.score), (vec![-0.35, -2.0], -0.175));
        let (_, empty) = parse_entry("3 |||  ||| F0= -4 ||| 0").unwrap();
        assert_eq!((empty.words.as_str(), empty.word_scores.len()), ("", 0));
    }

    #[test]
    fn alignments() {
        assert_eq!(hard("0-1 1-0 1-2"), [1, 0, 1]);
        assert_eq!(soft("0.25,0.75 1,0"), [vec![0.25, 0.75], vec![1.0, 0.0]]);
    }
}
