//! One side of a model: a line to ids and ids to a line, whatever files the model came with.

mod pieces;
mod recipe;
mod words;

use std::borrow::Cow;
use std::sync::Arc;

pub use pieces::PieceOptions;
pub use recipe::{Description, Recipe};

use crate::{BpeCodes, Decoded, Encoded, Error, SentencePiece, UserDefinedScore, Vocabulary};
use pieces::Pieces;
use words::Words;

/// The tokenizer of the source or the target side of a model.
///
/// No end symbol is added when encoding (the architecture says whether a model wants one); when decoding
/// it is skipped.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    kind: TokenizerKind,
    eos: u32,
    unk: u32,
    recipe: Recipe,
}

#[derive(Debug, Clone)]
enum TokenizerKind {
    SentencePiece(Box<SentencePiece>),
    Words(Box<Words>),
    Pieces(Box<Pieces>),
}

impl Tokenizer {
    /// Marian's `.spm` vocabularies: the model's own ids.
    pub fn sentencepiece(
        name: &str,
        bytes: Arc<[u8]>,
        user_defined: UserDefinedScore,
    ) -> Result<Self, Error> {
        let model = SentencePiece::from_bytes(name, &bytes, user_defined)?;
        let eos = model
            .eos_id()
            .ok_or_else(|| Error::new(name, "pieces", "no control piece ends sentences (</s>)"))?;
        Ok(Self {
            eos,
            unk: model.unk_id(),
            kind: TokenizerKind::SentencePiece(Box::new(model)),
            recipe: Recipe::sentencepiece(name, bytes, user_defined),
        })
    }

    /// Marian's other vocabularies: tokens separated by blanks (U+0020 only).
    ///
    /// With BPE `codes`, words are first split into subwords marked `@@`, and decoding joins them again;
    /// [`Tokenizer::joining_bpe`] asks for the joining alone.
    pub fn words(
        name: &str,
        vocabulary: Arc<[u8]>,
        codes: Option<Arc<[u8]>>,
    ) -> Result<Self, Error> {
        let table = Vocabulary::from_named(name, &vocabulary)?;
        let (eos, unk) = required(name, &table)?;
        let merges = codes
            .as_ref()
            .map(|codes| BpeCodes::from_bytes(&format!("BPE codes for {name}"), codes))
            .transpose()?;
        let join_bpe = merges.is_some();
        Ok(Self {
            eos,
            unk,
            kind: TokenizerKind::Words(Box::new(Words::new(table, merges, unk, join_bpe))),
            recipe: Recipe::words(name, vocabulary, codes, join_bpe),
        })
    }

    /// Hugging Face and CTranslate2: a SentencePiece model segments, a vocabulary numbers the pieces.
    ///
    /// Without a model, lines must come as pieces separated by blanks.
    pub fn pieces(
        spm: Option<(&str, Arc<[u8]>)>,
        vocabulary: (&str, Arc<[u8]>),
        options: PieceOptions,
    ) -> Result<Self, Error> {
        let (name, bytes) = &vocabulary;
        let table = pieces::read_vocabulary(name, bytes)?;
        let (eos, unk) = required(name, &table)?;
        let model = match &spm {
            Some((name, bytes)) => {
                Some(SentencePiece::from_bytes(name, bytes, UserDefinedScore::Zero)?)
            }
            None => None,
        };
        Ok(Self {
            eos,
            unk,
            kind: TokenizerKind::Pieces(Box::new(Pieces::new(model, table, unk, options))),
            recipe: Recipe::pieces(spm, vocabulary, options),
        })
    }

    /// The same pieces with tokens that no text shows, such as languages. Other tokenizers are left alone.
    ///
    /// ```
    /// use peregrine_text::{PieceOptions, Tokenizer};
    ///
    /// let vocabulary = ("vocabulary.json", br#"["<unk>", "</s>", "__pt__", "\u2581oi"]"#[..].into());
    /// let tokenizer = Tokenizer::pieces(None, vocabulary, PieceOptions::default())?.hiding(vec![2]);
    /// assert_eq!(tokenizer.decode(&[2, 3]), "oi");
    /// # Ok::<(), peregrine_text::Error>(())
    /// ```
    pub fn hiding(mut self, ids: Vec<u32>) -> Self {
        if let TokenizerKind::Pieces(pieces) = &mut self.kind {
            self.recipe.set_hidden(&ids);
            pieces.hide(ids);
        }
        self
    }

