//! What a `.spm` file says, checked: pieces, kinds and the switches that matter for encoding.

use super::proto::{Malformed, Value, fields};
use crate::Error;

/// The largest piece the library itself accepts.
const LONGEST_PIECE: usize = 8000;

/// What a piece may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Matched against text.
    Normal,
    /// Stands for what no piece matches; exactly one.
    Unknown,
    /// `</s>` and its like: never matched against text, prints as nothing.
    Control,
    /// Matched whole, before normalisation.
    UserDefined,
    /// Known but never produced.
    Unused,
    /// `<0x41>`: one byte of a character that no piece matches.
    Byte,
}

impl Kind {
    /// Whether the piece is looked for in text (the rest is reserved for names).
    pub(super) fn matches_text(self) -> bool {
        matches!(self, Self::Normal | Self::UserDefined | Self::Unused)
    }
}

/// How text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Unigram,
    Bpe,
    Word,
    Char,
}

pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) score: f32,
    pub(super) kind: Kind,
}

/// The trainer's settings that outlive training.
pub(super) struct Trainer {
    pub(super) algorithm: Algorithm,
    pub(super) whitespace_as_suffix: bool,
    pub(super) byte_fallback: bool,
    pub(super) unk_surface: String,
    pub(super) bos_piece: String,
    pub(super) eos_piece: String,
    pub(super) pad_piece: String,
}

/// How text is rewritten before (or, for the denormaliser, after) segmentation.
pub(super) struct NormalizerSpec<'a> {
    pub(super) charsmap: &'a [u8],
    pub(super) add_dummy_prefix: bool,
    pub(super) remove_extra_whitespaces: bool,
    pub(super) escape_whitespaces: bool,
}

pub(super) struct ModelFile<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    pub(super) trainer: Trainer,
    pub(super) normalizer: NormalizerSpec<'a>,
    pub(super) denormalizer: NormalizerSpec<'a>,
}

impl Default for Trainer {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Unigram,
            whitespace_as_suffix: false,
            byte_fallback: false,
            unk_surface: " \u{2047} ".into(),
            bos_piece: "<s>".into(),
            eos_piece: "</s>".into(),
            pad_piece: "<pad>".into(),
        }
    }
}

impl Default for NormalizerSpec<'_> {
    fn default() -> Self {
        Self {
            charsmap: &[],
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        }
    }
}

impl<'a> ModelFile<'a> {
    /// Reads the message; unknown fields are skipped, wrong ones refused.
    pub(super) fn parse(name: &str, bytes: &'a [u8]) -> Result<Self, Error> {
        let mut file = Self {
            pieces: Vec::new(),
            trainer: Trainer::default(),
            normalizer: NormalizerSpec::default(),
            denormalizer: NormalizerSpec::default(),
        };
        for field in fields(bytes) {
            let field = field.map_err(|fault| malformed(name, "model", fault))?;
            match field {
                (1, Value::Bytes(message)) => {
                    let piece = read_piece(message).map_err(|problem| {
                        Error::new(name, format!("piece {}", file.pieces.len()), problem)
                    })?;
                    file.pieces.push(piece);
                }
                (2, Value::Bytes(message)) => read_trainer(name, message, &mut file.trainer)?,
                (3, Value::Bytes(message)) => {
                    read_normalizer(name, "normalizer_spec", message, &mut file.normalizer)?;
                }
                (5, Value::Bytes(message)) => {
                    read_normalizer(name, "denormalizer_spec", message, &mut file.denormalizer)?;
                }
                _ => {}
            }
        }
        if file.pieces.is_empty() {
            let problem = "no pieces: this is not a SentencePiece model";
            return Err(Error::new(name, "model", problem));
        }
        Ok(file)
    }
}

fn malformed(name: &str, message: &str, fault: Malformed) -> Error {
    Error::new(name, format!("{message}, byte {}", fault.at), fault.problem)
}

