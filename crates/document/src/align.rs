//! The alignment of a block's text and its translation, in pieces fine enough to put tags between them.
//!
//! An engine aligns words, and a word has its punctuation with it: `"door".` The pieces here are words without punctuation at
//! their ends, single punctuation marks, and whatever is kept as it is. Where a tag is inside a word that was copied, the
//! word is cut there on both sides.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::block::{Block, Kind, Link, Translated, words};
use crate::builder::OBJECT;

/// Punctuation follows its word, and outweighs nothing.
const MARK_WEIGHT: f32 = 0.1;
/// Things that are kept are certain.
const KEPT_WEIGHT: f32 = 2.0;
/// Links from each piece of a word to each piece of another, at most.
const MOST_LINKS: usize = 4096;
/// Bytes that may be searched for things whose place is not known.
const MOST_SEARCHED: usize = 1 << 26;

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) range: Range<usize>,
    pub(crate) kind: PieceKind,
    /// The number of the word it is part of.
    word: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Word,
    /// A punctuation mark.
    Mark,
    /// What is kept: the number of its span.
    Kept(usize),
    /// A mark for an object that nothing belongs to.
    Nothing,
}

/// The pieces of both texts, and for each of the target those of the source it comes from.
#[derive(Debug)]
pub(crate) struct Alignment {
    pub(crate) source: Vec<Piece>,
    pub(crate) target: Vec<Piece>,
    pub(crate) links: Vec<Vec<(usize, f32)>>,
    /// The spans that are kept and did not come back.
    pub(crate) lost: Vec<usize>,
}

impl Alignment {
    pub(crate) fn new(block: &Block, new: &Translated) -> Alignment {
        let (kept, lost) = find_kept(block, new);
        let keeps = block.spans.iter().enumerate().filter(|(_, span)| span.kind == Kind::Keep);
        let keeps: Vec<_> = keeps.map(|(number, span)| (span.text.clone(), number)).collect();
        let links: Vec<&Link> = new.links.iter().filter(|link| fits(link, block, new)).collect();
        let mut source = Side::new(&block.text, links.iter().map(|link| &link.source), keeps);
        let mut target = Side::new(&new.text, links.iter().map(|link| &link.target), kept);
        let links = match links.is_empty() {
            true => in_order(source.words.len(), target.words.len()),
            false => {
                let word = |link: &&Link| {
                    Some((source.word(&link.source)?, target.word(&link.target)?, link.weight))
                };
                links.iter().filter_map(word).collect()
            }
        };
        cut_copies(block, &mut source, &mut target, &links);
        let (source, target) = (source.pieces(), target.pieces());
        let mut linker = Linker::new(&block.text, &new.text, source, target);
        links
            .iter()
            .for_each(|&(source, target, weight)| linker.link_words(source, target, weight));
        linker.link_marks();
        linker.link_kept();
        let Linker { source, target, links, .. } = linker;
        Alignment { source, target, links, lost }
    }
}

/// Whether a link is about words of the two texts.
fn fits(link: &Link, block: &Block, new: &Translated) -> bool {
    let inside = |text: &str, range: &Range<usize>| {
        text.get(range.clone()).is_some_and(|word| !word.is_empty())
    };
    inside(&block.text, &link.source) && inside(&new.text, &link.target) && link.weight > 0.0
}

/// Links of words that keep their order.
fn in_order(source: usize, target: usize) -> Vec<(usize, usize, f32)> {
    let link = |word: usize| ((2 * word + 1) * source / (2 * target), word, 0.5);
    if source == 0 { Vec::new() } else { (0..target).map(link).collect() }
}