    /// Builds a tokenizer again from what [`Tokenizer::recipe`] returned.
    pub fn from_recipe(recipe: &Recipe) -> Result<Self, Error> {
        recipe.build()
    }

    /// Everything needed to build this tokenizer again.
    pub fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }

    /// For word vocabularies: whether decoding undoes `@@ `. Other tokenizers are left alone.
    pub fn joining_bpe(mut self, join: bool) -> Self {
        if let TokenizerKind::Words(words) = &mut self.kind {
            words.set_join_bpe(join);
            self.recipe.set_join_bpe(join);
        }
        self
    }

    /// The ids of a line, without an end symbol.
    pub fn encode(&self, line: &str) -> Encoded {
        match &self.kind {
            TokenizerKind::SentencePiece(model) => model.encode(line),
            TokenizerKind::Words(words) => words.encode(line),
            TokenizerKind::Pieces(pieces) => pieces.encode(line),
        }
    }

    /// The tokens of a line that is already split into them at blanks.
    pub fn encode_tokens(&self, line: &str) -> Encoded {
        let mut encoded = Encoded::default();
        for token in words::tokens(line) {
            encoded.push(self.id(&line[token.clone()]).unwrap_or(self.unk), token);
        }
        encoded
    }

    /// The text of `ids`. The end symbol and ids out of range are skipped.
    pub fn decode(&self, ids: &[u32]) -> String {
        let ids: Cow<'_, [u32]> = match ids.contains(&self.eos) {
            true => ids.iter().copied().filter(|&id| id != self.eos).collect(),
            false => ids.into(),
        };
        match &self.kind {
            TokenizerKind::SentencePiece(model) => model.decode(&ids),
            TokenizerKind::Words(words) => words.decode(&ids),
            TokenizerKind::Pieces(pieces) => pieces.decode(&ids),
        }
    }

    /// The text of `ids` and the bytes of it that each became. The text is that of [`Self::decode`].
    pub fn decode_with_ranges(&self, ids: &[u32]) -> Decoded {
        let kept: Vec<u32> = ids.iter().copied().filter(|&id| id != self.eos).collect();
        let decoded = match &self.kind {
            TokenizerKind::SentencePiece(model) => model.decode_with_ranges(&kept),
            TokenizerKind::Words(words) => words.decode_with_ranges(&kept),
            TokenizerKind::Pieces(pieces) => pieces.decode_with_ranges(&kept),
        };
        match kept.len() == ids.len() {
            true => decoded,
            false => decoded.with_left_out(ids.iter().map(|&id| id != self.eos)),
        }
    }

    /// The text of one token; empty for holes and ids out of range.
    pub fn token(&self, id: u32) -> &str {
        let token = match &self.kind {
            TokenizerKind::SentencePiece(model) => model.piece(id),
            TokenizerKind::Words(words) => words.vocabulary().token(id),
            TokenizerKind::Pieces(pieces) => pieces.vocabulary().token(id),
        };
        token.unwrap_or_default()
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        match &self.kind {
            TokenizerKind::SentencePiece(model) => model.id(token),
            TokenizerKind::Words(words) => words.vocabulary().id(token),
            TokenizerKind::Pieces(pieces) => pieces.vocabulary().id(token),
        }
    }

    /// The ways in which a model may write a text: as it is encoded, and in the fewest pieces that the vocabulary has, if those
    /// are fewer. The SentencePiece model that came with a vocabulary may be another one's, as in some CTranslate2 packages; then
    /// the second is the one that the translation model has learnt. Empty if the text cannot be written.
    pub fn spellings(&self, text: &str) -> Vec<Vec<u32>> {
        let is_spelt = |id: &u32| *id != self.unk && !self.token(*id).starts_with("<0x");
        let returns = |ids: &Vec<u32>| {
            !ids.is_empty() && ids.iter().all(is_spelt) && self.decode(ids) == text
        };
        let encoded = self.encode(text).ids;
        let count = encoded.len();
        let mut spellings: Vec<Vec<u32>> = Vec::from_iter(Some(encoded).filter(returns));
        if !matches!(self.kind, TokenizerKind::Words(_)) {
            let fewest = self.fewest_pieces(&format!("▁{}", text.replace(' ', "▁")));
            spellings.extend(fewest.filter(|ids| ids.len() < count).filter(returns));
        }
        spellings
    }

    /// The fewest pieces of the vocabulary that make a text; of several ways the one whose first pieces are longest.
    fn fewest_pieces(&self, text: &str) -> Option<Vec<u32>> {
        /// Longer pieces than any vocabulary has.
        const LONGEST_PIECE: usize = 64;
        // The least number of pieces from each byte on, and the end of the first one.
        let mut best: Vec<Option<(usize, usize, u32)>> = vec![None; text.len() + 1];
        best[text.len()] = Some((0, 0, 0));
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for &start in places.iter().rev() {
            let ends = places.iter().copied().chain([text.len()]).rev();
            for end in ends.filter(|&end| end > start && end - start <= LONGEST_PIECE) {
                let (Some((count, ..)), Some(id)) = (best[end], self.id(&text[start..end])) else {
                    continue;
                };
                if best[start].is_none_or(|(known, ..)| count + 1 < known) {
                    best[start] = Some((count + 1, end, id));
                }
            }
        }
        let mut ids = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let (_, end, id) = best[at]?;
            ids.push(id);
            at = end;
        }
        Some(ids)
    }

    /// Whether a token goes on with the word before it: it begins with a letter and has no mark of a word's beginning. In a
    /// script without blanks no token does.
    pub fn continues_word(&self, id: u32) -> bool {
        let token = self.token(id);
        let is_byte = token.starts_with("<0x") && token.ends_with('>');
        let letter = |c: char| c.is_alphanumeric() && !crate::is_unspaced(c);
        !matches!(self.kind, TokenizerKind::Words(_)) && (is_byte || token.starts_with(letter))
    }

    /// Whether a token's word goes on with the next token: it ends in `@@`.
    pub fn is_unfinished(&self, id: u32) -> bool {
        matches!(self.kind, TokenizerKind::Words(_)) && self.token(id).ends_with("@@")
    }

    /// The greatest id plus one.
    pub fn size(&self) -> usize {
        match &self.kind {
            TokenizerKind::SentencePiece(model) => model.len(),
            TokenizerKind::Words(words) => words.vocabulary().len(),
            TokenizerKind::Pieces(pieces) => pieces.vocabulary().len(),
        }
    }

    /// The end symbol.
    pub fn eos(&self) -> u32 {
        self.eos
    }

    /// The unknown symbol.
    pub fn unk(&self) -> Option<u32> {
        Some(self.unk)
    }

    /// Ids of the control bytes `<0x00>` to `<0x1F>`, which Marian never lets a model produce.
    pub fn suppressed(&self) -> Vec<u32> {
        (0..0x20).filter_map(|byte| self.id(&format!("<0x{byte:02X}>"))).collect()
    }

    /// Of a SentencePiece model whose pieces a vocabulary numbers: how many pieces of text the vocabulary
    /// has, and how many there are. Two files that belong together differ in few.
    pub fn known_pieces(&self) -> Option<(usize, usize)> {
        match &self.kind {
            TokenizerKind::Pieces(pieces) => pieces.known(),
            _ => None,
        }
    }

    /// Whether it takes text as people write it. Otherwise a line must have been prepared: words and marks apart, split into
    /// subwords, or with the code of a language in front.
    pub fn reads_text(&self) -> bool {
        match &self.kind {
            TokenizerKind::SentencePiece(_) => true,
            TokenizerKind::Words(_) => false,
            TokenizerKind::Pieces(pieces) => pieces.reads_text(),
        }
    }

    /// Drops tokens with ids of `size` and above: they then read as unknown. Marian's rule for the
    /// source side; SentencePiece models keep all their pieces.
    pub fn limit_source(&mut self, size: usize) {
        match &mut self.kind {
            TokenizerKind::SentencePiece(_) => return,
            TokenizerKind::Words(words) => words.limit(size),
            TokenizerKind::Pieces(pieces) => pieces.limit(size),
        }
        self.recipe.set_limit(size);
    }
}

/// The end and unknown symbols, without which a vocabulary is of no use.
fn required(name: &str, vocabulary: &Vocabulary) -> Result<(u32, u32), Error> {
    let missing = |token: &str| Error::new(name, "tokens", format!("there is no {token}"));
    let eos = vocabulary.eos_id().ok_or_else(|| missing(crate::vocabulary::EOS))?;
    let unk = vocabulary.unk_id().ok_or_else(|| missing(crate::vocabulary::UNK))?;
    Ok((eos, unk))
}
