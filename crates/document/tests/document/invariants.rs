//! What is true of a translated page whatever the engine did: the invariants of a page's markup, with an engine that changes the
//! order of words, drops some and doubles some. The tokenizer that reads the results is that of the `html5gum` crate.

use std::collections::HashMap;
use std::time::Instant;

use crate::engines::{Numbers, Scrambler, counted, installed, read, scrambled, snippets, write};
use html5gum::{DefaultEmitter, Token, Tokenizer};
use peregrine_document::{Block, Document, Format, NoteKind, Options, Translated};
use proptest::prelude::*;

/// A tag, comment or text of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part<'a> {
    raw: &'a [u8],
    /// The name of a tag; `/` stands before that of an end tag. Empty for text, `!` for what is neither.
    name: String,
}

fn parts(page: &[u8]) -> Vec<Part<'_>> {
    let mut emitter = DefaultEmitter::<usize>::new_with_span();
    emitter.naively_switch_states(true);
    let mut parts = Vec::new();
    for token in Tokenizer::new_with_emitter(page, emitter).flatten() {
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let (name, span) = match token {
            Token::StartTag(tag) => (name(&tag.name), tag.span),
            Token::EndTag(tag) => (format!("/{}", name(&tag.name)), tag.span),
            Token::String(text) => (String::new(), text.span),
            Token::Comment(comment) => ("!".to_owned(), comment.span),
            Token::Doctype(doctype) => ("!".to_owned(), doctype.span),
            Token::Error(_) => continue,
        };
        parts.push(Part { raw: &page[span.start..span.end.min(page.len())], name });
    }
    parts
}

const BLOCKS: [&str; 26] = [
    "p",
    "div",
    "li",
    "ul",
    "ol",
    "td",
    "th",
    "tr",
    "table",
    "h1",
    "h2",
    "h3",
    "br",
    "hr",
    "pre",
    "body",
    "html",
    "head",
    "title",
    "section",
    "dt",
    "dd",
    "dl",
    "option",
    "select",
    "blockquote",
];

/// What stands between the tags of blocks.
fn stretches<'a>(parts: &'a [Part<'a>]) -> Vec<Vec<&'a Part<'a>>> {
    let is_block = |part: &&Part| BLOCKS.contains(&part.name.trim_start_matches('/'));
    let mut stretches = vec![Vec::new()];
    for part in parts {
        if is_block(&part) {
            stretches.push(Vec::new());
        } else if let Some(last) = stretches.last_mut() {
            last.push(part);
        }
    }
    stretches
}

/// Elements of a stretch that must not be changed, with their text.
fn untouched(parts: &[Part]) -> Vec<Vec<u8>> {
    const NAMES: [&str; 7] = ["script", "style", "code", "kbd", "samp", "var", "math"];
    let mut found = Vec::new();
    let mut number = 0;
    while number < parts.len() {
        let name = &parts[number].name;
        let end_name = format!("/{name}");
        let end = || parts[number..].iter().position(|part| part.name == end_name);
        if let Some(length) = NAMES.contains(&name.as_str()).then(end).flatten() {
            let element = &parts[number..=number + length];
            found.push(element.iter().flat_map(|part| part.raw).copied().collect());
            number += length;
        }
        number += 1;
    }
    found
}

