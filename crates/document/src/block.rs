//! What is translated: blocks of text with spans, and what comes back for them.

use std::ops::Range;

/// A stretch of a document that is translated as one text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block {
    /// The text: references decoded, white space folded as the format says. It begins and ends with something else
    /// than white space.
    pub text: String,
    /// The markup inside the text, in the document's order: a pair stands before what is inside it.
    pub spans: Vec<Span>,
    /// Characters of the text that the document spells in another way than as themselves: their offset, and the bytes of
    /// the document they come from.
    pub(crate) spellings: Vec<(usize, Range<usize>)>,
}

/// A piece of markup inside a block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// What it is.
    pub kind: Kind,
    /// The bytes of the block's text that it is about; empty for a point.
    pub text: Range<usize>,
    /// The number of the pair it is inside of, among the block's spans.
    pub parent: Option<usize>,
    /// The bytes of the document: a pair's start tag, or all of something else. White space that was folded away behind it
    /// belongs to it.
    pub(crate) open: Range<usize>,
    /// The bytes of a pair's end tag, with the white space that was folded away behind it.
    pub(crate) close: Range<usize>,
}

/// The kinds of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A start and an end tag round some text.
    Pair,
    /// Something without extent between two characters: a comment, a line break that may be used, a stray tag.
    Point,
    /// Text that must come back as it is, exactly once: code, a name marked as not to be translated. Something that stands
    /// as a word without having text, such as an image, is U+FFFC (object replacement character) in the text.
    Keep,
}

impl Block {
    /// The ranges of the text that must come back as they are, exactly once, in order.
    pub fn keep(&self) -> Vec<Range<usize>> {
        let keeps = self.spans.iter().filter(|span| span.kind == Kind::Keep);
        keeps.map(|span| span.text.clone()).collect()
    }
}

/// What a block became.
///
/// Offsets are bytes of [`Block::text`] on the source side, of [`Self::text`] on the target side. Ranges that do not fit
/// their text are passed over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Translated {
    /// The new text.
    pub text: String,
    /// The alignment of the words. Without any, words are taken to keep their order.
    pub links: Vec<Link>,
    /// Where the ranges of [`Block::keep`] went: source and target. One that is not listed is looked for in the text.
    pub kept: Vec<(Range<usize>, Range<usize>)>,
}

/// A source word, a target word, and how much the second comes from the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The source word.
    pub source: Range<usize>,
    /// The target word.
    pub target: Range<usize>,
    /// The share of the target word that comes from this source word, from 0 to 1.
    pub weight: f32,
}

impl Link {
    /// A link of two words.
    pub fn new(source: Range<usize>, target: Range<usize>, weight: f32) -> Link {
        Link { source, target, weight }
    }
}

impl Translated {
    /// The block as it is: what an engine gives that only copies.
    pub fn copy(block: &Block) -> Translated {
        let words = words(&block.text);
        let link = |word: Range<usize>| Link::new(word.clone(), word, 1.0);
        Translated {
            text: block.text.clone(),
            links: words.into_iter().map(link).collect(),
            kept: block.keep().into_iter().map(|range| (range.clone(), range)).collect(),
        }
    }
}

/// The words of a text: what stands between white space; in scripts that write no blanks, every character.
pub(crate) fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut joins = false;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        let alone = peregrine_text::is_unspaced(c);
        match words.last_mut() {
            _ if c.is_whitespace() => {}
            Some(last) if joins && !alone => last.end = end,
            _ => words.push(at..end),
        }
        joins = !c.is_whitespace() && !alone;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_white_space_and_characters_without_blanks_are_words() {
        assert_eq!(words(" ab, c 我爱x"), [1..4, 5..6, 7..10, 10..13, 13..14]);
        assert_eq!(words(" \n"), []);
    }
}
