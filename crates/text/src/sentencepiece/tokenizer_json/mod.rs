//! Hugging Face's `tokenizer.json`, read as the SentencePiece model that it was made from.
//!
//! Models fine-tuned with `transformers` are often saved without their `.spm` file. Its pieces, scores and
//! character map are all in `tokenizer.json`, in other words:
//!
//! ```text
//! model          Unigram: pieces and scores │ BPE: pieces and merges, whose order gives the scores
//! added_tokens   special: control pieces │ others: user-defined pieces
//! normalizer,    charsmap, add_dummy_prefix, remove_extra_whitespaces
//! pre_tokenizer
//! ```
//!
//! Text is then segmented as SentencePiece does it. The library `tokenizers` differs in details (it
//! keeps blanks at the end of a line, and takes `</s>` in a text for the end of it), which no model was
//! trained for. `post_processor` and `decoder` are not read: which control pieces frame a line is the model's
//! affair, and decoding follows from the pieces.
//!
//! The file forgets which pieces were marked as unused; they count as normal ones.

mod merges;
mod read;
mod stages;

use super::file::{Algorithm, Kind, ModelFile, NormalizerSpec, Piece, Trainer, check_piece};
use super::lexicon::byte_of;
use super::{SentencePiece, UserDefinedScore};
use crate::Error;
use crate::error::check_size;
use crate::trie::Trie;
use crate::vocabulary::{EOS, UNK};
use read::{File, Model, Vocab, Word};

/// Hugging Face's `tokenizer.json`: a SentencePiece model with the words that were added to it.
///
/// ```
/// use peregrine_text::TokenizerJson;
///
/// let file = r#"{
///   "added_tokens": [{"id": 4, "content": "eng_Latn", "special": true}],
///   "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
///   "model": {
///     "type": "BPE", "unk_token": "<unk>", "fuse_unk": true,
///     "vocab": {"</s>": 0, "<unk>": 1, "▁": 2, "▁a": 3, "a": 5},
///     "merges": [["▁", "a"]]
///   }
/// }"#;
/// let TokenizerJson { sentencepiece, added } = TokenizerJson::from_bytes("tokenizer.json", file.as_bytes())?;
/// assert_eq!(sentencepiece.encode("a aab").ids, [3, 3, 5, 1]);
/// assert_eq!(sentencepiece.piece(4), Some("eng_Latn"));
/// assert_eq!(added[0].content, "eng_Latn");
/// # Ok::<(), peregrine_text::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TokenizerJson {
    /// The model. Its ids are those of the file, so that [`SentencePiece::pieces`] lists all words of the
    /// translation model in order, added ones among them.
    pub sentencepiece: SentencePiece,
    /// Words beside the pieces, in the file's order: control words, codes of languages, `<mask>`.
    pub added: Vec<AddedToken>,
}

/// A word of `added_tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// Its id in the translation model.
    pub id: u32,
    /// The word.
    pub content: String,
    /// Whether it is a control word, which no text matches. Any other is matched whole wherever a text has it.
    pub special: bool,
}

impl TokenizerJson {
    /// Reads the file; `name` is repeated in error messages.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        Self::with_rule(name, bytes, UserDefinedScore::Zero)
    }

    /// The same for a given rule of user-defined pieces.
    pub(super) fn with_rule(
        name: &str,
        bytes: &[u8],
        rule: UserDefinedScore,
    ) -> Result<Self, Error> {
        check_size(name, bytes)?;
        let file = File::parse(name, bytes)?;
        let algorithm = file.model.algorithm(name)?;
        let rewriting = stages::read(name, &file)?;
        let words = words_by_id(name, &file)?;
        let index = index(name, &words)?;
        let unknown = unknown(name, &file.model, words.len(), &index)?;
        let kinds = kinds(&file, &words, unknown);
        let scores = match &file.model.vocab {
            Vocab::Scores(scores) => scores.iter().map(|(_, score)| *score as f32 + 0.0).collect(),
            Vocab::Ids(_) => merges::scores(name, &file.model.merges, &words, &kinds, &index)?,
        };
        let model = ModelFile {
            trainer: Trainer {
                algorithm,
                byte_fallback: file.model.byte_fallback || spells_bytes(&kinds),
                ..Trainer::default()
            },
            pieces: pieces(name, &words, &scores, &kinds)?,
            normalizer: NormalizerSpec {
                charsmap: &rewriting.charsmap,
                add_dummy_prefix: rewriting.adds_prefix,
                remove_extra_whitespaces: rewriting.squeezes_blanks,
                escape_whitespaces: true,
            },
            denormalizer: NormalizerSpec::default(),
        };
        let sentencepiece = SentencePiece::new(name, model, rule)?;
        let added = file.added_tokens.iter().map(|token| AddedToken {
            id: token.id as u32, // Every id is below the number of words.
            content: token.content.to_string(),
            special: token.special,
        });
        Ok(Self { sentencepiece, added: added.collect() })
    }
}

