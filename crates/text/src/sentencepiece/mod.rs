//! SentencePiece models: a `.spm` file that turns raw text into ids and back by itself.
//!
//! Ids are equal to those of the `sentencepiece` library for every input. The stages of a line:
//!
//! ```text
//! line ─▶ normalizer (charsmap) ─▶ unigram | bpe | words | characters ─▶ unknown runs joined ─▶ ids
//! ```
//!
//! `proto` and `file` read the model, `tokenizer_json` reads what Hugging Face writes in its place, `lexicon` holds the
//! pieces, `decode` goes back to text.

mod bpe;
mod charsmap;
mod decode;
mod file;
mod lexicon;
mod normalizer;
mod proto;
mod tokenizer_json;
mod unigram;
mod units;
mod word_cache;

use std::ops::Range;

use serde::{Deserialize, Serialize};

pub(crate) use decode::Joiner;
pub(crate) use lexicon::byte_of;
pub use tokenizer_json::{AddedToken, TokenizerJson};

use crate::error::check_size;
use crate::trie::Trie;
use crate::{Decoded, Encoded, Error};
use file::{Algorithm, Kind, ModelFile, Piece};
use lexicon::{Lexicon, build_trie};
use normalizer::{Normalized, Normalizer};
use unigram::Unigram;

/// How much a unigram model favours user-defined pieces, and how it breaks ties. The library changed both
/// in version 0.2.2, and a model should be given the segmentation it was trained with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserDefinedScore {
    /// As sentencepiece 0.2.2: zero for one byte and 0.1 more for each further byte. Sums are rounded
    /// before they are compared.
    Zero,
    /// As sentencepiece up to 0.2.1, the copy inside Marian included: practically -0.1. Sums are compared
    /// in float64.
    Marian,
}

/// A loaded SentencePiece model.
///
/// See [`crate::Tokenizer::sentencepiece`] for the tokenizer of a Marian model made from one.
///
/// ```
/// use peregrine_text::{SentencePiece, UserDefinedScore};
///
/// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/bpe-bytes.spm");
/// let model = SentencePiece::from_bytes(path, &std::fs::read(path)?, UserDefinedScore::Marian)?;
/// let encoded = model.encode("  any  text ☃ ");
/// assert_eq!(model.decode(&encoded.ids), "any text ☃");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SentencePiece {
    lexicon: Lexicon,
    normalizer: Normalizer,
    denormalizer: Option<Normalizer>,
    segmenter: Segmenter,
    /// Ids of `<0x00>` to `<0xFF>`, if unknown characters are spelt as bytes.
    bytes: Option<Box<[u32; 256]>>,
    unk_surface: String,
    bos: Option<u32>,
    eos: Option<u32>,
    pad: Option<u32>,
}

#[derive(Debug, Clone)]
enum Segmenter {
    Unigram(Unigram),
    Bpe { user_defined: Option<Trie> },
    Word,
    Char,
}

/// A piece and the bytes of the normalised line it covers.
#[derive(Debug, Clone, PartialEq)]
struct Segment {
    id: u32,
    range: Range<usize>,
}

/// A line cut into pieces, unknown runs joined, before byte fallback.
pub(crate) struct Segmented {
    normalized: Normalized,
    segments: Vec<Segment>,
}

impl Segmented {
    /// The normalised text of a segment.
    pub(crate) fn surface(&self, index: usize) -> &[u8] {
        &self.normalized.text[self.segments[index].range.clone()]
    }

    /// The bytes of the input that a segment came from.
    fn span(&self, index: usize) -> Range<usize> {
        let Range { start, end } = self.segments[index].range;
        self.normalized.origin[start]..self.normalized.origin[end]
    }
}

impl SentencePiece {
    /// Reads a model; `name` is repeated in error messages.
    ///
    /// Hugging Face's `tokenizer.json` is read too: see [`TokenizerJson`].
    pub fn from_bytes(
        name: &str,
        bytes: &[u8],
        user_defined: UserDefinedScore,
    ) -> Result<Self, Error> {
        // No SentencePiece model begins like a JSON object: its first byte would be a wire type that does not exist.
        if bytes.trim_ascii_start().starts_with(b"{") {
            return Ok(TokenizerJson::with_rule(name, bytes, user_defined)?.sentencepiece);
        }
        check_size(name, bytes)?;
        Self::new(name, ModelFile::parse(name, bytes)?, user_defined)
    }

    fn new(name: &str, file: ModelFile<'_>, user_defined: UserDefinedScore) -> Result<Self, Error> {
        let pieces = file.pieces.as_slice();
        let lexicon = Lexicon::new(name, pieces)?;
        let protected = match pieces.iter().any(|piece| piece.kind == Kind::UserDefined) {
            true => Some(build_trie(name, pieces, |kind| kind == Kind::UserDefined)?),
            false => None,
        };
        let segmenter = match file.trainer.algorithm {
            Algorithm::Unigram => {
                Segmenter::Unigram(unigram(name, pieces, &lexicon, user_defined)?)
            }
            Algorithm::Bpe => Segmenter::Bpe { user_defined: protected.clone() },
            Algorithm::Word => Segmenter::Word,
            Algorithm::Char => Segmenter::Char,
        };
        let suffix = file.trainer.whitespace_as_suffix;
        let normalizer =
            Normalizer::new(name, "normalizer_spec", &file.normalizer, suffix, protected)?;
        let denormalizer = match file.denormalizer.charsmap {
            [] => None,
            _ => Some(Normalizer::new(name, "denormalizer_spec", &file.denormalizer, false, None)?),
        };
        Ok(Self {
            bytes: byte_ids(name, &file, &lexicon)?,
            bos: lexicon.control(&file.trainer.bos_piece),
            eos: lexicon.control(&file.trainer.eos_piece),
            pad: lexicon.control(&file.trainer.pad_piece),
            unk_surface: file.trainer.unk_surface,
            lexicon,
            normalizer,
            denormalizer,
            segmenter,
        })
    }

