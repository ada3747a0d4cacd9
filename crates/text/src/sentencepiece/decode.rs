//! Pieces back to text: blanks restored, control pieces dropped, bytes gathered into characters.

use super::SentencePiece;
use super::file::Kind;
use super::lexicon::byte_of;
use super::normalizer::{ESCAPED_BLANK_CHAR, Normalized};
use crate::{Decoded, utf8};

/// The first byte of U+2581, which the characters from U+2000 to U+2FFF share.
const FIRST_BYTE_OF_BLANK: u8 = 0xE2;

/// The text of `ids`; ids out of range are skipped.
pub(super) fn decode(model: &SentencePiece, ids: &[u32]) -> String {
    let text = joined(model, ids, joiner(model)).finish();
    match &model.denormalizer {
        None => text,
        Some(denormalizer) => {
            let mut rewritten = String::new();
            utf8::push_lossy(&mut rewritten, &denormalizer.normalize(text.as_bytes()).text);
            rewritten
        }
    }
}

/// The same with the bytes of the text that each id became.
pub(super) fn decode_with_ranges(model: &SentencePiece, ids: &[u32]) -> Decoded {
    let (text, mut ends) = joined(model, ids, joiner(model).tracking()).finish_with_ends();
    let Some(denormalizer) = &model.denormalizer else { return Decoded::from_ends(text, &ends) };
    let Normalized { text, origin } = denormalizer.normalize(text.as_bytes());
    let mut rewritten = String::new();
    utf8::push_lossy(&mut rewritten, &text);
    let lossy = utf8::lossy_ends(&text);
    for end in &mut ends {
        // What a stretch of several ids is rewritten to belongs to the id in which it begins.
        let written = origin[..text.len()].partition_point(|from| from < end);
        *end = written.checked_sub(1).map_or(0, |last| lossy[last]);
    }
    Decoded::from_ends(rewritten, &ends)
}

fn joiner(model: &SentencePiece) -> Joiner {
    let normalizer = &model.normalizer;
    Joiner::new(normalizer.eats_leading_blank(), normalizer.removes_extra_whitespaces())
}

fn joined(model: &SentencePiece, ids: &[u32], mut joiner: Joiner) -> Joiner {
    // Most pieces are words and parts of words.
    joiner.text.reserve(6 * ids.len());
    for &id in ids {
        if let (Some(piece), Some(kind)) = (model.lexicon.piece(id), model.lexicon.kind(id)) {
            match kind {
                Kind::Byte => joiner.push_byte(byte_of(piece).unwrap_or(b'?')),
                Kind::Control => joiner.push_literal(""),
                Kind::Unknown => joiner.push_literal(&model.unk_surface),
                Kind::Normal | Kind::UserDefined | Kind::Unused => joiner.push_piece(piece),
            }
        }
        joiner.end_token();
    }
    joiner
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
    ends: Option<Ends>,
}

/// Where the text of each token ends.
#[derive(Default)]
struct Ends {
    places: Vec<usize>,
    /// For each token since a character was begun in bytes, how many bytes there were behind it.
    waiting: Vec<usize>,
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
            ends: None,
        }
    }

    /// The same joiner, noting where the text of each token ends.
    pub(crate) fn tracking(self) -> Self {
        Self { ends: Some(Ends::default()), ..self }
    }

    /// Nothing more comes of this token.
    pub(crate) fn end_token(&mut self) {
        let Some(ends) = &mut self.ends else { return };
        match self.bytes.len() {
            0 => ends.places.push(self.text.len()),
            count => ends.waiting.push(count),
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
            && let Some(rest) = piece.strip_prefix(ESCAPED_BLANK_CHAR)
        {
            piece = rest;
            self.ate_blank = !self.eats_all_leading_blanks;
        }
        // Nearly all pieces have a blank at their start or none.
        if let Some(rest) = piece.strip_prefix(ESCAPED_BLANK_CHAR) {
            self.text.push(' ');
            piece = rest;
        }
        if !piece.as_bytes().contains(&FIRST_BYTE_OF_BLANK) {
            return self.text.push_str(piece);
        }
        let mut parts = piece.split(ESCAPED_BLANK_CHAR);
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

    /// The text, and where that of each token ends.
    pub(crate) fn finish_with_ends(mut self) -> (String, Vec<usize>) {
        self.flush_bytes();
        (self.text, self.ends.map(|ends| ends.places).unwrap_or_default())
    }

    fn begin(&mut self) {
        self.flush_bytes();
        if self.ate_blank || !self.text.is_empty() {
            self.at_start = false;
        }
        self.ate_blank = false;
    }

    fn flush_bytes(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        if let Some(ends) = self.ends.as_mut().filter(|ends| !ends.waiting.is_empty()) {
            let lossy = utf8::lossy_ends(&self.bytes);
            let places = ends.waiting.drain(..).map(|count| self.text.len() + lossy[count - 1]);
            ends.places.extend(places);
        }
        utf8::push_lossy(&mut self.text, &self.bytes);
        self.bytes.clear();
    }
}