fn read_piece(message: &[u8]) -> Result<Piece<'_>, String> {
    let mut piece = Piece { text: "", score: 0.0, kind: Kind::Normal };
    for field in fields(message) {
        match field.map_err(|fault| fault.problem)? {
            (1, Value::Bytes(text)) => {
                piece.text = std::str::from_utf8(text).map_err(|_| "the text is not UTF-8")?;
            }
            // Adding zero turns -0.0 into 0.0, so that equal scores are the same bits.
            (2, Value::Fixed32(bits)) => piece.score = f32::from_bits(bits) + 0.0,
            (3, Value::Varint(kind)) => {
                piece.kind =
                    kind_from(kind).ok_or_else(|| format!("type {kind}, expected 1 to 6"))?;
            }
            _ => {}
        }
    }
    check_piece(&piece)?;
    Ok(piece)
}

fn kind_from(number: u64) -> Option<Kind> {
    Some(match number {
        1 => Kind::Normal,
        2 => Kind::Unknown,
        3 => Kind::Control,
        4 => Kind::UserDefined,
        5 => Kind::Unused,
        6 => Kind::Byte,
        _ => return None,
    })
}

pub(super) fn check_piece(piece: &Piece<'_>) -> Result<(), String> {
    match piece {
        Piece { text: "", .. } => Err("the text is empty".into()),
        Piece { text, .. } if text.len() >= LONGEST_PIECE => {
            Err(format!("{} bytes long, the limit is {}", text.len(), LONGEST_PIECE - 1))
        }
        Piece { text, .. } if text.contains('\0') => Err("the text contains NUL".into()),
        Piece { score, .. } if !score.is_finite() => Err(format!("the score is {score}")),
        _ => Ok(()),
    }
}

fn read_trainer(name: &str, message: &[u8], trainer: &mut Trainer) -> Result<(), Error> {
    const PLACE: &str = "trainer_spec";
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for field in fields(message) {
        match field.map_err(|fault| malformed(name, PLACE, fault))? {
            (3, Value::Varint(number)) => {
                trainer.algorithm = algorithm_from(number).ok_or_else(|| {
                    Error::new(name, PLACE, format!("model_type {number}, expected 1 to 4"))
                })?;
            }
            (24, Value::Varint(flag)) => trainer.whitespace_as_suffix = flag != 0,
            (35, Value::Varint(flag)) => trainer.byte_fallback = flag != 0,
            (44, Value::Bytes(bytes)) => trainer.unk_surface = text(bytes),
            (46, Value::Bytes(bytes)) if !bytes.is_empty() => trainer.bos_piece = text(bytes),
            (47, Value::Bytes(bytes)) if !bytes.is_empty() => trainer.eos_piece = text(bytes),
            (48, Value::Bytes(bytes)) if !bytes.is_empty() => trainer.pad_piece = text(bytes),
            _ => {}
        }
    }
    Ok(())
}

fn algorithm_from(number: u64) -> Option<Algorithm> {
    Some(match number {
        1 => Algorithm::Unigram,
        2 => Algorithm::Bpe,
        3 => Algorithm::Word,
        4 => Algorithm::Char,
        _ => return None,
    })
}

fn read_normalizer<'a>(
    name: &str,
    place: &str,
    message: &'a [u8],
    spec: &mut NormalizerSpec<'a>,
) -> Result<(), Error> {
    for field in fields(message) {
        match field.map_err(|fault| malformed(name, place, fault))? {
            (2, Value::Bytes(bytes)) => spec.charsmap = bytes,
            (3, Value::Varint(flag)) => spec.add_dummy_prefix = flag != 0,
            (4, Value::Varint(flag)) => spec.remove_extra_whitespaces = flag != 0,
            (5, Value::Varint(flag)) => spec.escape_whitespaces = flag != 0,
            _ => {}
        }
    }
    Ok(())
}