    /// The ids of a line.
    pub fn encode(&self, text: &str) -> Encoded {
        self.encode_bytes(text.as_bytes())
    }

    /// The ids of a line that may hold malformed UTF-8: each malformed byte counts as U+FFFD.
    pub fn encode_bytes(&self, text: &[u8]) -> Encoded {
        self.number(&self.segment(text))
    }

    /// The ids of a segmented line, unknown pieces spelt as bytes if the model does that.
    pub(crate) fn number(&self, segmented: &Segmented) -> Encoded {
        let mut encoded = Encoded {
            ids: Vec::with_capacity(segmented.segments.len()),
            spans: Vec::with_capacity(segmented.segments.len()),
        };
        for (index, segment) in segmented.segments.iter().enumerate() {
            let span = segmented.span(index);
            match &self.bytes {
                Some(bytes) if segment.id == self.unk_id() => {
                    spell(&mut encoded, bytes, segmented.surface(index), span);
                }
                _ => encoded.push(segment.id, span),
            }
        }
        encoded
    }

    /// Normalises and cuts a line. Without byte fallback, neighbouring unknowns become one.
    pub(crate) fn segment(&self, text: &[u8]) -> Segmented {
        let normalized = self.normalizer.normalize(text);
        let text = normalized.text.as_slice();
        let mut segments = match &self.segmenter {
            _ if text.is_empty() => Vec::new(),
            Segmenter::Unigram(unigram) => unigram.segment(self.lexicon.trie(), text),
            Segmenter::Bpe { user_defined } => {
                bpe::segment(&self.lexicon, user_defined.as_ref(), text)
            }
            Segmenter::Word => units::words(&self.lexicon, text),
            Segmenter::Char => units::characters(&self.lexicon, text),
        };
        if self.bytes.is_none() {
            join_unknowns(&mut segments, self.unk_id());
        }
        Segmented { normalized, segments }
    }

    /// The text of `ids`; ids out of range are skipped.
    pub fn decode(&self, ids: &[u32]) -> String {
        decode::decode(self, ids)
    }

    /// The text of `ids`, and the bytes of it that each became; ids out of range became none.
    pub fn decode_with_ranges(&self, ids: &[u32]) -> Decoded {
        decode::decode_with_ranges(self, ids)
    }

    /// Number of pieces.
    #[allow(clippy::len_without_is_empty)] // A model without pieces cannot be loaded.
    pub fn len(&self) -> usize {
        self.lexicon.len()
    }

    /// The text of a piece.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.lexicon.piece(id)
    }

    /// The texts of all pieces in order of their ids.
    pub fn pieces(&self) -> impl Iterator<Item = &str> {
        (0..self.len() as u32).map(|id| self.piece(id).unwrap_or_default())
    }

    /// The id of a piece: control, unknown and byte pieces first, then those that text may match.
    pub fn id(&self, piece: &str) -> Option<u32> {
        self.lexicon.id(piece.as_bytes())
    }

    /// The id that stands for text no piece matches.
    pub fn unk_id(&self) -> u32 {
        self.lexicon.unknown()
    }

    /// The id of the control piece that begins sentences (`<s>`).
    pub fn bos_id(&self) -> Option<u32> {
        self.bos
    }

    /// The id of the control piece that ends sentences (`</s>`).
    pub fn eos_id(&self) -> Option<u32> {
        self.eos
    }

    /// The id of the control piece used as padding (`<pad>`).
    pub fn pad_id(&self) -> Option<u32> {
        self.pad
    }

    /// What an unknown piece prints as.
    pub(crate) fn unk_surface(&self) -> &str {
        &self.unk_surface
    }
}

fn unigram(
    name: &str,
    pieces: &[Piece<'_>],
    lexicon: &Lexicon,
    rule: UserDefinedScore,
) -> Result<Unigram, Error> {
    // Models with unused pieces are rare; a second trie spares a check in the inner loop.
    let produced = |kind| matches!(kind, Kind::Normal | Kind::UserDefined);
    let restricted = match pieces.iter().any(|piece| piece.kind == Kind::Unused) {
        true => Some(build_trie(name, pieces, produced)?),
        false => None,
    };
    Ok(Unigram::new(pieces, restricted, lexicon.unknown(), rule))
}

fn byte_ids(
    name: &str,
    file: &ModelFile<'_>,
    lexicon: &Lexicon,
) -> Result<Option<Box<[u32; 256]>>, Error> {
    for (id, piece) in file.pieces.iter().enumerate() {
        if piece.kind == Kind::Byte && byte_of(piece.text).is_none() {
            let problem = format!("a byte piece must look like <0x0A>, not {:?}", piece.text);
            return Err(Error::new(name, format!("piece {id}"), problem));
        }
    }
    file.trainer.byte_fallback.then(|| lexicon.bytes(name)).transpose()
}

/// Writes an unknown piece as byte pieces; the last one carries the span, as in the library.
fn spell(encoded: &mut Encoded, ids: &[u32; 256], surface: &[u8], span: Range<usize>) {
    for (index, &byte) in surface.iter().enumerate() {
        let end = if index + 1 == surface.len() { span.end } else { span.start };
        encoded.push(ids[byte as usize], span.start..end);
    }
}

/// A run of unknown pieces tells a model no more than one does.
fn join_unknowns(segments: &mut Vec<Segment>, unknown: u32) {
    segments.dedup_by(|next, kept| {
        let joined = next.id == unknown && kept.id == unknown;
        if joined {
            kept.range.end = next.range.end;
        }
        joined
    });
}
