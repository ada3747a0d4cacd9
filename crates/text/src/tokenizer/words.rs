//! Tokens separated by blanks, optionally split into subwords by BPE codes first.

use std::ops::Range;

use crate::{BpeCodes, Encoded, Vocabulary};

/// What marks a subword that goes on.
const CONTINUES: &str = "@@";

#[derive(Debug, Clone)]
pub(super) struct Words {
    vocabulary: Vocabulary,
    codes: Option<BpeCodes>,
    unk: u32,
    join_bpe: bool,
}

impl Words {
    pub(super) fn new(
        vocabulary: Vocabulary,
        codes: Option<BpeCodes>,
        unk: u32,
        join_bpe: bool,
    ) -> Self {
        Self { vocabulary, codes, unk, join_bpe }
    }

    pub(super) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub(super) fn set_join_bpe(&mut self, join: bool) {
        self.join_bpe = join;
    }

    pub(super) fn limit(&mut self, size: usize) {
        self.vocabulary.limit(size);
    }

    pub(super) fn encode(&self, line: &str) -> Encoded {
        let mut encoded = Encoded::default();
        let mut unit = String::new();
        for word in tokens(line) {
            let Some(codes) = &self.codes else {
                encoded.push(self.id(&line[word.clone()]), word);
                continue;
            };
            for part in codes.split(&line[word.clone()]) {
                let span = word.start + part.start..word.start + part.end;
                unit.clear();
                unit.push_str(&line[span.clone()]);
                if span.end < word.end {
                    unit.push_str(CONTINUES);
                }
                encoded.push(self.id(&unit), span);
            }
        }
        encoded
    }

    fn id(&self, token: &str) -> u32 {
        self.vocabulary.id(token).unwrap_or(self.unk)
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        let tokens: Vec<&str> = ids.iter().filter_map(|&id| self.vocabulary.token(id)).collect();
        let line = tokens.join(" ");
        if !self.join_bpe {
            return line;
        }
        let joined = line.replace("@@ ", "");
        joined.strip_suffix(CONTINUES).map(str::to_owned).unwrap_or(joined)
    }
}

/// Where the tokens of a line are: between blanks, and only U+0020 is one.
pub(super) fn tokens(line: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    line.split(' ')
        .map(move |token| {
            let range = start..start + token.len();
            start = range.end + 1;
            range
        })
        .filter(|range| !range.is_empty())
}
