//! Tokens separated by blanks, optionally split into subwords by BPE codes first.

use std::ops::Range;

use crate::{BpeCodes, Decoded, Encoded, Vocabulary};

/// What marks a subword that goes on.
const CONTINUES: &str = "@@";

/// What joining removes between two subwords.
const BREAK: &str = "@@ ";

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
        let joined = line.replace(BREAK, "");
        joined.strip_suffix(CONTINUES).map(str::to_owned).unwrap_or(joined)
    }

    pub(super) fn decode_with_ranges(&self, ids: &[u32]) -> Decoded {
        let (line, mut ends) = join_tokens(ids.iter().map(|&id| self.vocabulary.token(id)));
        if !self.join_bpe {
            return Decoded::from_ends(line, &ends);
        }
        let text = self.decode(ids);
        let mut breaks = line.match_indices(BREAK).map(|(at, _)| at).peekable();
        let mut removed = 0;
        for end in &mut ends {
            while breaks.next_if(|at| at + BREAK.len() <= *end).is_some() {
                removed += BREAK.len();
            }
            // An end may be within a break: `@@` belongs to the token, its blank to the next one.
            let inside = breaks.peek().map_or(0, |at| end.saturating_sub(*at));
            *end = (*end - removed - inside).min(text.len());
        }
        Decoded::from_ends(text, &ends)
    }
}

/// Tokens with blanks between them, and where each ends; ids without a token add nothing.
pub(super) fn join_tokens<'t>(
    tokens: impl Iterator<Item = Option<&'t str>>,
) -> (String, Vec<usize>) {
    let mut line = String::new();
    let mut first = true;
    let push = |token: Option<&str>| {
        if let Some(token) = token {
            if !first {
                line.push(' ');
            }
            first = false;
            line.push_str(token);
        }
        line.len()
    };
    let ends = tokens.map(push).collect();
    (line, ends)
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
