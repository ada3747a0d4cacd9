//! Properties of every projection, whatever an engine answers.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::block::{Link, Span};
use crate::builder::OBJECT;

/// A span of a block that is being made up.
fn span(kind: Kind, text: Range<usize>, parent: Option<usize>) -> Span {
    Span { kind, text, parent, open: 0..0, close: 0..0 }
}

/// Makes a block of words in which tags open and close where `choices` says.
fn block(words: &[String], choices: &[u8]) -> Block {
    let mut block = Block::default();
    let mut open: Vec<usize> = Vec::new();
    let mut choices = choices.iter().copied();
    for (number, word) in words.iter().enumerate() {
        if number > 0 && choices.next().unwrap_or(0) % 8 > 0 {
            block.text.push(' ');
        }
        for _ in 0..choices.next().unwrap_or(0) % 3 {
            let (at, parent) = (block.text.len(), open.last().copied());
            match choices.next().unwrap_or(0) % 5 {
                0 | 1 => {
                    block.spans.push(span(Kind::Pair, at..at, parent));
                    open.push(block.spans.len() - 1);
                }
                2 => block.spans.push(span(Kind::Point, at..at, parent)),
                _ => {
                    if let Some(pair) = open.pop() {
                        block.spans[pair].text.end = at;
                    }
                }
            }
        }
        let at = block.text.len();
        match choices.next().unwrap_or(0) % 8 {
            0 => {
                block.text.push_str(word);
                block.spans.push(span(Kind::Keep, at..block.text.len(), open.last().copied()));
            }
            1 => {
                block.text.push(OBJECT);
                block.spans.push(span(Kind::Keep, at..block.text.len(), open.last().copied()));
            }
            _ => block.text.push_str(word),
        }
    }
    for pair in open {
        block.spans[pair].text.end = block.text.len();
    }
    block
}

/// Any answer of an engine: links from anywhere to anywhere, things kept or not.
fn answer(block: &Block, words: &[String], choices: &[u8]) -> Translated {
    let mut new = Translated::default();
    let source = crate::block::words(&block.text);
    let keep = block.keep();
    let mut choices = choices.iter().copied();
    let mut next = move || usize::from(choices.next().unwrap_or(0));
    for word in words {
        if !new.text.is_empty() && next() % 8 > 0 {
            new.text.push(' ');
        }
        let start = new.text.len();
        match next() % 6 {
            0 if !keep.is_empty() => {
                let from = keep[next() % keep.len()].clone();
                new.text.push_str(&block.text[from.clone()]);
                if next() % 2 == 0 {
                    new.kept.push((from, start..new.text.len()));
                }
            }
            1 if !source.is_empty() => {
                new.text.push_str(&block.text[source[next() % source.len()].clone()])
            }
            _ => new.text.push_str(word),
        }
        for _ in 0..next() % 3 {
            // Some links are nonsense.
            let from = match next() % 16 {
                0 => next()..next() + 1,
                _ if source.is_empty() => 0..0,
                _ => source[next() % source.len()].clone(),
            };
            let weight = next() as f32 / 255.0;
            new.links.push(Link::new(from, start..new.text.len(), weight));
        }
    }
    new
}

