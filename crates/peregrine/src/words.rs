//! Words of a translation: their scores, and the source words they come from.

use std::ops::Range;

use peregrine_text::Words;

use crate::sentence::{Sentence, Target};
use crate::{Alternative, Translation};

/// A word of a translation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Word {
    /// Its bytes of the alternative's text.
    pub range: Range<usize>,
    /// The natural logarithm of its probability: the sum of its tokens'. Zero unless scores are asked for.
    pub score: f32,
    /// Its tokens among those of the alternative.
    pub tokens: Range<usize>,
    /// The share of words in ordinary text of which the model is less sure, from 0 to 1. None unless quality is asked for.
    pub quality: Option<f32>,
}

/// A word of a translation and a source word it attends to.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WordLink {
    /// The source word's bytes of the request's text.
    pub source: Range<usize>,
    /// The target word's bytes of the alternative's text.
    pub target: Range<usize>,
    /// The share of the target word's attention to words that is on this one, from 0 to 1.
    pub weight: f32,
}

impl WordLink {
    /// The least weight of a link that is not the strongest of its word.
    ///
    /// A word then has five links at most. In 300 lines of FLORES with the built-in model it has 1.2; of names and numbers that
    /// stay as they are 97 % have their own as the strongest link, and 99 % as one of them (a Firefox model: 98 % and 99 %).
    pub const LEAST_WEIGHT: f32 = 0.2;
}

impl Translation {
    /// The words of an alternative, in its order. A word ends at white space and with its sentence; in scripts without blanks
    /// every token is a word. Empty unless scores, alignments or quality
    /// are asked for.
    ///
    /// ```
    /// use peregrine::{Request, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let options = translator.options().with_scores(true);
    /// let request = Request::new("Two dogs play in the snow.");
    /// let translation = translator.translate_batch(&[request], &options)?.remove(0);
    /// let words = translation.words(0);
    /// let texts: Vec<&str> = words.iter().map(|word| &translation.text()[word.range.clone()]).collect();
    /// assert_eq!(texts, ["Dois", "cães", "brincam", "na", "neve."]);
    /// assert!(words.iter().all(|word| word.score < 0.0));
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn words(&self, rank: usize) -> Vec<Word> {
        let Some(alternative) = self.alternatives.get(rank) else { return Vec::new() };
        let targets = self.sentences.iter().filter_map(|sentence| sentence.targets.get(rank));
        targets.flat_map(|target| words_of(alternative, target)).collect()
    }

    /// The source words that each word of an alternative attends to, in the order of its words, the strongest first. The
    /// symbols that frame a sentence are no words: the weights of a target word are shares of what is left without them.
    ///
    /// The strongest link of a word is always there, and others from [`WordLink::LEAST_WEIGHT`] on. Empty unless alignments are
    /// asked for. Attention is an alignment only as far as a model has learnt it to be.
    ///
    /// ```
    /// use peregrine::{Request, Translator};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let options = translator.options().with_alignments(true);
    /// let text = "Two dogs play in the snow.";
    /// let translation = translator.translate_batch(&[Request::new(text)], &options)?.remove(0);
    /// let links = translation.word_alignments(0);
    /// let dogs = links.iter().find(|link| &translation.text()[link.target.clone()] == "cães");
    /// assert_eq!(&text[dogs.expect("a link").source.clone()], "dogs");
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn word_alignments(&self, rank: usize) -> Vec<WordLink> {
        let Some(alternative) = self.alternatives.get(rank) else { return Vec::new() };
        let mut links = Vec::new();
        for sentence in &self.sentences {
            let Some(target) = sentence.targets.get(rank) else { continue };
            for word in words_of(alternative, target) {
                let first = target.tokens.start;
                let rows = word.tokens.start - first..word.tokens.end - first;
                add_links(sentence, target.alignment.get(rows), &word.range, &mut links);
            }
        }
        links
    }
}

/// The words of a sentence.
fn words_of(alternative: &Alternative, target: &Target) -> Vec<Word> {
    let Some(ranges) = alternative.token_ranges.get(target.tokens.clone()) else {
        return Vec::new();
    };
    let Words { ranges, of_token } = Words::new(&alternative.text, ranges);
    let word = |range| Word { range, score: 0.0, tokens: 0..0, quality: None };
    let mut words: Vec<Word> = ranges.into_iter().map(word).collect();
    for (token, word) in target.tokens.clone().zip(of_token) {
        let Some(word) = word.and_then(|word| words.get_mut(word)) else { continue };
        let first = if word.tokens.is_empty() { token } else { word.tokens.start };
        word.tokens = first..token + 1;
        word.score += alternative.token_scores.get(token).copied().unwrap_or_default();
    }
    // Copied text has tokens without scores.
    let scored = target.quality.as_ref().filter(|q| q.mean_log_probability().is_some());
    for word in words.iter_mut().filter(|_| scored.is_some()) {
        word.quality = scored.and_then(|q| q.word_score(word.score, word.tokens.len()));
    }
    words
}

