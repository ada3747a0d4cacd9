//! Unknown words: each becomes the source word it attends to, or that word's translation.

use std::collections::HashMap;
use std::path::Path;

use peregrine_decode::Hypothesis;
use peregrine_model::ModelError;

use crate::line::Part;
use crate::{Alternative, Options, Translator};

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
    /// The alternatives of a part, unknown words replaced where that is wanted.
    pub(crate) fn alternatives(&self, part: &Part, options: &Options) -> Vec<Alternative> {
        let target = &self.model().target;
        if let Some(text) = &part.copied {
            return vec![Alternative::copy(text, self.model().members.len())];
        }
        let alternative = |hypothesis: &Hypothesis| {
            let mut alternative = Alternative::from_hypothesis(hypothesis, target);
            if let Some(dictionary) = &options.replace_unknown {
                self.replace_unknown(&part.words, &mut alternative, dictionary);
            }
            alternative
        };
        part.hypotheses.iter().map(alternative).collect()
    }

    /// Replaces unknown words. `words` are those behind the columns of its alignment.
    fn replace_unknown(
        &self,
        words: &[Option<String>],
        alternative: &mut Alternative,
        dictionary: &Dictionary,
    ) {
        let target = &self.model().target;
        let Some(unknown) = target.unk().map(|id| target.token(id)) else { return };
        let mut replaced = false;
        for (token, row) in alternative.tokens.iter_mut().zip(&alternative.alignment) {
            if token != unknown {
                continue;
            }
            // What frames a sentence is no word to be copied.
            let attended = row.iter().zip(words).filter_map(|(w, word)| Some((w, word.as_ref()?)));
            let best = attended.max_by(|a, b| a.0.total_cmp(b.0));
            if let Some((_, word)) = best {
                *token = dictionary.translate(word).to_owned();
                replaced = true;
            }
        }
        if replaced {
            alternative.text = self.text_of(&alternative.tokens);
        }
    }

    /// The words behind the columns of an alignment of a part; none for what frames it.
    pub(crate) fn source_words(&self, part: &str, columns: usize) -> Vec<Option<String>> {
        let frame = self.model().members[0].architecture.source_frame();
        let spans = self.model().source.encode(part).spans;
        let word = |span| part.get(span).map(str::to_owned);
        let framed = frame.begin.map(|_| None);
        let mut words: Vec<_> = framed.into_iter().chain(spans.into_iter().map(word)).collect();
        words.resize(columns, None);
        words
    }

    /// Tokens as text: runs of known ones as the vocabulary has it, others as they are.
    fn text_of(&self, tokens: &[String]) -> String {
        let target = &self.model().target;
        let mut parts: Vec<String> = Vec::new();
        for run in tokens.chunk_by(|a, b| target.id(a).is_some() == target.id(b).is_some()) {
            let ids: Vec<u32> = run.iter().filter_map(|token| target.id(token)).collect();
            parts.push(if ids.is_empty() { run.join(" ") } else { target.decode(&ids) });
        }
        parts.join(" ")
    }
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
}