/// Where the things that are kept went, in the target's order, and those that did not come back.
fn find_kept(block: &Block, new: &Translated) -> (Vec<(Range<usize>, usize)>, Vec<usize>) {
    let told: HashMap<_, _> =
        new.kept.iter().map(|(from, to)| (from.clone(), to.clone())).collect();
    let mut found: Vec<(Range<usize>, usize)> = Vec::new();
    let mut missing = Vec::new();
    let mut taken: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut take = |range: &Range<usize>| {
        let free =
            taken.range(..(range.end, 0)).next_back().is_none_or(|&(_, end)| end <= range.start);
        if free {
            taken.insert((range.start, range.end));
        }
        free
    };
    for (number, span) in block.spans.iter().enumerate().filter(|(_, span)| span.kind == Kind::Keep)
    {
        match told.get(&span.text) {
            Some(to) if new.text.get(to.clone()).is_some_and(|t| !t.is_empty()) && take(to) => {
                found.push((to.clone(), number));
            }
            _ => missing.push(number),
        }
    }
    let mut lost = Vec::new();
    let mut searched = 0;
    let mut from: HashMap<&str, usize> = HashMap::new();
    for number in missing {
        let wanted = &block.text[block.spans[number].text.clone()];
        let from = from.entry(wanted).or_default();
        let place = loop {
            if searched > MOST_SEARCHED {
                break None;
            }
            searched += new.text.len() - *from;
            let Some(at) = new.text[*from..].find(wanted).map(|at| at + *from) else { break None };
            let range = at..at + wanted.len();
            *from = range.end;
            if stands_alone(&new.text, &range) && take(&range) {
                break Some(range);
            }
        };
        match place {
            Some(range) => found.push((range, number)),
            None => lost.push(number),
        }
    }
    found.sort_by_key(|(range, _)| range.start);
    (found, lost)
}

/// Whether a stretch does not begin or end inside of a word.
fn stands_alone(text: &str, range: &Range<usize>) -> bool {
    let inside = |before: Option<char>, behind: Option<char>| {
        before.is_some_and(char::is_alphanumeric) && behind.is_some_and(char::is_alphanumeric)
    };
    let ends = |at: usize| inside(text[..at].chars().next_back(), text[at..].chars().next());
    !ends(range.start) && !ends(range.end)
}

/// One of the two texts.
struct Side<'a> {
    text: &'a str,
    words: Vec<Range<usize>>,
    kept: Vec<(Range<usize>, usize)>,
    /// Places inside of words where pieces end.
    cuts: BTreeSet<usize>,
}

impl<'a> Side<'a> {
    /// The words that an engine names, and what stands between white space where it names none.
    fn new<'r>(
        text: &'a str,
        named: impl Iterator<Item = &'r Range<usize>>,
        kept: Vec<(Range<usize>, usize)>,
    ) -> Side<'a> {
        let mut named: Vec<&Range<usize>> = named.collect();
        named.sort_by_key(|range| (range.start, range.end));
        let mut list: Vec<Range<usize>> = Vec::with_capacity(named.len());
        let mut end = 0;
        let between = |from: usize, to: usize, list: &mut Vec<Range<usize>>| {
            let found = words(&text[from..to]).into_iter();
            list.extend(found.map(|word| word.start + from..word.end + from));
        };
        for range in named {
            if range.start >= end {
                between(end, range.start, &mut list);
                list.push(range.clone());
                end = range.end;
            }
        }
        between(end, text.len(), &mut list);
        Side { text, words: list, kept, cuts: BTreeSet::new() }
    }

    /// The number of the word at a place.
    fn word(&self, range: &Range<usize>) -> Option<usize> {
        let word = self.words.partition_point(|word| word.end <= range.start);
        self.words.get(word).filter(|word| word.start < range.end).map(|_| word)
    }

    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(self.words.len());
        let mut kept = self.kept.iter().peekable();
        for (number, word) in self.words.iter().enumerate() {
            let after_kept = |pieces: &[Piece]| pieces.last().map_or(0, |piece| piece.range.end);
            let mut start = word.start.max(after_kept(&pieces));
            // A thing that is kept may be part of a word, or several words with what is between them.
            while let Some((range, span)) = kept.next_if(|(range, _)| range.start < word.end) {
                self.cut(start..range.start, number, &mut pieces);
                pieces.push(Piece {
                    range: range.clone(),
                    kind: PieceKind::Kept(*span),
                    word: number,
                });
                start = range.end;
            }
            self.cut(start.max(after_kept(&pieces))..word.end, number, &mut pieces);
        }
        pieces
    }

    /// The pieces of a part of a word.
    fn cut(&self, range: Range<usize>, word: usize, pieces: &mut Vec<Piece>) {
        let Some(text) = self.text.get(range.clone()).filter(|text| !text.is_empty()) else {
            return;
        };
        let core = text.trim_matches(is_mark);
        let core_start = if core.is_empty() {
            range.end
        } else {
            range.start + text.len() - text.trim_start_matches(is_mark).len()
        };
        let marks = |range: Range<usize>, pieces: &mut Vec<Piece>| {
            for (at, c) in self.text[range.clone()].char_indices() {
                let kind = if c == OBJECT { PieceKind::Nothing } else { PieceKind::Mark };
                let start = range.start + at;
                pieces.push(Piece { range: start..start + c.len_utf8(), kind, word });
            }
        };
        marks(range.start..core_start, pieces);
        let core_end = core_start + core.len();
        let mut start = core_start;
        for end in
            self.cuts.range(core_start + 1..core_end.max(core_start + 1)).copied().chain([core_end])
        {
            if start < end {
                pieces.push(Piece { range: start..end, kind: PieceKind::Word, word });
            }
            start = end;
        }
        marks(core_end..range.end, pieces);
    }
}