/// Adds the links of a target word whose tokens have these rows of attention.
fn add_links(
    sentence: &Sentence,
    rows: Option<&[Vec<f32>]>,
    target: &Range<usize>,
    links: &mut Vec<WordLink>,
) {
    let mut weights = vec![0.0; sentence.source_words.len()];
    for row in rows.unwrap_or_default() {
        for (weight, word) in row.iter().zip(&sentence.word_of_token) {
            if let Some(sum) = word.and_then(|word| weights.get_mut(word)) {
                *sum += weight;
            }
        }
    }
    let total: f32 = weights.iter().sum();
    if total <= 0.0 {
        return;
    }
    let mut order: Vec<usize> = (0..weights.len()).collect();
    // A stable sort: words of equal weight keep their order.
    order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
    for (place, word) in order.into_iter().enumerate() {
        let weight = weights[word] / total;
        if place > 0 && weight < WordLink::LEAST_WEIGHT {
            break;
        }
        let (source, target) = (sentence.source_words[word].clone(), target.clone());
        links.push(WordLink { source, target, weight });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sentences, the second one's words in pieces, a frame at both ends of its source.
    fn translation() -> Translation {
        let alternative = Alternative {
            text: "Sim. Não pode".to_owned(),
            token_ranges: vec![0..4, 5..7, 7..9, 10..14],
            token_scores: vec![-0.5, -0.25, -0.125, -1.0, -2.0],
            ..Alternative::default()
        };
        let first = Sentence {
            source: 0..4,
            source_words: std::iter::once(0..4).collect(),
            word_of_token: vec![Some(0), None],
            targets: vec![Target {
                text: 0..4,
                tokens: 0..1,
                alignment: vec![vec![0.25, 0.75], vec![0.0, 1.0]],
                ..Target::default()
            }],
            ..Sentence::default()
        };
        let second = Sentence {
            source: 5..11,
            source_words: vec![5..6, 7..11],
            word_of_token: vec![None, Some(0), Some(1), Some(1), None],
            targets: vec![Target {
                text: 5..14,
                tokens: 1..4,
                alignment: vec![
                    vec![0.5, 0.0, 0.1, 0.1, 0.3],
                    vec![0.0, 0.1, 0.1, 0.0, 0.8],
                    vec![0.0, 0.3, 0.3, 0.2, 0.2],
                    vec![0.0, 0.0, 0.0, 0.0, 1.0],
                ],
                ..Target::default()
            }],
            ..Sentence::default()
        };
        Translation {
            alternatives: vec![alternative],
            sentences: vec![first, second],
            ..Translation::default()
        }
    }

    #[test]
    fn scores_of_pieces_are_added() {
        let words: Vec<_> =
            translation().words(0).into_iter().map(|w| (w.range, w.score, w.tokens)).collect();
        assert_eq!(words, [(0..4, -0.5, 0..1), (5..9, -0.375, 1..3), (10..14, -1.0, 3..4)]);
    }

    #[test]
    fn frames_have_no_part_in_links() {
        let links = translation().word_alignments(0);
        let close = |a: f32, b: f32| (a - b).abs() < 1e-6;
        assert_eq!((links[0].source.clone(), links[0].target.clone()), (0..4, 0..4));
        assert!(close(links[0].weight, 1.0));
        // Pieces: 0.1 on the first word, 0.3 on the second; the first word has a quarter.
        assert_eq!((links[1].source.clone(), links[1].target.clone()), (7..11, 5..9));
        assert!(close(links[1].weight, 0.75) && close(links[2].weight, 0.25));
        assert_eq!(links[2].source, 5..6);
        assert!(close(links[3].weight, 0.625) && close(links[4].weight, 0.375));
        assert_eq!(links.len(), 5);
    }

    #[test]
    fn without_ranges_there_are_no_words() {
        let mut plain = translation();
        plain.alternatives[0].token_ranges.clear();
        assert!(plain.words(0).is_empty() && plain.word_alignments(0).is_empty());
        assert!(translation().words(1).is_empty());
    }
}
