//! Subtitles: what a block is, how a translation is dealt to cues, and what never changes.

use std::path::Path;

use crate::engines::{Numbers, Scrambler, installed, read, scrambled, write};
use peregrine_document::{Document, Format, NoteKind, Options, Translated};
use proptest::prelude::*;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(path).expect("a fixture")
}

fn texts(bytes: &[u8], format: Format) -> Vec<String> {
    let document = read(bytes, format, &Options::default());
    document.blocks().iter().map(|block| block.text.clone()).collect()
}

fn new(text: &str) -> Translated {
    Translated { text: text.to_owned(), ..Translated::default() }
}

#[test]
fn a_block_is_a_sentence_over_cues() {
    assert_eq!(
        texts(&fixture("dialogue.srt"), Format::Srt),
        [
            "Where have you been all this time?",
            "I was looking for the old map that my grandfather left in the attic of the summer house.",
            "Nobody has seen it for years.",
            "[door creaks]",
            "Did you hear that noise?",
            "The river runs down to the sea",
            "Mr. Brown is still in the garden, isn't he?",
            "Run!",
        ]
    );
    assert_eq!(
        texts(&fixture("long.vtt"), Format::Vtt),
        [
            "When the snow melts in the mountains and the first warm days of April come, the water that was frozen all \
             winter begins to find its way down to the valley, where people have waited for it.",
            "Fish & birds come back, too.",
            "Do they come every year?",
            "Every single year, without fail.",
            "One two three go!",
            "This was a story about a river that nobody had named before, and about those who live beside it every day",
        ]
    );
    assert_eq!(
        texts(&fixture("speakers.srt"), Format::Srt),
        [
            "Shall we meet at the café, René?",
            "Yes, with pleasure.",
            "Then I will wait for you at the café next to the town hall.",
            "All right… see you soon!",
            "It was already very late when she finally arrived.",
            "“This is my life’s work,” he said. It costs 5\u{a0}€.",
        ]
    );
}

#[test]
fn a_translation_is_dealt_to_its_cues() {
    let bytes = fixture("dialogue.srt");
    let document = read(&bytes, Format::Srt, &Options::default());
    let mut all: Vec<Translated> = document.blocks().iter().map(Translated::copy).collect();
    all[1] = new("Eu estava procurando o velho mapa que meu avô deixou no sótão da casa de verão.");
    all[2] = new("Há anos que ninguém o vê.");
    let text = String::from_utf8(document.write(&all).bytes).expect("text");
    let expected = "2\n00:00:03,900 --> 00:00:06,400\nEu estava procurando o velho\nmapa que meu avô deixou\n\n\
        3\n00:00:06,500 --> 00:00:08,900\nno sótão da casa de verão.\n\n\
        4\n00:00:09,500 --> 00:00:11,000\n<i>Há anos que ninguém o vê.</i>\n\n5\n";
    let before = String::from_utf8(bytes).expect("text");
    let start = before.find("2\n00").expect("a cue");
    assert_eq!(text[..start], before[..start]);
    assert!(text[start..].starts_with(expected), "{text}");
    // One word for two cues is shown in both; nothing at all leaves them as they were.
    let words = |text: &str| {
        let document = read(
            b"1\n0:1 --> 0:2\nWait for\n\n2\n0:2 --> 0:3\n<i>me</i>.",
            Format::Srt,
            &Options::default(),
        );
        String::from_utf8(document.write(&[new(text)]).bytes).expect("text")
    };
    assert_eq!(words("Espere."), "1\n0:1 --> 0:2\n<i>Espere</i>.\n\n2\n0:2 --> 0:3\nEspere.");
    assert_eq!(words(""), "1\n0:1 --> 0:2\nWait for\n\n2\n0:2 --> 0:3\n<i>me</i>.");
    // Without blanks between words.
    assert_eq!(words("请等我一下。"), "1\n0:1 --> 0:2\n请等我一\n\n2\n0:2 --> 0:3\n<i>下。</i>");
}