/// Punctuation and other signs that stand next to words without being part of them.
fn is_mark(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(
            c,
            '\u{a1}'..='\u{a9}'
                | '\u{ab}'..='\u{b4}'
                | '\u{b6}'..='\u{b8}'
                | '\u{bb}'
                | '\u{bf}'
                | '\u{60c}'
                | '\u{61b}'
                | '\u{61f}'
                | '\u{6d4}'
                | '\u{964}'
                | '\u{965}'
                | '\u{2010}'..='\u{2027}'
                | '\u{2030}'..='\u{205e}'
                | '\u{20a0}'..='\u{20cf}'
                | '\u{3001}'..='\u{3003}'
                | '\u{3008}'..='\u{3011}'
                | '\u{ff01}'..='\u{ff0f}'
                | '\u{ff1a}'..='\u{ff20}'
                | OBJECT
        )
}

/// Cuts words that were copied where a tag is inside of them.
fn cut_copies(block: &Block, source: &mut Side, target: &mut Side, links: &[(usize, usize, f32)]) {
    let mut edges: Vec<usize> =
        block.spans.iter().flat_map(|span| [span.text.start, span.text.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    for &(from, to, _) in links {
        let (from, to) = (source.words[from].clone(), target.words[to].clone());
        let first = edges.partition_point(|&edge| edge <= from.start);
        let inside: Vec<usize> =
            edges[first..].iter().copied().take_while(|&edge| edge < from.end).collect();
        if inside.is_empty() {
            continue;
        }
        let is_core = |c: char| !is_mark(c);
        let (word, copy) = (&source.text[from.clone()], &target.text[to.clone()]);
        let (word_core, copy_core) = (word.trim_matches(is_mark), copy.trim_matches(is_mark));
        if word_core != copy_core || word_core.is_empty() {
            continue;
        }
        let offset = |text: &str| text.find(is_core).unwrap_or(0);
        let (from, to) = (from.start + offset(word), to.start + offset(copy));
        for edge in inside.into_iter().filter(|&edge| edge > from && edge < from + word_core.len())
        {
            source.cuts.insert(edge);
            target.cuts.insert(to + (edge - from));
        }
    }
}

/// Links pieces.
struct Linker<'a> {
    source_text: &'a str,
    target_text: &'a str,
    source: Vec<Piece>,
    target: Vec<Piece>,
    links: Vec<Vec<(usize, f32)>>,
}

impl<'a> Linker<'a> {
    fn new(
        source_text: &'a str,
        target_text: &'a str,
        source: Vec<Piece>,
        target: Vec<Piece>,
    ) -> Self {
        let links = vec![Vec::new(); target.len()];
        Linker { source_text, target_text, source, target, links }
    }

    /// The pieces of a word, apart from those that are kept.
    fn pieces_of(pieces: &[Piece], word: usize) -> Vec<usize> {
        let first = pieces.partition_point(|piece| piece.word < word);
        let last = pieces.partition_point(|piece| piece.word <= word);
        let ours =
            |number: &usize| matches!(pieces[*number].kind, PieceKind::Word | PieceKind::Mark);
        (first..last).filter(ours).collect()
    }

    fn link_words(&mut self, source: usize, target: usize, weight: f32) {
        let source = Self::pieces_of(&self.source, source);
        let target = Self::pieces_of(&self.target, target);
        let cores = |pieces: &[Piece], all: &[usize]| -> Vec<usize> {
            let words: Vec<usize> = all
                .iter()
                .copied()
                .filter(|&piece| pieces[piece].kind == PieceKind::Word)
                .collect();
            if words.is_empty() { all.to_vec() } else { words }
        };
        let (from, to) = (cores(&self.source, &source), cores(&self.target, &target));
        let same = from.len() == to.len()
            && from.iter().zip(&to).all(|(&from, &to)| self.source(from) == self.target(to));
        if same {
            from.iter().zip(&to).for_each(|(&from, &to)| self.links[to].push((from, weight)));
        } else if from.len() * to.len() <= MOST_LINKS {
            for &to in &to {
                self.links[to].extend(from.iter().map(|&from| (from, weight)));
            }
        } else {
            for (place, &to) in to.iter().enumerate() {
                let from = from[place.min(from.len() - 1)];
                self.links[to].push((from, weight));
            }
        }
        // Marks of the one that the other has too, in their order.
        let mut place = 0;
        for &to in target.iter().filter(|&&piece| self.target[piece].kind == PieceKind::Mark) {
            let rest = source[place..].iter();
            let same = rest.clone().position(|&from| alike(self.source(from), self.target(to)));
            if let Some(at) = same {
                self.links[to].push((source[place + at], weight * MARK_WEIGHT));
                place += at + 1;
            }
        }
    }

    /// Links marks of which both texts have the same number, in their order, where they have no links.
    fn link_marks(&mut self) {
        fn marks<'t>(pieces: &[Piece], text: &'t str) -> HashMap<&'t str, Vec<usize>> {
            let mut marks: HashMap<&str, Vec<usize>> = HashMap::new();
            let all = pieces.iter().enumerate().filter(|(_, piece)| piece.kind == PieceKind::Mark);
            for (number, piece) in all {
                marks.entry(&text[piece.range.clone()]).or_default().push(number);
            }
            marks
        }
        let source = marks(&self.source, self.source_text);
        for (mark, places) in marks(&self.target, self.target_text) {
            let Some(from) = source.get(mark).filter(|from| from.len() == places.len()) else {
                continue;
            };
            for (&from, &to) in from.iter().zip(&places) {
                if self.links[to].is_empty() {
                    self.links[to].push((from, MARK_WEIGHT / 2.0));
                }
            }
        }
    }

    fn link_kept(&mut self) {
        let kept = |pieces: &[Piece]| -> Vec<(usize, usize)> {
            let span = |(number, piece): (usize, &Piece)| match piece.kind {
                PieceKind::Kept(span) => Some((span, number)),
                _ => None,
            };
            pieces.iter().enumerate().filter_map(span).collect()
        };
        let source: HashMap<usize, usize> = kept(&self.source).into_iter().collect();
        for (span, to) in kept(&self.target) {
            if let Some(&from) = source.get(&span) {
                self.links[to] = vec![(from, KEPT_WEIGHT)];
            }
        }
    }

    fn source(&self, piece: usize) -> &'a str {
        &self.source_text[self.source[piece].range.clone()]
    }

    fn target(&self, piece: usize) -> &'a str {
        &self.target_text[self.target[piece].range.clone()]
    }
}

/// Whether two marks do the same in two languages.
fn alike(a: &str, b: &str) -> bool {
    let class = |mark: &str| match mark {
        "\"" | "“" | "”" | "„" | "«" | "»" | "‘" | "’" | "'" | "「" | "」" => 1,
        "." | "。" | "।" | "۔" => 2,
        "," | "、" | "，" | "،" => 3,
        "?" | "？" | "؟" => 4,
        "!" | "！" => 5,
        "-" | "–" | "—" => 6,
        ":" | "：" => 7,
        ";" | "；" | "؛" => 8,
        "(" | "（" => 9,
        ")" | "）" => 10,
        _ => 0,
    };
    a == b || class(a) != 0 && class(a) == class(b)
}
