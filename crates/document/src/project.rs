//! Where the spans of a block go in its translation.
//!
//! A pair becomes one interval of the target: the words that come from its words. Runs of them are joined over gaps of at most
//! two other words, and of several runs the heaviest is taken. Pairs are placed from the outside in. Those inside another
//! stay inside, and those side by side never overlap, since a target word comes from one source word above all. A pair
//! none of whose words has a target word goes round a word near its neighbours. White space stays on the side of a tag it was
//! on. A point stays with the word it touches, and points keep their order.

use std::ops::Range;

use crate::align::{Alignment, PieceKind};
use crate::block::{Block, Kind, Translated};
use crate::body::NoteKind;

/// Words of others that a pair's words may have between them.
const WIDEST_GAP: usize = 2;
/// Pieces without any source that a pair's words may have between them.
const WIDEST_HOLE: usize = 6;
/// How far from its neighbours a pair may be put.
const FARTHEST: usize = 64;

/// A translated block as a sequence.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) items: Vec<Item>,
    /// Spans that could not be placed as they should.
    pub(crate) notes: Vec<(usize, NoteKind)>,
}

/// A piece of a translated block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// Bytes of the new text.
    Text(Range<usize>),
    /// A blank that the new text does not have.
    Blank,
    /// The start tag of a pair.
    Open(usize),
    /// The end tag of a pair.
    Close(usize),
    /// A point, or something that is kept.
    Point(usize),
}

/// A block in the order of its translation. Every span is in it exactly once.
pub(crate) fn project(block: &Block, new: &Translated) -> Layout {
    let mut projection = Projection::new(block, Alignment::new(block, new));
    let source = 0..projection.alignment.source.len();
    let target = 0..projection.alignment.target.len();
    projection.place_level(None, source, target);
    let Projection { alignment, steps, notes, .. } = projection;
    Layout { items: Spacing::new(block, new, &alignment).items(&steps), notes }
}

/// What is written, one after the other.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A piece of the target.
    Piece(usize),
    Open(usize),
    Close(usize),
    Point(usize),
    /// Something that should have come back.
    Lost(usize),
}

struct Projection<'a> {
    block: &'a Block,
    alignment: Alignment,
    /// The spans inside of each pair; the last list has those that are in none. Things that came back are pieces, not spans.
    children: Vec<Vec<usize>>,
    /// For each source piece the target pieces that come from it above all, as far as they are together.
    became: Vec<Option<Range<usize>>>,
    /// For each source piece the target pieces with a weaker link to it.
    also: Vec<Vec<(usize, f32)>>,
    /// For each source piece the next one with a target, at or before it and at or behind it.
    nearest: [Vec<Option<usize>>; 2],
    /// For each source piece the pair of the level it is inside of.
    pair_of: Vec<Option<usize>>,
    /// For each target piece the pair of the level that has it.
    taken: Vec<Option<usize>>,
    steps: Vec<Step>,
    notes: Vec<(usize, NoteKind)>,
}

/// Target pieces that come from the same pair.
#[derive(Debug, Clone)]
struct Run {
    pair: usize,
    pieces: Range<usize>,
    mass: f32,
    /// Whether there is more than punctuation in it.
    has_word: bool,
}

