//! Pieces back to text: blanks restored, control pieces dropped, bytes gathered into characters.

use super::SentencePiece;
use super::file::Kind;
use super::lexicon::byte_of;
use super::normalizer::ESCAPED_BLANK;
use crate::utf8;

/// The text of `ids`; ids out of range are skipped.
pub(super) fn decode(model: &SentencePiece, ids: &[u32]) -> String {
    let mut joiner = Joiner::new(
        model.normalizer.eats_leading_blank(),
        model.normalizer.removes_extra_whitespaces(),
    );
    for &id in ids {
        let (Some(piece), Some(kind)) = (model.lexicon.piece(id), model.lexicon.kind(id)) else {
            continue;
        };
        match kind {
            Kind::Byte => joiner.push_byte(byte_of(piece).unwrap_or(b'?')),
            Kind::Control => joiner.push_literal(""),
            Kind::Unknown => joiner.push_literal(&model.unk_surface),
            Kind::Normal | Kind::UserDefined | Kind::Unused => joiner.push_piece(piece),
        }
    }
    let text = joiner.finish();
    match &model.denormalizer {
        None => text,
        Some(denormalizer) => {
            let mut rewritten = String::new();
            utf8::push_lossy(&mut rewritten, &denormalizer.normalize(text.as_bytes()).text);
            rewritten
        }
    }
}

/// Joins pieces to text.
///
/// The blank at the start of the first piece was added when encoding, so it is dropped; if the model
/// squeezes blanks, so is every further one until text appears.
pub(crate) struct Joiner {
    text: String,
    /// Bytes of a character not yet complete.
    bytes: Vec<u8>,
    eats_leading_blank: bool,
    eats_all_leading_blanks: bool,
    at_start: bool,
    ate_blank: bool,
}

impl Joiner {
    pub(crate) fn new(eats_leading_blank: bool, eats_all_leading_blanks: bool) -> Self {
        Self {
            text: String::new(),
            bytes: Vec::new(),
            eats_leading_blank,
            eats_all_leading_blanks,
            at_start: true,
            ate_blank: false,
        }
    }

    /// One byte of a character; whole characters are formed when something else follows.
    pub(crate) fn push_byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// A piece, in which U+2581 means a blank.
    pub(crate) fn push_piece(&mut self, piece: &str) {
        self.begin();
        let mut piece = piece;
        if self.at_start
            && self.eats_leading_blank
            && let Some(rest) = piece.strip_prefix(ESCAPED_BLANK)
        {
            piece = rest;
            self.ate_blank = !self.eats_all_leading_blanks;
        }
        let mut parts = piece.split(ESCAPED_BLANK);
        self.text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            self.text.push(' ');
            self.text.push_str(part);
        }
    }

    /// Text that is not a piece, as it stands.
    pub(crate) fn push_literal(&mut self, text: &str) {
        self.begin();
        self.text.push_str(text);
    }

    pub(crate) fn finish(mut self) -> String {
        self.flush_bytes();
        self.text
    }

    fn begin(&mut self) {
        self.flush_bytes();
        if self.ate_blank || !self.text.is_empty() {
            self.at_start = false;
        }
        self.ate_blank = false;
    }

    fn flush_bytes(&mut self) {
        utf8::push_lossy(&mut self.text, &self.bytes);
        self.bytes.clear();
    }
}
