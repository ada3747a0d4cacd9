//! The pieces of a model and the two ways to look one up.
//!
//! Names such as `</s>` and `<0x41>` live in a table of their own: they are found when asked for by name,
//! but text never matches them, so a line containing `</s>` is four ordinary characters.

use rustc_hash::FxHashMap;

use super::file::{Kind, Piece};
use crate::Error;
use crate::trie::Trie;

#[derive(Debug, Clone)]
pub(super) struct Lexicon {
    /// All texts, end to end; piece `i` is `text[ends[i - 1]..ends[i]]`.
    text: String,
    ends: Vec<u32>,
    scores: Vec<f32>,
    kinds: Vec<Kind>,
    /// Pieces that text may match, unused ones included.
    trie: Trie,
    /// Control, unknown and byte pieces.
    reserved: FxHashMap<Box<[u8]>, u32>,
    unknown: u32,
}

impl Lexicon {
    pub(super) fn new(name: &str, pieces: &[Piece<'_>]) -> Result<Self, Error> {
        let trie = build_trie(name, pieces, Kind::matches_text)?;
        let mut lexicon = Self {
            text: String::new(),
            ends: Vec::with_capacity(pieces.len()),
            scores: pieces.iter().map(|piece| piece.score).collect(),
            kinds: pieces.iter().map(|piece| piece.kind).collect(),
            trie,
            reserved: FxHashMap::default(),
            unknown: the_unknown(name, pieces)?,
        };
        for (id, piece) in (0..).zip(pieces) {
            lexicon.text.push_str(piece.text);
            lexicon.ends.push(lexicon.text.len() as u32);
            let text = piece.text.as_bytes();
            if !piece.kind.matches_text() && lexicon.reserved.insert(text.into(), id).is_some() {
                return Err(duplicate(name, id, piece.text));
            }
        }
        Ok(lexicon)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn piece(&self, id: u32) -> Option<&str> {
        let id = id as usize;
        let end = *self.ends.get(id)? as usize;
        let start = if id == 0 { 0 } else { self.ends[id - 1] as usize };
        Some(&self.text[start..end])
    }

    pub(super) fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    pub(super) fn score(&self, id: u32) -> f32 {
        self.scores[id as usize]
    }

    pub(super) fn is_unused(&self, id: u32) -> bool {
        self.kinds[id as usize] == Kind::Unused
    }

    pub(super) fn unknown(&self) -> u32 {
        self.unknown
    }

    pub(super) fn trie(&self) -> &Trie {
        &self.trie
    }

    /// By name: reserved pieces first.
    pub(super) fn id(&self, piece: &[u8]) -> Option<u32> {
        self.reserved.get(piece).copied().or_else(|| self.trie.get(piece))
    }

    pub(super) fn id_or_unknown(&self, piece: &[u8]) -> u32 {
        self.id(piece).unwrap_or(self.unknown)
    }

    /// The id of a control piece; any other piece of that name does not count.
    pub(super) fn control(&self, piece: &str) -> Option<u32> {
        self.id(piece.as_bytes()).filter(|&id| self.kind(id) == Some(Kind::Control))
    }

    /// Ids of the 256 byte pieces.
    pub(super) fn bytes(&self, name: &str) -> Result<Box<[u32; 256]>, Error> {
        let mut ids = Box::new([0; 256]);
        for (byte, slot) in (0u8..=255).zip(ids.iter_mut()) {
            let piece = format!("<0x{byte:02X}>");
            let id = self.id(piece.as_bytes()).filter(|&id| self.kind(id) == Some(Kind::Byte));
            *slot = id.ok_or_else(|| {
                Error::new(name, "pieces", format!("byte_fallback is on but {piece} is missing"))
            })?;
        }
        Ok(ids)
    }
}

/// The byte that a piece such as `<0x0A>` stands for.
pub(crate) fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let upper = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F'));
    if digits.len() == 2 && upper { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// A trie of the pieces whose kind is wanted; two of them with the same text are an error.
pub(super) fn build_trie(
    name: &str,
    pieces: &[Piece<'_>],
    wanted: impl Fn(Kind) -> bool,
) -> Result<Trie, Error> {
    let mut entries: Vec<(&[u8], u32)> = (0..)
        .zip(pieces)
        .filter(|(_, piece)| wanted(piece.kind))
        .map(|(id, piece)| (piece.text.as_bytes(), id))
        .collect();
    Trie::sort(&mut entries);
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(duplicate(name, pair[1].1, pieces[pair[1].1 as usize].text));
    }
    Ok(Trie::from_sorted(&entries))
}

fn duplicate(name: &str, id: u32, piece: &str) -> Error {
    Error::new(name, format!("piece {id}"), format!("{piece:?} is defined twice"))
}

fn the_unknown(name: &str, pieces: &[Piece<'_>]) -> Result<u32, Error> {
    let mut found = (0..).zip(pieces).filter(|(_, piece)| piece.kind == Kind::Unknown);
    match (found.next(), found.next()) {
        (Some((id, _)), None) => Ok(id),
        (None, _) => Err(Error::new(name, "pieces", "no piece has the type UNKNOWN")),
        (Some(_), Some((id, _))) => {
            Err(Error::new(name, format!("piece {id}"), "a second piece of the type UNKNOWN"))
        }
    }
}