impl<'a> Projection<'a> {
    fn new(block: &'a Block, alignment: Alignment) -> Projection<'a> {
        let mut children = vec![Vec::new(); block.spans.len() + 1];
        for (number, span) in block.spans.iter().enumerate() {
            if span.kind != Kind::Keep || alignment.lost.binary_search(&number).is_ok() {
                children[span.parent.unwrap_or(block.spans.len())].push(number);
            }
        }
        let (sources, targets) = (alignment.source.len(), alignment.target.len());
        let mut became: Vec<Option<(Range<usize>, f32)>> = vec![None; sources];
        let mut also = vec![Vec::new(); sources];
        for target in 0..targets {
            let links = &alignment.links[target];
            let Some((source, weight)) = strongest(links) else { continue };
            match &mut became[source] {
                Some((range, mass)) if range.end == target => {
                    range.end += 1;
                    *mass += weight;
                }
                Some((_, mass)) if *mass >= weight => {}
                place => *place = Some((target..target + 1, weight)),
            }
            for &(other, weight) in links.iter().filter(|link| link.0 != source) {
                also[other].push((target, weight));
            }
        }
        let became: Vec<_> =
            became.into_iter().map(|place| place.map(|(range, _)| range)).collect();
        let known = |number: usize| became[number].is_some().then_some(number);
        let mut nearest = [vec![None; sources], vec![None; sources]];
        for number in 0..sources {
            nearest[0][number] =
                known(number).or(number.checked_sub(1).and_then(|n| nearest[0][n]));
        }
        for number in (0..sources).rev() {
            nearest[1][number] = known(number).or(nearest[1].get(number + 1).copied().flatten());
        }
        let (pair_of, taken) = (vec![None; sources], vec![None; targets]);
        let (steps, notes) = (Vec::with_capacity(targets), Vec::new());
        Projection {
            block,
            alignment,
            children,
            became,
            also,
            nearest,
            pair_of,
            taken,
            steps,
            notes,
        }
    }

    /// The source pieces of a span.
    fn source_of(&self, span: usize) -> Range<usize> {
        let text = &self.block.spans[span].text;
        let source = &self.alignment.source;
        let first = source.partition_point(|piece| piece.range.end <= text.start);
        let last = source.partition_point(|piece| piece.range.start < text.end);
        first..last.max(first)
    }

    /// Places the spans inside of a pair, whose pieces these are, and writes down the steps.
    fn place_level(&mut self, parent: Option<usize>, source: Range<usize>, target: Range<usize>) {
        let children = std::mem::take(&mut self.children[parent.unwrap_or(self.block.spans.len())]);
        if children.is_empty() {
            self.steps.extend(target.map(Step::Piece));
            return;
        }
        let is_pair = |span: &usize| self.block.spans[*span].kind == Kind::Pair;
        let (pairs, points): (Vec<usize>, Vec<usize>) = children.into_iter().partition(is_pair);
        let mut placed = self.place_pairs(&pairs, &source, &target);
        placed.extend(self.place_points(&points, &source, &target));
        // A point stands before a pair that begins at the same place.
        placed.sort_by_key(|(span, at)| {
            let is_pair = self.block.spans[*span].kind == Kind::Pair && !at.is_empty();
            (at.start, is_pair, *span)
        });
        self.taken[target.clone()].fill(None);
        let mut next = target.start;
        for (span, at) in placed {
            self.steps.extend((next..at.start).map(Step::Piece));
            next = at.end;
            match self.block.spans[span].kind {
                Kind::Pair => {
                    self.steps.push(Step::Open(span));
                    let source = self.source_of(span);
                    self.place_level(Some(span), source, at);
                    self.steps.push(Step::Close(span));
                }
                Kind::Point => self.steps.push(Step::Point(span)),
                Kind::Keep => {
                    self.notes.push((span, NoteKind::Lost));
                    self.steps.push(Step::Lost(span));
                }
            }
        }
        self.steps.extend((next..target.end).map(Step::Piece));
    }

    fn place_pairs(
        &mut self,
        pairs: &[usize],
        source: &Range<usize>,
        target: &Range<usize>,
    ) -> Vec<(usize, Range<usize>)> {
        for &pair in pairs {
            for piece in self.source_of(pair) {
                self.give(piece, pair);
            }
        }
        let mut best: Vec<Option<Run>> = vec![None; pairs.len()];
        for run in self.runs(target) {
            let Ok(place) = pairs.binary_search(&run.pair) else { continue };
            if best[place].as_ref().is_none_or(|best| best.mass < run.mass) {
                best[place] = Some(run);
            }
        }
        for run in best.iter().flatten() {
            self.taken[run.pieces.clone()].fill(Some(run.pair));
        }
        let mut placed = Vec::with_capacity(pairs.len());
        for (&pair, run) in pairs.iter().zip(best) {
            let at = match run {
                Some(run) => run.pieces,
                None => self.place_apart(pair, source, target),
            };
            placed.push((pair, at));
        }
        for &pair in pairs {
            let range = self.source_of(pair);
            self.pair_of[range].fill(None);
        }
        placed
    }

    /// Gives a source piece to a pair. One with a tag inside belongs to the pair that has more of it.
    fn give(&mut self, piece: usize, pair: usize) {
        let range = &self.alignment.source[piece].range;
        let share = |pair: usize| {
            let text = &self.block.spans[pair].text;
            text.end.min(range.end).saturating_sub(text.start.max(range.start))
        };
        if self.pair_of[piece].is_none_or(|other| share(other) < share(pair)) {
            self.pair_of[piece] = Some(pair);
        }
    }

    /// The runs of the level's pairs, in the target's order.
    fn runs(&self, target: &Range<usize>) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        // Since the last piece of a pair: words of others, all words, all pieces.
        let (mut gap, mut words, mut hole) = (0, 0, 0);
        for piece in target.clone() {
            let links = &self.alignment.links[piece];
            let best = strongest(links);
            let is_word = self.alignment.target[piece].kind != PieceKind::Mark;
            let pair = best.and_then(|(source, _)| self.pair_of[source]);
            let last = runs.last_mut().filter(|run| Some(run.pair) == pair);
            // Punctuation does not reach over words to join.
            let is_stray = !is_word && words > 0 && last.as_ref().is_some_and(|run| run.has_word);
            let Some(pair) = pair.filter(|_| !is_stray) else {
                gap += usize::from(is_word && best.is_some());
                words += usize::from(is_word);
                hole += 1;
                continue;
            };
            let ours = links.iter().filter(|(source, _)| self.pair_of[*source] == Some(pair));
            let mass: f32 = ours.map(|(_, weight)| weight).sum();
            let reaches = gap <= WIDEST_GAP && hole <= WIDEST_HOLE;
            match last {
                Some(run) if reaches && (words == 0 || run.has_word) => {
                    run.pieces.end = piece + 1;
                    run.mass += mass;
                    run.has_word |= is_word;
                }
                _ => runs.push(Run { pair, pieces: piece..piece + 1, mass, has_word: is_word }),
            }
            (gap, words, hole) = (0, 0, 0);
        }
        runs
    }

