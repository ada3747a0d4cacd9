//! SentencePiece pieces numbered by a separate vocabulary, as in Hugging Face and CTranslate2 models.

use serde::{Deserialize, Serialize};

use super::words;
use crate::sentencepiece::{Joiner, byte_of};
use crate::vocabulary::ending;
use crate::{Decoded, Encoded, Error, SentencePiece, Vocabulary};

const BLANK: &str = "\u{2581}";

/// What an unknown piece prints as when no model says otherwise.
const UNKNOWN_SURFACE: &str = " \u{2047} ";

/// What sets the users of pieces apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PieceOptions {
    /// A target language `>>xx<<` at the very start of a line is one token (Hugging Face).
    pub language_codes: bool,
    /// Unknown and padding tokens disappear when decoding, and the line is trimmed (Hugging Face).
    pub drop_unknown: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Pieces {
    model: Option<SentencePiece>,
    vocabulary: Vocabulary,
    /// The model's ids to the vocabulary's, filled when the tokenizer is made.
    ids: Vec<u32>,
    unk: u32,
    pad: Option<u32>,
    /// Tokens that no text shows, ascending.
    hidden: Vec<u32>,
    /// Whether tokens mark blanks at all; if none does they are whole words.
    marks_blanks: bool,
    options: PieceOptions,
}

/// White space as Python's `strip` knows it, which Hugging Face trims lines with.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&c)
}

/// Maps (Hugging Face) are read like Marian's; lists follow CTranslate2's rules.
pub(super) fn read_vocabulary(name: &str, bytes: &[u8]) -> Result<Vocabulary, Error> {
    let is_list = match ending(name).as_str() {
        "yml" | "yaml" | "fsv" => return Vocabulary::from_named(name, bytes),
        "json" => bytes.trim_ascii_start().first() == Some(&b'['),
        _ => return Ok(Vocabulary::from_list(name, bytes)?.with_unknown()),
    };
    let vocabulary = Vocabulary::from_json(name, bytes)?;
    Ok(if is_list { vocabulary.with_unknown() } else { vocabulary })
}

impl Pieces {
    pub(super) fn new(
        model: Option<SentencePiece>,
        vocabulary: Vocabulary,
        unk: u32,
        options: PieceOptions,
    ) -> Self {
        let marks_blanks = vocabulary.tokens().any(|token| token.starts_with(BLANK));
        let mut pieces = Self {
            ids: Vec::new(),
            unk,
            pad: vocabulary.id("<pad>"),
            hidden: Vec::new(),
            marks_blanks,
            model,
            vocabulary,
            options,
        };
        pieces.number();
        pieces
    }

    /// Looks every piece of the model up once.
    fn number(&mut self) {
        let Some(model) = &self.model else { return };
        let id = |piece| self.vocabulary.id(model.piece(piece)?);
        self.ids = (0..model.len() as u32).map(|piece| id(piece).unwrap_or(self.unk)).collect();
    }

    /// See [`super::Tokenizer::known_pieces`].
    pub(super) fn known(&self) -> Option<(usize, usize)> {
        let model = self.model.as_ref()?;
        let is_text = |piece: &str| !(piece.starts_with('<') && piece.ends_with('>'));
        let text = (0..model.len()).filter(|&id| model.piece(id as u32).is_some_and(is_text));
        let known = text.clone().filter(|&id| self.ids[id] != self.unk);
        Some((known.count(), text.count()))
    }

    /// See [`super::Tokenizer::reads_text`].
    pub(super) fn reads_text(&self) -> bool {
        let is_code = |token: &str| token.starts_with(">>") && token.ends_with("<<");
        let wants_code = self.options.language_codes && self.vocabulary.tokens().any(is_code);
        self.model.is_some() && !wants_code
    }

    pub(super) fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    pub(super) fn limit(&mut self, size: usize) {
        self.vocabulary.limit(size);
        self.number();
    }