/// Checks a page before and after.
fn check(name: &str, before: &[u8], after: &[u8]) {
    let (old, new) = (parts(before), parts(after));
    let tags = |parts: &[Part]| -> HashMap<Vec<u8>, usize> {
        counted(parts.iter().filter(|part| !part.name.is_empty()).map(|part| part.raw.to_vec()))
    };
    // 1: every tag, comment and document type is there exactly once, byte for byte.
    assert_eq!(tags(&old), tags(&new), "{name}: {}", String::from_utf8_lossy(after));
    // 3: the tags of blocks are the same, in the same order.
    let blocks = |parts: &[Part]| -> Vec<Vec<u8>> {
        let is_block = |part: &&Part| BLOCKS.contains(&part.name.trim_start_matches('/'));
        parts.iter().filter(is_block).map(|part| part.raw.to_vec()).collect()
    };
    assert_eq!(blocks(&old), blocks(&new), "{name}");
    // 5: code and the like is the same.
    assert_eq!(
        counted(untouched(&old)),
        counted(untouched(&new)),
        "{name}: {}",
        String::from_utf8_lossy(after)
    );
    let (old_stretches, new_stretches) = (stretches(&old), stretches(&new));
    assert_eq!(old_stretches.len(), new_stretches.len(), "{name}");
    for (old, new) in old_stretches.iter().zip(&new_stretches) {
        // 4: every tag is in the block it was in.
        let tags = |parts: &[&Part]| {
            counted(parts.iter().filter(|part| !part.name.is_empty()).map(|part| part.raw.to_vec()))
        };
        assert_eq!(tags(old), tags(new), "{name}: {}", String::from_utf8_lossy(after));
        // 7: white space between blocks is the same.
        let outer = |parts: &[&Part]| {
            let all: Vec<u8> = parts.iter().flat_map(|part| part.raw).copied().collect();
            let start = all.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let end = all.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
            (all.len() > start).then(|| (all[..start].to_vec(), all[all.len() - end..].to_vec()))
        };
        if let (Some(old), Some(new)) = (outer(old), outer(new)) {
            assert_eq!(old, new, "{name}: {}", String::from_utf8_lossy(after));
        }
    }
    // 7: lines of preformatted text keep their number.
    let lines = |page: &[u8]| -> Vec<usize> {
        let text = String::from_utf8_lossy(page).into_owned();
        text.split("<pre")
            .skip(1)
            .map(|pre| pre.split("</pre").next().unwrap_or_default().matches('\n').count())
            .collect()
    };
    assert_eq!(lines(before), lines(after), "{name}");
    // 12: nothing is escaped twice.
    let text = String::from_utf8_lossy(after);
    let twice = |text: &str| text.matches("&amp;amp;").count() + text.matches("&amp;lt;").count();
    assert!(twice(&text) <= twice(&String::from_utf8_lossy(before)), "{name}: {text}");
}

fn scrambler(seed: u64) -> Scrambler {
    Scrambler { numbers: Numbers(seed), dropped: 15, doubled: 10, lost: 10 }
}

fn check_scrambled(name: &str, page: &[u8], seeds: u64) {
    let mut options = Options::default();
    let document = read(page, Format::Html, &options);
    for seed in 0..seeds {
        let mut rules = scrambler(seed);
        let written = write(&document, |block| scrambled(block, &mut rules));
        check(name, page, &written.bytes);
        check_texts(name, &document, &written.bytes, seed);
        // The result is a page of the same blocks, unless one lost all of its letters.
        let again = read(&written.bytes, Format::Html, &options);
        assert!(again.blocks().len() <= document.blocks().len(), "{name}");
    }
    // Attributes are changed, tags are not lost.
    options.attributes = true;
    let document = read(page, Format::Html, &options);
    let mut rules = scrambler(7);
    let written = write(&document, |block| scrambled(block, &mut rules));
    let names = |page: &[u8]| {
        counted(parts(page).into_iter().map(|part| part.name).filter(|name| !name.is_empty()))
    };
    assert_eq!(names(page), names(&written.bytes), "{name}");
}

/// 6 and 12: what a browser shows is what the engine said, block by block.
fn check_texts(name: &str, document: &Document, after: &[u8], seed: u64) {
    let mut rules = scrambler(seed);
    let shown: String = parts_text(after);
    let mut from = 0;
    for block in document.blocks() {
        let new = scrambled(block, &mut rules);
        for word in new.text.split_whitespace() {
            // Words beside things that are kept are glued to them.
            let plain = word.chars().all(|c| c.is_ascii_alphabetic());
            if plain && new.kept.is_empty() && block.spans.is_empty() {
                let at = shown[from..]
                    .find(word)
                    .unwrap_or_else(|| panic!("{name}: no {word:?} in {shown:?}"));
                from += at;
            }
        }
    }
}