    /// A place for a pair that has no word of its own: the word with the strongest of the other links to it, or one near to
    /// where its neighbours went.
    fn place_apart(
        &mut self,
        pair: usize,
        source: &Range<usize>,
        target: &Range<usize>,
    ) -> Range<usize> {
        let ours = self.source_of(pair);
        let free = |piece: usize| {
            target.contains(&piece)
                && self.alignment.target[piece].kind == PieceKind::Word
                && self.taken[piece].is_none()
        };
        let weaker = ours.clone().flat_map(|piece| &self.also[piece]);
        let weaker = weaker.filter(|(piece, _)| free(*piece));
        let linked = weaker.max_by(|a, b| a.1.total_cmp(&b.1)).map(|&(piece, _)| piece);
        let near = self.place_near(ours.start, true, source, target);
        let had_text = !ours.is_empty();
        let around = || {
            let distances =
                (0..FARTHEST).flat_map(|far| [Some(near + far), near.checked_sub(far + 1)]);
            distances.flatten().find(|&piece| free(piece))
        };
        let found = linked.or_else(|| had_text.then(around).flatten());
        if linked.is_none() && had_text {
            let kind = if found.is_some() { NoteKind::Moved } else { NoteKind::Emptied };
            self.notes.push((pair, kind));
        }
        match found {
            Some(piece) => {
                self.taken[piece] = Some(pair);
                piece..piece + 1
            }
            None => {
                let at = self.outside(pair, near, target);
                at..at
            }
        }
    }

    /// The place behind (or before) what a source piece became, or its nearest neighbour inside the level.
    fn place_near(
        &self,
        piece: usize,
        behind: bool,
        source: &Range<usize>,
        target: &Range<usize>,
    ) -> usize {
        let inside = |piece: &usize| source.contains(piece);
        let left = piece.checked_sub(1).filter(inside);
        let left = left.and_then(|piece| self.nearest[0][piece]).filter(inside);
        let right =
            Some(piece).filter(inside).and_then(|piece| self.nearest[1][piece]).filter(inside);
        let became = |piece: usize| self.became[piece].clone();
        let left = left.and_then(became).map(|range| range.end);
        let right = right.and_then(became).map(|range| range.start);
        let place = if behind { left.or(right) } else { right.or(left) };
        place.unwrap_or(target.start).clamp(target.start, target.end)
    }

    /// A place that is not inside one of the level's pairs: before it, if the span was before it, else behind.
    fn outside(&self, span: usize, at: usize, target: &Range<usize>) -> usize {
        if at <= target.start || at >= target.end {
            return at;
        }
        match (self.taken[at - 1], self.taken[at]) {
            (Some(pair), Some(other)) if pair == other => {
                let ours = |piece: &usize| self.taken[*piece] == Some(pair);
                match span < pair {
                    true => at - (target.start..at).rev().take_while(ours).count(),
                    false => at + (at..target.end).take_while(ours).count(),
                }
            }
            _ => at,
        }
    }

    fn place_points(
        &self,
        points: &[usize],
        source: &Range<usize>,
        target: &Range<usize>,
    ) -> Vec<(usize, Range<usize>)> {
        let pieces = &self.alignment.source;
        let mut least = target.start;
        let mut placed = Vec::with_capacity(points.len());
        for &point in points {
            let text = &self.block.spans[point].text;
            let next = pieces.partition_point(|piece| piece.range.start < text.start);
            let touches_last = next > 0 && pieces[next - 1].range.end >= text.start;
            let touches_next =
                pieces.get(next).is_some_and(|piece| piece.range.start == text.start);
            let behind = touches_last || !touches_next;
            let at = self.place_near(next, behind, source, target);
            let at = self.outside(point, at, target);
            // Behind the point before it, and then again not inside of a pair.
            let at = if at < least { self.outside(usize::MAX, least, target) } else { at };
            least = at;
            placed.push((point, at..at));
        }
        placed
    }
}

