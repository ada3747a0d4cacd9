//! The sentences of a translation: what each was made of and what it became.

use std::ops::Range;

use peregrine_decode::Verdict;

use crate::Quality;

/// A sentence of a translated text, or a piece of one that was too long for the model.
///
/// Offsets are bytes: of the request's text on the source side, of [`Alternative::text`](crate::Alternative::text) on the
/// target side. [`Offsets`](crate::text::Offsets) converts them to what other languages count in.
///
/// ```
/// use peregrine::{Request, Split, Translator};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = Translator::builtin()?;
/// let options = translator.options().with_split(Split::Sentence);
/// let text = "Good morning! Two dogs play in the snow.";
/// let translation = translator.translate_batch(&[Request::new(text)], &options)?.remove(0);
/// let second = &translation.sentences[1];
/// assert_eq!(&text[second.source.clone()], "Two dogs play in the snow.");
/// assert_eq!(&translation.text()[second.targets[0].text.clone()], "Dois cães brincam na neve.");
/// # Ok::<(), peregrine::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Sentence {
    /// The bytes of the request's text that it was made of, without the white space around them. With
    /// [`Split::Paragraph`](crate::Split::Paragraph) in a stream a sentence may end in a later line; line ends then count as one
    /// byte.
    pub source: Range<usize>,
    /// The number of its source tokens, those of the frame included.
    pub source_length: usize,
    /// For each source token the bytes of the request's text that it came from. Tokens of the frame have
    /// empty ranges. Empty unless alignments are asked for.
    pub source_tokens: Vec<Range<usize>>,
    /// The words that its source tokens form. Empty unless alignments are asked for.
    pub source_words: Vec<Range<usize>>,
    /// For each source token the number of its word; none for those of the frame.
    pub(crate) word_of_token: Vec<Option<usize>>,
    /// What it became, one for each of the translation's alternatives.
    pub targets: Vec<Target>,
    /// Whether it is a piece of something that was too long for the model.
    pub cut: bool,
    /// Whether it was copied: it was too long and had no place to cut, or there was nothing in it to translate.
    pub copied: bool,
    /// What the guards found.
    pub verdict: Verdict,
}

/// What a sentence became in one of the alternatives.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Target {
    /// Its bytes of the alternative's text.
    pub text: Range<usize>,
    /// Its tokens among those of the alternative, and among their scores and ranges.
    pub tokens: Range<usize>,
    /// Its own score after penalty and normalisation.
    pub score: f32,
    /// The sum of its token scores, the end symbol's included.
    pub path_score: f32,
    /// The attention of each token to the sentence's source tokens, the frame included. The end symbol's row is the last, if
    /// the sentence ended by itself. Empty unless alignments are asked for.
    pub alignment: Vec<Vec<f32>>,
    /// Whether it ended by itself; if not, it was cut at the length limit.
    pub ended: bool,
    /// How good it seems to be, if that is asked for.
    pub quality: Option<Quality>,
}

impl Sentence {
    /// The same sentence in a text with that many more bytes in front.
    pub(crate) fn shift_source(&mut self, bytes: usize) {
        let ranges = self.source_tokens.iter_mut().chain(&mut self.source_words);
        for range in ranges.chain([&mut self.source]) {
            *range = range.start + bytes..range.end + bytes;
        }
    }

    /// Makes the number of targets fit that of alternatives. A sentence that was copied became the same in all of them.
    pub(crate) fn fit_targets(&mut self, count: usize) {
        if let Some(first) = self.targets.first().filter(|_| self.targets.len() != count) {
            let first = first.clone();
            self.targets.resize(count, first);
        }
    }
}

impl Target {
    /// Moves it behind that many bytes and tokens.
    pub(crate) fn shift(&mut self, bytes: usize, tokens: usize) {
        self.text = self.text.start + bytes..self.text.end + bytes;
        self.tokens = self.tokens.start + tokens..self.tokens.end + tokens;
    }
}