/// The text of a page, decoded.
fn parts_text(page: &[u8]) -> String {
    let mut text = Vec::new();
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(page, emitter).flatten() {
        if let Token::String(string) = token {
            text.extend_from_slice(&string);
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn snippets_keep_their_markup() {
    for (name, text) in snippets() {
        check_scrambled(&name, text.as_bytes(), 40);
    }
}

#[test]
fn installed_pages_keep_their_markup() {
    for path in installed(&["html", "htm"], 200) {
        let page = std::fs::read(&path).expect("a page");
        if page.len() < 200_000 {
            check_scrambled(&path.display().to_string(), &page, 2);
        }
    }
}

#[test]
fn a_page_without_markup_is_text() {
    let text = "Fish & chips cost 5 < 7 pounds. \"Good\" <3 said he; R&D said AT&T.";
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (page, plain) = (
        read(escaped.as_bytes(), Format::Html, &Options::default()),
        read(text.as_bytes(), Format::Text, &Options::default()),
    );
    assert_eq!(page.blocks()[0].text, plain.blocks()[0].text);
    for seed in 0..50 {
        let (mut one, mut two) = (scrambler(seed), scrambler(seed));
        let page = write(&page, |block| scrambled(block, &mut one)).bytes;
        let plain = write(&plain, |block| scrambled(block, &mut two)).bytes;
        assert_eq!(parts_text(&page), String::from_utf8_lossy(&plain));
    }
}

#[test]
fn what_cannot_be_placed_is_reported() {
    let document =
        read(b"<p>Run <code>make</code> and <b>stop</b></p>", Format::Html, &Options::default());
    let new = Translated { text: "Faz".to_owned(), ..Translated::default() };
    let written = document.write(&[new]);
    let kinds: Vec<NoteKind> = written.report.iter().map(|note| note.kind).collect();
    assert_eq!(kinds, [NoteKind::Moved, NoteKind::Lost]);
    let text = String::from_utf8_lossy(&written.bytes).into_owned();
    assert!(text.contains("<code>make</code>") && text.contains("<b>Faz</b>"), "{text}");
}

#[test]
fn parts_of_a_document_make_the_whole() {
    let page = "<p>One <img alt='a cat'> two</p><p title='a title'>three</p> <p>four</p><p title=five></p>tail ";
    let mut options = Options::default();
    options.attributes = true;
    let document = read(page.as_bytes(), Format::Html, &options);
    let new: Vec<Translated> = document.blocks().iter().map(changed).collect();
    let whole = document.write(&new).bytes;
    let mut parts = Vec::new();
    let mut first = 0;
    for count in 1..=new.len() {
        if document.ready(count) {
            parts.extend(document.write_part(first, &new[first..count]).bytes);
            first = count;
        }
    }
    assert_eq!(String::from_utf8_lossy(&parts), String::from_utf8_lossy(&whole));
    assert_eq!(
        String::from_utf8_lossy(&whole),
        "<p>One! <img alt='a cat!'> two</p><p title='a title!'>three!</p> <p>four!</p><p title=\"five!\"></p>tail! "
    );
}

fn changed(block: &Block) -> Translated {
    let mut new = Translated::copy(block);
    let at = new.text.find(' ').unwrap_or(new.text.len());
    match block.spans.is_empty() {
        true => new.text.push('!'),
        false => {
            new = Translated { text: new.text.clone(), ..Translated::default() };
            new.text.insert(at, '!');
        }
    }
    new
}

/// Pieces that tag soup is made of.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z]{1,6}[.,]?",
        4 => Just(" ".to_owned()),
        1 => "[ \n\t]{1,4}",
        4 => prop::sample::select(vec![
            "<b>", "</b>", "<i>", "</i>", "<a href='x y'>", "</a>", "<span class=notranslate>", "</span>", "<code>",
            "</code>", "<p>", "</p>", "<div translate=no>", "</div>", "<br>", "<br/>", "<img src=x alt='a b'>", "<wbr>",
            "<sup>", "</sup>", "<pre>", "</pre>", "<ul><li>", "</ul>", "<li>", "<td>", "<my-tag>", "</my-tag>", "<math>",
            "</math>", "<svg>", "</svg>", "<textarea>", "</textarea>", "<title>", "</title>", "<u></u>", "<b/>", "<kbd>x</kbd>",
        ]).prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            "<!-- c -->", "<!x>", "<?p?>", "<!DOCTYPE html>", "<![CDATA[a <b> c]]>", "<script>a<b</script>", "&amp;", "&lt;",
            "&nbsp;", "&eacute;", "&copy", "&#233;", "&", "<", ">", "</", "</>", "\"", "'", "<a href=\"", "\0", "é", "我爱", "\u{fffc}",
            "&#xfffc;", "&NotEqualTilde;", "1", "42", "[1]", "<sup>[1]</sup>", "\r\n", "\u{a0}",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tag_soup_keeps_its_markup(page in soup()) {
        for format in [Format::Html, Format::Xhtml, Format::Markdown, Format::Text] {
            let mut options = Options::default();
            options.attributes = true;
            let document = read(page.as_bytes(), format, &options);
            let copy = write(&document, Translated::copy);
            prop_assert_eq!(String::from_utf8_lossy(&copy.bytes), page.as_str());
        }
        let document = read(page.as_bytes(), Format::Html, &Options::default());
        for seed in 0..4 {
            let mut rules = scrambler(seed);
            let written = write(&document, |block| scrambled(block, &mut rules));
            check_soup(&page, &written.bytes);
        }
    }

    #[test]
    fn bytes_are_copied(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in [Format::Html, Format::Xhtml, Format::Markdown, Format::Text, Format::Xml] {
            let mut options = Options::default();
            options.wrapped = true;
            options.attributes = true;
            if let Ok(document) = Document::read(bytes.clone(), format, &options) {
                prop_assert_eq!(&write(&document, Translated::copy).bytes, &bytes);
            }
        }
    }
}

/// Of tag soup no more can be said than that all its tags are there, as far as they begin and end in it.
fn check_soup(before: &str, after: &[u8]) {
    let after = String::from_utf8_lossy(after);
    for tag in [
        "<b>",
        "</b>",
        "<i>",
        "</a>",
        "<code>",
        "</code>",
        "<img src=x alt='a b'>",
        "<wbr>",
        "<!-- c -->",
        "<u></u>",
        "\0",
        "<p>",
    ] {
        assert_eq!(
            before.matches(tag).count(),
            after.matches(tag).count(),
            "{tag} in {before:?} and {after:?}"
        );
    }
}

/// Any byte string ends in bounded time and memory.
#[test]
#[ignore = "slow: .ci/run runs it"]
fn hostile_pages_take_little_time() {
    let many = 100_000;
    let nested = |tag: &str| format!("<{tag}>x ").repeat(many);
    let pages = [
        "<a href=x".to_owned(),
        "&".repeat(1 << 20),
        "&a".repeat(1 << 19),
        "&#x".repeat(1 << 18),
        nested("b"),
        nested("div"),
        nested("code"),
        nested("p translate=no"),
        nested("b translate=no"),
        nested("sup"),
        format!("{}{}", nested("b"), "</b>".repeat(many)),
        format!("{}{}", nested("i"), "</b>".repeat(many)),
        format!("{}{}", "<div>".repeat(many), "</p>".repeat(many)),
        format!("{}x{}", "<sup>".repeat(many), "</sup>".repeat(many)),
        format!("{}x{}", "<code>".repeat(many), "</code>".repeat(many)),
        format!("<p>{}", "<b></b> ".repeat(many)),
        format!("<p>{}", "x<!-- --> ".repeat(many)),
        format!("<p>{}", "x <code>y</code> ".repeat(many)),
        format!("<p {}>x", "a='b' ".repeat(many)),
        "<![CDATA[".repeat(many),
        "<a href=\"".repeat(many),
        "<a title='x' ".repeat(many),
        "[a](b".repeat(many / 4),
        "*a _b ".repeat(many / 4),
        "> ".repeat(many / 4),
        "`".repeat(many),
        "\\".repeat(many),
        "\0".repeat(1 << 20),
        "\u{fffc} x".repeat(many),
    ];
    for page in pages {
        for format in [Format::Html, Format::Xhtml, Format::Xml, Format::Markdown, Format::Text] {
            let start = Instant::now();
            let Ok(document) =
                Document::read(page.clone().into_bytes(), format, &Options::default())
            else {
                continue;
            };
            let new: Vec<Translated> =
                document.blocks().iter().map(crate::engines::appended).collect();
            let written = document.write(&new);
            assert!(written.bytes.len() >= page.len());
            let copy: Vec<Translated> = document.blocks().iter().map(Translated::copy).collect();
            assert!(document.write(&copy).bytes == page.as_bytes());
            let seconds = start.elapsed().as_secs_f32();
            if seconds > 0.5 {
                println!(
                    "{seconds:5.1} s {format} {:?}",
                    &page.chars().take(30).collect::<String>()
                );
            }
            assert!(seconds < 20.0, "{format} {:?}", &page.chars().take(30).collect::<String>());
        }
    }
}
