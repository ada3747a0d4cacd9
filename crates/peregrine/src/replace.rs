//! Unknown words: each becomes the source word it attends to, or that word's translation.

use std::collections::HashMap;
use std::path::Path;

use peregrine_decode::Hypothesis;
use peregrine_model::ModelError;
use peregrine_text::{Decoded, Tokenizer};

use crate::part::Part;
use crate::{Alternative, Options, Term, Translator};

/// Translations of single words.
#[derive(Debug, Clone, Default)]
pub struct Dictionary {
    words: HashMap<String, (String, f32)>,
}

impl Dictionary {
    /// Reads lines `target source probability`; the most probable translation of a word counts.
    pub fn read(path: &Path) -> Result<Dictionary, ModelError> {
        let text = std::fs::read(path).map_err(ModelError::io(path))?;
        let mut dictionary = Dictionary::default();
        for (number, line) in String::from_utf8_lossy(&text).lines().enumerate() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let entry = match fields[..] {
                [] => continue,
                [target, source, probability] => {
                    probability.parse().ok().map(|p| (target, source, p))
                }
                _ => None,
            };
            let Some((target, source, probability)) = entry else {
                let problem = format!("line {}: expected `target source probability`", number + 1);
                return Err(ModelError::Invalid { path: path.into(), problem });
            };
            dictionary.add(source, target, probability);
        }
        Ok(dictionary)
    }

    /// Adds a translation, if there is no more probable one.
    pub fn add(&mut self, source: &str, target: &str, probability: f32) {
        if self.words.get(source).is_none_or(|(_, known)| probability > *known) {
            self.words.insert(source.into(), (target.into(), probability));
        }
    }

    /// The translation of a word; the word itself if there is none.
    pub fn translate<'a>(&'a self, word: &'a str) -> &'a str {
        self.words.get(word).map_or(word, |(target, _)| target)
    }
}

impl Translator {
    /// The alternatives of a part, with unknown words replaced if requested, and the report of its
    /// terms.
    pub(crate) fn alternatives(
        &self,
        part: &Part,
        options: &Options,
    ) -> (Vec<Alternative>, Vec<Term>) {
        let target = &self.model().target;
        let ranges = options.scores || options.alignments || options.quality;
        if let Some(text) = &part.copied {
            let copy = Alternative::copy(text, self.model().members.len(), ranges);
            return (vec![copy], part.term_report(Vec::new()));
        }
        let mut places = None;
        let alternative = |hypothesis: &Hypothesis| {
            let mut alternative =
                Alternative::from_hypothesis(hypothesis, target, ranges, options.text_only);
            if let Some(dictionary) = &options.replace_unknown {
                let rows = &hypothesis.alignment;
                self.replace_unknown(&part.words, rows, &mut alternative, dictionary);
            }
            if let Some(carrying) = &part.carrying {
                let found = carrying.restore(&part.terms, &mut alternative, hypothesis, target);
                places.get_or_insert(found);
            }
            alternative
        };
        let alternatives = part.hypotheses.iter().map(alternative).collect();
        (alternatives, part.term_report(places.unwrap_or_default()))
    }

    /// Replaces unknown words. `rows` is the alignment of the tokens, and `words` are the source
    /// words of its columns.
    fn replace_unknown(
        &self,
        words: &[Option<String>],
        rows: &[Vec<f32>],
        alternative: &mut Alternative,
        dictionary: &Dictionary,
    ) {
        let target = &self.model().target;
        let Some(unknown) = target.unk().map(|id| target.token(id)) else { return };
        let mut replaced = false;
        for (token, row) in alternative.tokens.iter_mut().zip(rows) {
            if token != unknown {
                continue;
            }
            // Symbols of the frame are not copied.
            let attended = row.iter().zip(words).filter_map(|(w, word)| Some((w, word.as_ref()?)));
            let best = attended.max_by(|a, b| a.0.total_cmp(b.0));
            if let Some((_, word)) = best {
                *token = dictionary.translate(word).to_owned();
                replaced = true;
            }
        }
        if replaced {
            let Decoded { text, ranges } = text_of(target, &alternative.tokens);
            alternative.text = text;
            if !alternative.token_ranges.is_empty() {
                alternative.token_ranges = ranges;
            }
        }
    }
}

/// Tokens as text: runs of known tokens are decoded by the vocabulary, others are copied.
fn text_of(target: &Tokenizer, tokens: &[String]) -> Decoded {
    let mut whole = Decoded::default();
    for run in tokens.chunk_by(|a, b| target.id(a).is_some() == target.id(b).is_some()) {
        let ids: Vec<u32> = run.iter().filter_map(|token| target.id(token)).collect();
        if !whole.ranges.is_empty() {
            whole.text.push(' ');
        }
        let start = whole.text.len();
        if ids.is_empty() {
            for (number, token) in run.iter().enumerate() {
                if number > 0 {
                    whole.text.push(' ');
                }
                let start = whole.text.len();
                whole.text.push_str(token);
                whole.ranges.push(start..whole.text.len());
            }
        } else {
            let Decoded { text, ranges } = target.decode_with_ranges(&ids);
            whole.text.push_str(&text);
            whole.ranges.extend(ranges.iter().map(|r| start + r.start..start + r.end));
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_translation_counts() {
        let mut dictionary = Dictionary::default();
        dictionary.add("dog", "Hund", 0.8);
        dictionary.add("dog", "Köter", 0.1);
        assert_eq!(dictionary.translate("dog"), "Hund");
        assert_eq!(dictionary.translate("Peter"), "Peter");
    }

    #[test]
    fn replaced_words_have_ranges_too() {
        let vocabulary = "</s>\n<unk>\nun@@\nlock\nit\n";
        let target = Tokenizer::words("vocab.txt", vocabulary.as_bytes().into(), None);
        let target = target.expect("a small vocabulary").joining_bpe(true);
        let tokens = ["Käse", "Peter", "un@@", "lock", "Ä"].map(str::to_owned);
        let Decoded { text, ranges } = text_of(&target, &tokens);
        assert_eq!(text, "Käse Peter unlock Ä");
        let parts: Vec<&str> = ranges.into_iter().map(|range| &text[range]).collect();
        assert_eq!(parts, ["Käse", "Peter", "un", "lock", "Ä"]);
    }
}