#[test]
fn encodings_stay_if_they_can() {
    let bytes = fixture("speakers.srt");
    let document = read(&bytes, Format::Srt, &Options::default());
    let mut all: Vec<Translated> = document.blocks().iter().map(Translated::copy).collect();
    all[1] = new("Ja, „gern“ – natürlich.");
    let written = document.write(&all);
    assert_eq!(written.report, []);
    let is_there = |part: &[u8]| written.bytes.windows(part.len()).any(|window| window == part);
    assert!(is_there(b"caf\xe9") && is_there(b"- Ja, \x84gern\x93 \x96 nat\xfcrlich.\r\n"));
    all[1] = new("Tak, chętnie.");
    let written = document.write(&all);
    let kinds: Vec<_> = written.report.iter().map(|note| (note.block, note.kind)).collect();
    assert_eq!(kinds, [(1, NoteKind::Reencoded)]);
    let text = String::from_utf8(written.bytes).expect("UTF-8");
    assert!(text.contains("café") && text.contains("- Tak, chętnie.\r\n"));
    // UTF-16 has all characters.
    let wide = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let document = read(&wide("\u{feff}1\n0:1 --> 0:2\nHi\n"), Format::Srt, &Options::default());
    assert_eq!(document.write(&[new("Cześć")]).bytes, wide("\u{feff}1\n0:1 --> 0:2\nCześć\n"));
    assert!(Document::read(b"\xff\xfe1".to_vec(), Format::Srt, &Options::default()).is_err());
    // Plain text, too.
    let document = read(b"Un caf\xe9, s'il vous pla\xeet.\n", Format::Text, &Options::default());
    assert_eq!(document.write(&[new("Ein Tee für mich.")]).bytes, b"Ein Tee f\xfcr mich.\n");
}

/// A file as cues, by a plain reading of good files: the lines of each group, and its text without tags.
fn cues(text: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let text = text.trim_end().replace("\r\n", "\n");
    let mut cues = Vec::new();
    for group in text.split("\n\n") {
        let lines: Vec<String> = group.split('\n').map(str::to_owned).collect();
        let timing = lines.iter().position(|line| line.contains("-->"));
        let head = timing.map_or(lines.len(), |at| at + 1);
        cues.push((lines[..head].to_vec(), lines[head..].to_vec()));
    }
    cues
}