/// The source piece that a target piece comes from above all.
fn strongest(links: &[(usize, f32)]) -> Option<(usize, f32)> {
    let mut best: Option<(usize, f32)> = None;
    for &(source, weight) in links {
        if best.is_none_or(|(_, most)| weight > most) {
            best = Some((source, weight));
        }
    }
    best
}

/// Puts white space between the pieces, on the right side of the tags.
struct Spacing<'a> {
    block: &'a Block,
    new: &'a Translated,
    alignment: &'a Alignment,
    items: Vec<Item>,
}

impl<'a> Spacing<'a> {
    fn new(block: &'a Block, new: &'a Translated, alignment: &'a Alignment) -> Spacing<'a> {
        Spacing { block, new, alignment, items: Vec::new() }
    }

    fn items(mut self, steps: &[Step]) -> Vec<Item> {
        let mut end = 0;
        let mut tags: Vec<Step> = Vec::new();
        for step in steps {
            let Step::Piece(piece) = *step else {
                tags.push(*step);
                continue;
            };
            let piece = &self.alignment.target[piece];
            self.gap(end..piece.range.start, &mut tags, true);
            match piece.kind {
                PieceKind::Kept(span) => self.items.push(Item::Point(span)),
                PieceKind::Nothing => {}
                _ => self.text(piece.range.clone()),
            }
            end = piece.range.end;
        }
        self.gap(end..self.new.text.len(), &mut tags, false);
        self.items
    }

    /// White space and the tags that are there: it stands where it is right for most of them.
    fn gap(&mut self, blank: Range<usize>, tags: &mut Vec<Step>, has_more: bool) {
        let mut wrong = tags.iter().filter(|tag| !self.is_behind_blank(tag)).count();
        let (mut place, mut least) = (0, wrong);
        for (number, tag) in tags.iter().enumerate() {
            if self.is_behind_blank(tag) {
                wrong += 1;
            } else {
                wrong -= 1;
            }
            if wrong < least {
                (place, least) = (number + 1, wrong);
            }
        }
        let behind = tags.split_off(place);
        self.tags(tags);
        let at_start = self.items.is_empty();
        let has_blank = !blank.is_empty();
        self.text(blank);
        let is_lost = |tag: &Step| matches!(tag, Step::Lost(_));
        let last = behind.iter().rposition(is_lost);
        for (number, tag) in behind.iter().enumerate() {
            // What should have come back stands by itself.
            if is_lost(tag) && !self.items.is_empty() && !self.ends_blank() {
                self.items.push(Item::Blank);
            }
            self.tags(std::slice::from_ref(tag));
            if last == Some(number) && has_more && (has_blank || at_start) {
                self.items.push(Item::Blank);
            }
        }
        tags.clear();
    }

    /// Whether white space was written last.
    fn ends_blank(&self) -> bool {
        match self.items.last() {
            Some(Item::Text(range)) => self.new.text[range.clone()].ends_with(char::is_whitespace),
            last => last == Some(&Item::Blank),
        }
    }

    fn tags(&mut self, tags: &[Step]) {
        self.items.extend(tags.iter().map(|tag| match *tag {
            Step::Open(span) => Item::Open(span),
            Step::Close(span) => Item::Close(span),
            Step::Point(span) | Step::Lost(span) | Step::Piece(span) => Item::Point(span),
        }));
    }

    /// Whether a tag has white space before it rather than behind.
    fn is_behind_blank(&self, tag: &Step) -> bool {
        let text = &self.block.text;
        let before = |at: usize| text[..at].chars().next_back().is_none_or(char::is_whitespace);
        let behind = |at: usize| text[at..].chars().next().is_some_and(char::is_whitespace);
        match *tag {
            Step::Open(span) => !behind(self.block.spans[span].text.start),
            Step::Close(span) => {
                let range = &self.block.spans[span].text;
                !range.is_empty() && before(range.end)
            }
            Step::Point(span) => before(self.block.spans[span].text.start),
            Step::Lost(_) | Step::Piece(_) => true,
        }
    }

    fn text(&mut self, range: Range<usize>) {
        match self.items.last_mut() {
            _ if range.is_empty() => {}
            Some(Item::Text(last)) if last.end == range.start => last.end = range.end,
            _ => self.items.push(Item::Text(range)),
        }
    }
}

#[cfg(test)]
mod tests;
