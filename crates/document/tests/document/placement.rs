//! A tag round each word of real sentences, one at a time, with the alignment that another engine found: the tag is there once,
//! never empty, and round the words that come from its word.

use std::ops::Range;
use std::path::Path;

use crate::engines::{read, shared};
use peregrine_document::{Format, Link, NoteKind, Options, Translated};

/// What stands between white space.
fn words(text: &str) -> Vec<Range<usize>> {
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().map(|word| start(word)..start(word) + word.len()).collect()
}

#[test]
fn a_tag_round_each_word() {
    let Some(lines) = shared("bergamot-scores.jsonl") else { return };
    let flores =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/flores/devtest.en");
    let Ok(flores) = std::fs::read_to_string(flores) else {
        println!("skipped: no reference data (devtest.en)");
        return;
    };
    let flores: Vec<&str> = flores.lines().collect();
    let (mut tags, mut moved, mut emptied, mut whole) = (0, 0, 0, 0);
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let number = line["flores_devtest_line"].as_u64().expect("a number") as usize;
        let source = flores[number - 1];
        let target = line["target"].as_str().expect("a text");
        let (from, to) = (words(source), words(target));
        assert_eq!(
            from.len() as u64,
            line["source_words"].as_u64().expect("a number"),
            "line {number}"
        );
        let aligned: Vec<Vec<usize>> = line["word_alignment"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|pair| {
                pair[1]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .filter_map(|n| n.as_u64())
                    .map(|n| n as usize)
                    .collect()
            })
            .collect();
        assert_eq!(to.len(), aligned.len(), "line {number}");
        let links: Vec<Link> = to
            .iter()
            .zip(&aligned)
            .flat_map(|(to, sources)| {
                sources.iter().map(|&word| {
                    Link::new(from[word].clone(), to.clone(), 1.0 / sources.len() as f32)
                })
            })
            .collect();
        for (word, range) in from.iter().enumerate() {
            let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
            let page = format!(
                "<p>{}<b>{}</b>{}</p>",
                escape(&source[..range.start]),
                escape(&source[range.clone()]),
                escape(&source[range.end..])
            );
            let document = read(page.as_bytes(), Format::Html, &Options::default());
            assert_eq!(document.blocks()[0].text, source);
            let new =
                Translated { text: target.to_owned(), links: links.clone(), kept: Vec::new() };
            let written = document.write(&[new]);
            let text = String::from_utf8_lossy(&written.bytes).into_owned();
            assert_eq!(
                (text.matches("<b>").count(), text.matches("</b>").count()),
                (1, 1),
                "{text}"
            );
            let inside =
                text.split("<b>").nth(1).and_then(|rest| rest.split("</b>").next()).expect("a tag");
            tags += 1;
            emptied += usize::from(inside.trim().is_empty());
            moved += usize::from(written.report.iter().any(|note| note.kind == NoteKind::Moved));
            // The words that come from this one, if they stand together.
            let ours: Vec<usize> =
                (0..to.len()).filter(|&place| aligned[place].first() == Some(&word)).collect();
            let together = ours.windows(2).all(|pair| pair[1] == pair[0] + 1);
            if let (Some(&first), Some(&last), true) = (ours.first(), ours.last(), together) {
                let expected = escape(&target[to[first].start..to[last].end]);
                let core =
                    |text: &str| text.trim_matches(|c: char| !c.is_alphanumeric()).to_owned();
                assert_eq!(core(inside), core(&expected), "{text}");
                whole += 1;
            }
        }
    }
    println!("{tags} tags: {whole} round exactly their words, {moved} moved, {emptied} empty");
    assert_eq!(emptied, 0);
    assert!(moved * 10 < tags, "{moved} of {tags}");
}
