//! SentencePiece's byte-pair encoding: merge the best-scored pair of neighbours until none is a piece.
//!
//! Symbols form a linked list over the text; candidate pairs wait in a heap. A pair that an earlier merge
//! made stale is recognised when it comes up, not searched for, which keeps a line of `n` characters at
//! `n log n`. (Codes made by `subword-nmt` follow other rules: see [`crate::BpeCodes`].)

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::Segment;
use super::lexicon::Lexicon;
use crate::trie::{NodeIndex, ROOT, Trie};
use crate::utf8;

const NONE: usize = usize::MAX;

/// Pieces that are known but must not come out, with the place where they were joined:
/// text of the piece to length of its left part.
type Seams<'t> = FxHashMap<&'t [u8], usize>;

struct Symbol {
    /// Empty once merged into its left neighbour.
    range: Range<usize>,
    previous: usize,
    next: usize,
    /// Where the symbol's bytes lead in the trie of pieces, if anywhere.
    node: Option<NodeIndex>,
    /// A user-defined piece: takes part in no merge.
    frozen: bool,
}

struct Pair {
    score: f32,
    left: usize,
    right: usize,
    length: usize,
    node: NodeIndex,
}

impl Ord for Pair {
    /// The greatest comes first: higher score, then further left.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

struct Merger<'t> {
    text: &'t [u8],
    lexicon: &'t Lexicon,
    symbols: Vec<Symbol>,
    agenda: BinaryHeap<Pair>,
    seams: Seams<'t>,
}

/// Cuts `text`; `user_defined` pieces stay whole.
pub(super) fn segment(lexicon: &Lexicon, user_defined: Option<&Trie>, text: &[u8]) -> Vec<Segment> {
    let mut merger = Merger {
        text,
        lexicon,
        symbols: split(lexicon, user_defined, text),
        agenda: BinaryHeap::new(),
        seams: Seams::default(),
    };
    for right in 1..merger.symbols.len() {
        merger.propose(right - 1, right);
    }
    while let Some(pair) = merger.agenda.pop() {
        merger.merge(&pair);
    }
    merger.finish()
}

/// The symbols to start from: user-defined pieces and single characters.
fn split(lexicon: &Lexicon, user_defined: Option<&Trie>, text: &[u8]) -> Vec<Symbol> {
    let mut symbols = Vec::with_capacity(text.len());
    let mut start = 0;
    while start < text.len() {
        let rest = &text[start..];
        let whole = user_defined.and_then(|trie| trie.longest_prefix(rest));
        let length = whole.unwrap_or_else(|| utf8::length_by_first_byte(rest[0]).min(rest.len()));
        let index: usize = symbols.len();
        symbols.push(Symbol {
            range: start..start + length,
            previous: index.wrapping_sub(1),
            next: if length < rest.len() { index + 1 } else { NONE },
            node: lexicon.trie().walk(ROOT, &rest[..length]),
            frozen: whole.is_some(),
        });
        start += length;
    }
    symbols
}

impl Merger<'_> {
    /// Puts the pair on the agenda if it makes a piece.
    fn propose(&mut self, left: usize, right: usize) {
        if left == NONE || right == NONE {
            return;
        }
        let (first, second) = (&self.symbols[left], &self.symbols[right]);
        if first.frozen || second.frozen {
            return;
        }
        let trie = self.lexicon.trie();
        let Some(node) =
            first.node.and_then(|node| trie.walk(node, &self.text[second.range.clone()]))
        else {
            return;
        };
        let Some(id) = trie.value(node) else { return };
        let whole = first.range.start..second.range.end;
        if self.lexicon.is_unused(id) {
            self.seams.insert(&self.text[whole.clone()], first.range.len());
        }
        let score = self.lexicon.score(id);
        self.agenda.push(Pair { score, left, right, length: whole.len(), node });
    }

    fn merge(&mut self, pair: &Pair) {
        let (left, right) = (&self.symbols[pair.left].range, &self.symbols[pair.right].range);
        let stale = left.is_empty() || right.is_empty() || left.len() + right.len() != pair.length;
        if stale {
            return;
        }
        let after = self.symbols[pair.right].next;
        let end = right.end;
        self.symbols[pair.right].range = end..end;
        let merged = &mut self.symbols[pair.left];
        merged.range.end = end;
        merged.next = after;
        merged.node = Some(pair.node);
        let before = merged.previous;
        if after != NONE {
            self.symbols[after].previous = pair.left;
        }
        self.propose(before, pair.left);
        self.propose(pair.left, after);
    }

    fn finish(self) -> Vec<Segment> {
        let mut segments = Vec::with_capacity(self.symbols.len() / 2 + 1);
        let mut index = 0;
        while let Some(symbol) = self.symbols.get(index) {
            self.emit(symbol.range.clone(), &mut segments);
            index = symbol.next;
        }
        segments
    }

    /// Adds the symbol, or the parts it was made from if it is a piece that must not come out.
    fn emit(&self, symbol: Range<usize>, segments: &mut Vec<Segment>) {
        let mut pending = vec![symbol];
        while let Some(range) = pending.pop() {
            let text = &self.text[range.clone()];
            let id = self.lexicon.id_or_unknown(text);
            match self.seams.get(text) {
                Some(left) if self.lexicon.is_unused(id) => {
                    let seam = range.start + left;
                    pending.push(seam..range.end);
                    pending.push(range.start..seam);
                }
                _ => segments.push(Segment { id, range }),
            }
        }
    }
}