    pub(super) fn encode(&self, line: &str) -> Encoded {
        let mut encoded = Encoded::default();
        let code = self.language_code(line);
        if code > 0 {
            encoded.push(self.vocabulary.id(&line[..code]).unwrap_or(self.unk), 0..code);
        }
        match &self.model {
            Some(model) => self.encode_text(model, line, code, &mut encoded),
            None => self.encode_pieces(line, code, &mut encoded),
        }
        encoded
    }

    /// Length of the `>>xx<<` that begins the line, or zero.
    fn language_code(&self, line: &str) -> usize {
        if !self.options.language_codes || !line.starts_with(">>") {
            return 0;
        }
        line.find("<<").map_or(0, |at| at + 2)
    }

    fn encode_text(&self, model: &SentencePiece, line: &str, start: usize, encoded: &mut Encoded) {
        let segmented = model.segment(&line.as_bytes()[start..]);
        let Encoded { ids, spans } = model.number(&segmented);
        for (index, (id, span)) in ids.into_iter().zip(spans).enumerate() {
            let id = match id == model.unk_id() {
                // Unknown to the model, yet the vocabulary may list it. (Where there is byte fallback
                // nothing is unknown, so ids and segments go in step here.)
                true => self.vocabulary.id_of_bytes(segmented.surface(index)).unwrap_or(self.unk),
                false => self.ids[id as usize],
            };
            encoded.push(id, start + span.start..start + span.end);
        }
    }

    fn encode_pieces(&self, line: &str, start: usize, encoded: &mut Encoded) {
        let rest = &line[start..];
        for token in words::tokens(rest) {
            let id = self.vocabulary.id(&rest[token.clone()]).unwrap_or(self.unk);
            encoded.push(id, start + token.start..start + token.end);
        }
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        let kept = ids.iter().copied().filter(|&id| !self.drops(id));
        let text = match self.marks_blanks {
            true => self.join_pieces(kept, Joiner::new(true, true)).finish(),
            false => {
                let tokens: Vec<&str> = kept.filter_map(|id| self.vocabulary.token(id)).collect();
                tokens.join(" ")
            }
        };
        match self.options.drop_unknown {
            true => text.trim_matches(is_blank).to_owned(),
            false => text,
        }
    }

    pub(super) fn decode_with_ranges(&self, ids: &[u32]) -> Decoded {
        let kept = ids.iter().copied().filter(|&id| !self.drops(id));
        let (text, ends) = match self.marks_blanks {
            true => self.join_pieces(kept, Joiner::new(true, true).tracking()).finish_with_ends(),
            false => words::join_tokens(kept.map(|id| self.vocabulary.token(id))),
        };
        let mut decoded = Decoded::from_ends(text, &ends);
        if self.options.drop_unknown {
            let text = decoded.text.as_str();
            let start = text.len() - text.trim_start_matches(is_blank).len();
            let inside = start..start + text.trim_matches(is_blank).len();
            decoded = decoded.within(inside);
        }
        match ids.iter().any(|&id| self.drops(id)) {
            true => decoded.with_left_out(ids.iter().map(|&id| !self.drops(id))),
            false => decoded,
        }
    }

    /// See [`super::Tokenizer::hiding`].
    pub(super) fn hide(&mut self, mut ids: Vec<u32>) {
        ids.sort_unstable();
        self.hidden = ids;
    }

    /// Whether a token disappears when decoding.
    fn drops(&self, id: u32) -> bool {
        let unshown = self.options.drop_unknown && (id == self.unk || Some(id) == self.pad);
        unshown || self.hidden.binary_search(&id).is_ok()
    }

    fn join_pieces(&self, ids: impl Iterator<Item = u32>, mut joiner: Joiner) -> Joiner {
        let surface = self.model.as_ref().map_or(UNKNOWN_SURFACE, SentencePiece::unk_surface);
        for id in ids {
            if let Some(token) = self.vocabulary.token(id) {
                match byte_of(token) {
                    Some(byte) => joiner.push_byte(byte),
                    None if id == self.unk => joiner.push_literal(surface),
                    None if Some(id) == self.pad => {}
                    None => joiner.push_piece(token),
                }
            }
            joiner.end_token();
        }
        joiner
    }
}