/// What must be true of a projection.
fn check(block: &Block, new: &Translated) {
    let layout = project(block, new);
    let lost = |span: usize| layout.notes.contains(&(span, NoteKind::Lost));
    let mut seen = vec![0; block.spans.len()];
    let mut open: Vec<usize> = Vec::new();
    let mut has_text = vec![false; block.spans.len()];
    let mut last_point: std::collections::HashMap<Option<usize>, usize> = Default::default();
    let mut text = String::new();
    for item in &layout.items {
        match *item {
            Item::Text(ref range) => {
                text.push_str(&new.text[range.clone()]);
                if !new.text[range.clone()].trim().is_empty() {
                    open.iter().for_each(|&pair| has_text[pair] = true);
                }
            }
            Item::Blank => {}
            Item::Open(pair) => {
                assert_eq!(block.spans[pair].kind, Kind::Pair);
                assert_eq!(
                    open.last().copied(),
                    block.spans[pair].parent,
                    "a pair outside of its pair"
                );
                seen[pair] += 1;
                open.push(pair);
            }
            Item::Close(pair) => assert_eq!(open.pop(), Some(pair), "tags cross"),
            Item::Point(span) => {
                seen[span] += 1;
                if block.spans[span].kind == Kind::Keep && !lost(span) {
                    open.iter().for_each(|&pair| has_text[pair] = true);
                    continue;
                }
                let parent = block.spans[span].parent;
                assert_eq!(open.last().copied(), parent, "a point outside of its pair");
                let last = last_point.insert(parent, span);
                assert!(last.is_none_or(|last| last < span), "points in another order");
            }
        }
    }
    assert!(open.is_empty());
    assert!(seen.iter().all(|&count| count == 1), "not exactly once: {seen:?}");
    // The text is all there, but for what is written by itself.
    let solid = |text: &str| {
        text.chars().filter(|c| !c.is_whitespace() && *c != OBJECT).collect::<String>()
    };
    let mut expected = new.text.clone();
    let mut kept: Vec<Range<usize>> = kept_ranges(block, new);
    kept.sort_by_key(|range| std::cmp::Reverse(range.start));
    kept.into_iter().for_each(|range| expected.replace_range(range, " "));
    assert_eq!(solid(&text), solid(&expected));
    for (number, pair) in block.spans.iter().enumerate().filter(|(_, span)| span.kind == Kind::Pair)
    {
        let had_text = block.text[pair.text.clone()].contains(char::is_alphanumeric);
        let noted = layout.notes.contains(&(number, NoteKind::Emptied));
        // A pair may hold nothing but something that was lost, or a lost pair inside of it.
        let inside = layout.notes.iter().any(|(span, _)| {
            pair.text.start <= block.spans[*span].text.start
                && block.spans[*span].text.end <= pair.text.end
        });
        assert!(
            !had_text || has_text[number] || noted || inside,
            "an empty pair and no word about it"
        );
    }
}

/// Where the alignment found what is kept.
fn kept_ranges(block: &Block, new: &Translated) -> Vec<Range<usize>> {
    let alignment = Alignment::new(block, new);
    let kept =
        alignment.target.into_iter().filter(|piece| matches!(piece.kind, PieceKind::Kept(_)));
    kept.map(|piece| piece.range).collect()
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zé]{1,6}",
        "[\"(]?[a-z]{1,5}[.,!?\")]{0,2}",
        "[.,—&]",
        "[我爱你]{1,2}",
        "[0-9]{1,3}%"
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_span_is_there_once_and_in_its_place(
        source in prop::collection::vec(word(), 1..14),
        target in prop::collection::vec(word(), 0..14),
        tags in prop::collection::vec(any::<u8>(), 0..80),
        choices in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let block = block(&source, &tags);
        check(&block, &answer(&block, &target, &choices));
    }

    #[test]
    fn a_copy_keeps_every_span_where_it_is(
        source in prop::collection::vec(word(), 1..14),
        tags in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let block = block(&source, &tags);
        check(&block, &Translated::copy(&block));
    }
}

/// Writes a layout with numbers for tags.
fn shown(block: &Block, new: &Translated) -> String {
    let show = |item: Item| match item {
        Item::Text(range) => new.text[range].to_owned(),
        Item::Blank => " ".to_owned(),
        Item::Open(span) => format!("<{span}>"),
        Item::Close(span) => format!("</{span}>"),
        Item::Point(span) => format!("<{span}/>"),
    };
    project(block, new).items.into_iter().map(show).collect()
}

/// A block from text with tags: `<a>` begins a pair, `</>` ends the last one, `<.>` is a point, `<=word>` is kept.
fn parse(marked: &str) -> Block {
    let mut block = Block::default();
    let mut open = Vec::new();
    let mut rest = marked;
    while let Some((before, after)) = rest.split_once('<') {
        block.text.push_str(before);
        let (tag, after) = after.split_once('>').expect("a tag");
        let at = block.text.len();
        let parent = open.last().copied();
        match tag {
            "/" => {
                let pair: usize = open.pop().expect("a pair");
                block.spans[pair].text.end = at;
            }
            "." => block.spans.push(span(Kind::Point, at..at, parent)),
            _ if tag.starts_with('=') => {
                block.text.push_str(&tag[1..]);
                block.spans.push(span(Kind::Keep, at..block.text.len(), parent));
            }
            _ => {
                open.push(block.spans.len());
                block.spans.push(span(Kind::Pair, at..at, parent));
            }
        }
        rest = after;
    }
    block.text.push_str(rest);
    block
}

/// A translation whose words come from the source words of these numbers, counted from one; 0 is none.
fn translation(block: &Block, text: &str, from: &[usize]) -> Translated {
    let (source, target) = (crate::block::words(&block.text), crate::block::words(text));
    assert_eq!(target.len(), from.len());
    let link = |(target, &from): (Range<usize>, &usize)| {
        Some(Link::new(source[from.checked_sub(1)?].clone(), target, 0.9))
    };
    let links = target.into_iter().zip(from).filter_map(link).collect();
    Translated { text: text.to_owned(), links, kept: Vec::new() }
}