impl Model<'_> {
    /// How it cuts text. What SentencePiece cannot do is refused.
    fn algorithm(&self, name: &str) -> Result<Algorithm, Error> {
        let refuse = |problem: &str| Err(Error::new(name, "model", problem));
        let kind = self.kind.as_deref().unwrap_or(match self.vocab {
            Vocab::Scores(_) => "Unigram",
            Vocab::Ids(_) => "BPE",
        });
        let is_set = |affix: &Option<Word<'_>>| affix.as_ref().is_some_and(|word| !word.is_empty());
        match (kind, &self.vocab) {
            ("Unigram", Vocab::Scores(_)) => Ok(Algorithm::Unigram),
            ("Unigram", _) => refuse("`vocab` is an object, expected a list of pieces and scores"),
            ("BPE", Vocab::Scores(_)) => {
                refuse("`vocab` is a list, expected pieces with their ids")
            }
            ("BPE", _)
                if is_set(&self.continuing_subword_prefix) || is_set(&self.end_of_word_suffix) =>
            {
                refuse("BPE with marks within or behind words is not supported")
            }
            ("BPE", _) if self.ignore_merges => refuse("`ignore_merges` is not supported"),
            ("BPE", _) if !self.fuse_unk && !self.byte_fallback => refuse(
                "`fuse_unk` is false: SentencePiece makes one <unk> of a run of unknown text",
            ),
            ("BPE", _) => Ok(Algorithm::Bpe),
            (other, _) => refuse(&format!("the type {} is not supported", quote(other))),
        }
    }
}

/// All words in order of their ids. The list is as long as the file has words, whatever ids it names.
fn words_by_id<'a>(name: &str, file: &'a File<'_>) -> Result<Vec<&'a str>, Error> {
    let count = file.model.vocab.len() + file.added_tokens.len();
    let mut words = vec![""; count];
    let added = file.added_tokens.iter().map(|token| (&*token.content, token.id));
    for (word, id) in file.model.vocab.iter().chain(added) {
        let fail = |problem| Err(Error::new(name, format!("word {}", quote(word)), problem));
        match usize::try_from(id).ok().and_then(|id| words.get_mut(id)) {
            _ if word.is_empty() => return fail(format!("the word with the id {id} is empty")),
            None => return fail(format!("its id is {id}, but there are only {count} words")),
            Some(slot) if slot.is_empty() => *slot = word,
            Some(slot) if *slot == word => {}
            Some(slot) => return fail(format!("its id {id} is that of {} too", quote(slot))),
        }
    }
    let size = words.iter().rposition(|word| !word.is_empty()).map_or(0, |last| last + 1);
    words.truncate(size);
    match words.iter().position(|word| word.is_empty()) {
        Some(hole) => Err(Error::new(name, "words", format!("no word has the id {hole}"))),
        None if words.is_empty() => Err(Error::new(name, "words", "there are none")),
        None => Ok(words),
    }
}

/// Word to id.
fn index(name: &str, words: &[&str]) -> Result<Trie, Error> {
    let mut entries: Vec<(&[u8], u32)> =
        words.iter().map(|word| word.as_bytes()).zip(0..).collect();
    Trie::sort(&mut entries);
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let (first, second) = (pair[0].1, pair[1].1);
        let place = format!("word {}", quote(words[first as usize]));
        return Err(Error::new(name, place, format!("it has two ids, {first} and {second}")));
    }
    Ok(Trie::from_sorted(&entries))
}

/// The id of the unknown word. Its name counts more than `unk_id`: some versions of `transformers` write 2 there for
/// every T5, where MADLAD has `</s>`.
fn unknown(name: &str, model: &Model<'_>, size: usize, index: &Trie) -> Result<usize, Error> {
    let word = model.unk_token.as_deref().unwrap_or(UNK);
    let named = index.get(word.as_bytes()).map(|id| id as usize);
    let numbered = || usize::try_from(model.unk_id?).ok().filter(|&id| id < size);
    let missing = || Error::new(name, "model", format!("there is no unknown word {}", quote(word)));
    named.or_else(numbered).ok_or_else(missing)
}

/// What each word may do.
fn kinds(file: &File<'_>, words: &[&str], unknown: usize) -> Vec<Kind> {
    let by_name = |word: &&str| match *word {
        "<s>" | EOS | "<pad>" => Kind::Control,
        word if byte_of(word).is_some() => Kind::Byte,
        _ => Kind::Normal,
    };
    let mut kinds: Vec<Kind> = words.iter().map(by_name).collect();
    for token in &file.added_tokens {
        let kind = &mut kinds[token.id as usize];
        if *kind == Kind::Normal {
            *kind = if token.special { Kind::Control } else { Kind::UserDefined };
        }
    }
    kinds[unknown] = Kind::Unknown;
    kinds
}

/// Whether unknown characters are spelt as bytes, though the file may not say so: SentencePiece makes pieces of
/// all bytes for that purpose alone, and older versions of `transformers` lost the switch.
fn spells_bytes(kinds: &[Kind]) -> bool {
    kinds.iter().filter(|kind| **kind == Kind::Byte).count() == 256
}

/// The pieces by id; words behind those of the model have no score.
fn pieces<'a>(
    name: &str,
    words: &[&'a str],
    scores: &[f32],
    kinds: &[Kind],
) -> Result<Vec<Piece<'a>>, Error> {
    let scores = scores.iter().copied().chain(std::iter::repeat(0.0));
    let pieces = words.iter().zip(scores).zip(kinds).enumerate();
    let piece = |(id, ((text, score), kind)): (usize, ((&&'a str, f32), &Kind))| {
        let piece = Piece { text, score, kind: *kind };
        match check_piece(&piece) {
            Ok(()) => Ok(piece),
            Err(problem) => Err(Error::new(name, format!("piece {id}"), problem)),
        }
    };
    pieces.map(piece).collect()
}

/// The start of a string from the file, for an error message of one line.
fn quote(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