/// A text without tags and without what is no word.
fn plain(lines: &[String]) -> String {
    let mut text = String::new();
    let mut depth = 0;
    for c in lines.join(" ").chars() {
        match c {
            '<' | '{' => depth += 1,
            '>' | '}' => depth -= 1,
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    text.trim().to_owned()
}

#[test]
fn cues_keep_their_frame_whatever_the_engine_does() {
    for name in ["dialogue.srt", "long.vtt"] {
        let bytes = fixture(name);
        let before = String::from_utf8(bytes.clone()).expect("text");
        let format = Format::from_name(name).expect("a format");
        let document = read(&bytes, format, &Options::default());
        for seed in 0..300 {
            let mut rules =
                Scrambler { numbers: Numbers(seed), dropped: 30, doubled: 10, lost: 10 };
            let written = write(&document, |block| scrambled(block, &mut rules));
            let after = String::from_utf8(written.bytes).expect("text");
            let (old, new) = (cues(&before), cues(&after));
            assert_eq!(old.len(), new.len(), "{after}");
            for ((head, lines), (new_head, new_lines)) in old.iter().zip(&new) {
                assert_eq!(head, new_head, "{after}");
                assert_eq!(plain(lines).is_empty(), plain(new_lines).is_empty(), "{after}");
                let most = lines.iter().filter(|line| line.starts_with("<v")).count().max(1);
                assert!(new_lines.len() <= lines.len().max(most + 1), "{after}");
            }
            for tag in [
                "<i>",
                "</i>",
                "<c.loud>",
                "</c>",
                "<v Anna>",
                "<v Ben>",
                "{\\an8}",
                "♪",
                "&amp;",
                "<00:22.000>",
            ] {
                // A word may be lost, a tag not.
                if tag != "&amp;" {
                    assert_eq!(
                        before.matches(tag).count(),
                        after.matches(tag).count(),
                        "{tag} in {after}"
                    );
                }
            }
        }
    }
}

#[test]
fn installed_subtitles_are_copied() {
    let mut count = 0;
    for path in installed(&["srt", "vtt"], 100) {
        let bytes = std::fs::read(&path).expect("a file");
        let format = Format::from_name(&path.to_string_lossy()).expect("a format");
        let document = match Document::read(bytes.clone(), format, &Options::default()) {
            Ok(document) => document,
            Err(error) => {
                println!("{}: {error}", path.display());
                continue;
            }
        };
        assert!(write(&document, Translated::copy).bytes == bytes, "{}", path.display());
        let mut rules = Scrambler { numbers: Numbers(1), dropped: 10, doubled: 10, lost: 10 };
        let written = write(&document, |block| scrambled(block, &mut rules));
        let again = read(&written.bytes, format, &Options::default());
        println!(
            "{}: {} blocks, {} again",
            path.display(),
            document.blocks().len(),
            again.blocks().len()
        );
        count += 1;
    }
    println!("{count} files");
}

/// Pieces of broken subtitles.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z]{1,6}[.,]?",
        3 => prop::sample::select(vec![" ", "\n", "\n\n", "\r\n", "\r"]).prop_map(str::to_owned),
        3 => prop::sample::select(vec![
            "\n\n1\n00:00:01,000 --> 00:00:02,000\n", "\n0:02.000 --> 0:03,000 align:start\n", "\n7\n", "-->", "WEBVTT",
            "\nNOTE x\n", "<i>", "</i>", "<b>", "</b>", "<v Bob>", "</v>", "<00:01.000>", "{\\an8}", "{", "}", "<", ">", "- ", "-", "[", "]",
            "♪", "&amp;", "&", "&#0;", "é", "我爱", "\u{fffc}", "\0", "\u{feff}", "...",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn broken_subtitles_are_copied_and_keep_their_tags(text in soup()) {
        for format in [Format::Srt, Format::Vtt] {
            let document = read(text.as_bytes(), format, &Options::default());
            let copy = write(&document, Translated::copy);
            prop_assert_eq!(String::from_utf8_lossy(&copy.bytes), text.as_str());
            for seed in 0..3 {
                let mut rules = Scrambler { numbers: Numbers(seed), dropped: 15, doubled: 10, lost: 10 };
                let new: Vec<Translated> = document.blocks().iter().map(|block| scrambled(block, &mut rules)).collect();
                let after = String::from_utf8(document.write(&new).bytes).expect("text");
                for tag in ["<i>", "</i>", "<v Bob>", "{\\an8}", "♪", "0:02.000 --> 0:03,000 align:start"] {
                    prop_assert_eq!(text.matches(tag).count(), after.matches(tag).count(), "{} in {:?} and {:?}", tag, text, after);
                }
                let mut parts = Vec::new();
                for number in 0..new.len() {
                    parts.extend(document.write_part(number, &new[number..=number]).bytes);
                }
                if !new.is_empty() {
                    prop_assert_eq!(String::from_utf8_lossy(&parts), after);
                }
            }
        }
    }

    #[test]
    fn bytes_are_copied(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for format in [Format::Srt, Format::Vtt, Format::Text] {
            let bytes = [b"1\n0:1 --> 0:2\n".as_slice(), &bytes].concat();
            if let Ok(document) = Document::read(bytes.clone(), format, &Options::default()) {
                prop_assert_eq!(&write(&document, Translated::copy).bytes, &bytes);
            }
        }
    }
}