#[test]
fn examples() {
    let cases: [(&str, &str, &[usize], &str); 17] = [
        ("The <a>red</> house.", "A casa vermelha.", &[1, 3, 2], "A casa <0>vermelha</0>."),
        (
            "The <a>old <b>red</></> house",
            "A casa vermelha velha",
            &[1, 4, 3, 2],
            "A casa <0><1>vermelha</1> velha</0>",
        ),
        // A gap of two words is bridged, one of three is not: the heavier side wins.
        ("a <t>b c</> d e", "B D E C", &[2, 4, 5, 3], "<0>B D E C</0>"),
        ("a <t>b c d</> e f g", "B C E F G D", &[2, 3, 5, 6, 7, 4], "<0>B C</0> E F G D"),
        // Words of a neighbour are not bridged.
        ("<a>a b</> <b>c</>", "A C B", &[1, 3, 2], "<0>A</0> <1>C</1> B"),
        // Punctuation stays on its side.
        ("(<a>Warning</>: hot!)", "(Aviso: quente!)", &[1, 2], "(<0>Aviso</0>: quente!)"),
        ("<a>\"Quoted\"</>, end", "\"Citado\", fim", &[1, 2], "<0>\"Citado\"</0>, fim"),
        ("at nine <a>o'clock.</>", "às nove horas.", &[1, 2, 3], "às nove <0>horas.</0>"),
        (
            "have Type 1 <a>diabetes.</>",
            "têm diabetes tipo 1.",
            &[1, 4, 2, 3],
            "têm <0>diabetes</0> tipo 1.",
        ),
        // White space stays on its side.
        ("one<a> two </>three", "um dois três", &[1, 2, 3], "um<0> dois </0>três"),
        // Inside of words: copied, and translated.
        ("H<a>2</>O boils", "H2O ferve", &[1, 2], "H<0>2</0>O ferve"),
        ("un<a>believ</>able", "inacreditável", &[1], "<0>inacreditável</0>"),
        // No target word: near its neighbours.
        ("I <a>do</> not know it", "Eu não sei disso", &[1, 3, 4, 5], "Eu <0>não</0> sei disso"),
        // Points: behind the word they touch, before the word they touch, between words.
        ("long<.> way", "caminho longo", &[2, 1], "caminho longo<0/>"),
        ("go <.>home", "casa vai", &[2, 1], "<0/>casa vai"),
        ("donau<.>dampf x", "donaudampf x", &[1, 2], "donau<0/>dampf x"),
        (
            "Run <=cargo build> now",
            "Agora execute cargo build",
            &[3, 1, 2, 2],
            "Agora execute <0/>",
        ),
    ];
    for (source, target, from, expected) in cases {
        let block = parse(source);
        let new = translation(&block, target, from);
        assert_eq!(shown(&block, &new), expected, "{source}");
    }
}

#[test]
fn what_is_lost_is_put_near_its_neighbours_and_reported() {
    let block = parse("Run <=make> now");
    let new = translation(&block, "Execute agora", &[1, 3]);
    assert_eq!(shown(&block, &new), "Execute <0/> agora");
    assert_eq!(project(&block, &new).notes, [(0, NoteKind::Lost)]);
    let block = parse("<a>x</> <b>y</>");
    let new = translation(&block, "z", &[1]);
    assert_eq!(shown(&block, &new), "<0>z</0><1></1>");
    assert_eq!(project(&block, &new).notes, [(1, NoteKind::Emptied)]);
}

#[test]
fn without_links_words_keep_their_order() {
    let block = parse("one <a>two</> three");
    let new = Translated { text: "um dois três".to_owned(), ..Translated::default() };
    assert_eq!(shown(&block, &new), "um <0>dois</0> três");
}

#[test]
fn a_large_block_of_tags_takes_little_time() {
    let words = 20_000;
    let mut block = Block::default();
    for number in 0..words {
        let at = block.text.len();
        block.text.push_str("ab ");
        let kind = [Kind::Pair, Kind::Point, Kind::Keep][number % 3];
        let text = if kind == Kind::Point { at..at } else { at..at + 2 };
        block.spans.push(span(kind, text, None));
    }
    // All pairs compete for one word, and nothing that is kept came back.
    let link = |word: usize| Link::new(word * 3..word * 3 + 2, 0..1, 0.5);
    let text = format!("x{}", " y".repeat(words));
    let new = Translated { text, links: (0..words).map(link).collect(), kept: Vec::new() };
    let before = std::time::Instant::now();
    check(&block, &new);
    assert!(before.elapsed().as_secs() < 20);
}
