//! What must hold for any text that is carried through a translation, with engines that need no model.

use std::ops::Range;

use peregrine_text::carry::{
    Carried, Link, Segment, Speller, has_words, segments, segments_around,
};
use proptest::prelude::*;

/// A vocabulary of plain letters, digits and a little punctuation.
fn spells(c: char) -> bool {
    c.is_ascii_alphanumeric() || " .,;:!?'\"-()".contains(c)
}

fn speller() -> Speller {
    Speller::from_fn(|text| text.chars().all(spells))
}

/// What the vocabulary cannot spell.
fn unspelt(text: &str) -> Vec<Range<usize>> {
    let unspelt = text.char_indices().filter(|(_, c)| !spells(*c) && !c.is_whitespace());
    unspelt.map(|(at, c)| at..at + c.len_utf8()).collect()
}

fn write(text: &str) -> (Carried, Vec<Range<usize>>) {
    let speller = speller();
    let stretches = speller.stretches(text, &unspelt(text));
    let carried = speller.write(text, &stretches, speller.styles().first().copied(), false);
    (carried, stretches)
}

/// The words of a text, each with itself.
fn links(text: &str, output: &str, moved: usize) -> Vec<Link> {
    let word = |range: Range<usize>| Link {
        source: range.clone(),
        target: range.start + moved..(range.end + moved).min(output.len()),
        weight: 1.0,
    };
    let mut at = 0;
    let mut found = Vec::new();
    for part in text.split(' ') {
        found.push(word(at..at + part.len()));
        at += part.len() + 1;
    }
    found
}

/// A translator of segments: each is carried, given to an engine and restored.
fn translate(text: &str, engine: impl Fn(&str) -> String) -> String {
    let mut whole = String::new();
    for segment in segments(text) {
        let range = match segment {
            Segment::Kept(range) => {
                whole.push_str(&text[range]);
                continue;
            }
            Segment::Text(range) => range,
        };
        let (carried, stretches) = write(&text[range.clone()]);
        if !has_words(&text[range.clone()], &stretches) {
            whole.push_str(&text[range]);
            continue;
        }
        let output = engine(carried.text());
        whole.push_str(&carried.restore(&output, &links(carried.text(), &output, 0)).text.text);
    }
    whole
}

/// Text with everything that is carried, and anything else.
fn text() -> impl Strategy<Value = String> {
    let odd = [
        "{name}",
        "%1$s",
        "https://a.example/b?c=d#e",
        "x@y.org",
        "<0>",
        "</0>",
        "`ls -l`",
        "🦀",
        "👨‍👩‍👧",
        "東京",
        "“",
        "”",
        "’",
        " — ",
        "…",
        "\t",
        "  ",
        "\u{a0}",
        "X1",
        "x2",
        "DO NOT",
        "OPEN",
        "A Tale Of Two",
        "\\n",
        "\\\"",
        "{n, plural, one {# file} other {# files}}",
        "- ",
        "123 456",
        "C:\\a b.txt",
        "€",
        "ß",
        "\u{ad}",
        "\n",
        "**",
        "ﬁ",
        "½",
    ];
    let part = prop_oneof![
        4 => "[a-z]{1,8}",
        2 => "[A-Z]{1,6}",
        4 => Just(" ".to_owned()),
        6 => prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(part, 0..14).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Segments are the whole text, and text has no white space at its ends.
    #[test]
    fn segments_are_the_text(text in text()) {
        let mut whole = String::new();
        for segment in segments(&text) {
            if let Segment::Text(range) = &segment {
                prop_assert_eq!(text[range.clone()].trim(), &text[range.clone()]);
                prop_assert!(!range.is_empty());
            }
            let (Segment::Text(range) | Segment::Kept(range)) = segment;
            whole.push_str(&text[range]);
        }
        prop_assert_eq!(whole, text);
    }

    /// An engine that copies gives the text back.
    #[test]
    fn a_copy_is_the_text(text in text()) {
        prop_assert_eq!(translate(&text, str::to_owned), text);
    }

    /// An engine that adds a word gives the text back with a word more, whatever is carried.
    #[test]
    fn a_longer_translation_has_all_of_the_text(text in text()) {
        let (carried, stretches) = write(&text);
        let output = format!("Zz {}", carried.text());
        let restored = carried.restore(&output, &links(carried.text(), &output, 3));
        prop_assert_eq!(restored.lost, 0);
        let text_of = |range: &Range<usize>| text[range.clone()].to_owned();
        for stretch in stretches.iter().map(text_of) {
            let wanted = text.matches(&stretch).count();
            let found = restored.text.text.matches(&stretch).count();
            prop_assert!(found >= wanted.min(1), "{:?} in {:?}", stretch, restored.text.text);
        }
        prop_assert!(carried.mask_texts().all(|mask| text.contains(mask) || !restored.text.text.contains(mask)));
    }

    /// Whatever an engine does with masks, each stretch is in the translation, and losses are told.
    #[test]
    fn every_stretch_is_there_or_told(text in text(), drop in any::<u8>(), double in any::<u8>()) {
        let (carried, stretches) = write(&text);
        let mut output = carried.text().to_owned();
        let mut changed = 0;
        for (number, mask) in carried.mask_texts().enumerate() {
            let bit = 1 << (number % 8);
            if drop & bit != 0 {
                output = output.replacen(mask, "", 1);
                changed += 1;
            } else if double & bit != 0 {
                output = format!("{output} {mask}");
                changed += 1;
            }
        }
        prop_assert_eq!(carried.returned(&output), carried.restore(&output, &[]).lost == 0);
        let restored = carried.restore(&output, &[]);
        prop_assert_eq!(restored.lost, changed);
        for stretch in stretches {
            prop_assert!(restored.text.text.contains(&text[stretch]));
        }
    }

    /// Ranges stay between characters and do not go backwards.
    #[test]
    fn ranges_are_within_both_texts(text in text(), output in text()) {
        let (carried, _) = write(&text);
        let restored = carried.restore(&output, &[]).text;
        let mut last = 0;
        for (at, c) in output.char_indices() {
            let range = restored.new_range(&(at..at + c.len_utf8()));
            prop_assert!(restored.text.get(range.clone()).is_some());
            prop_assert!(range.end >= last);
            last = range.end;
        }
        for (at, c) in carried.text().char_indices() {
            prop_assert!(text.get(carried.source_range(&(at..at + c.len_utf8()))).is_some());
        }
    }

    /// The parts around what is carried are the text.
    #[test]
    fn parts_are_the_text(text in text()) {
        let (carried, stretches) = write(&text);
        let join = |segments: Vec<Segment>| -> String {
            let range = |segment| { let (Segment::Text(range) | Segment::Kept(range)) = segment; range };
            segments.into_iter().map(range).map(|range| &text[range]).collect()
        };
        prop_assert_eq!(join(carried.in_parts()), text.clone());
        prop_assert_eq!(join(segments_around(&text, &stretches)), text.clone());
    }
}

/// The translation of a text, word for word, by an engine that knows only these.
fn by(pairs: &[(&str, &str)], text: &str) -> String {
    translate(text, |source| {
        let found = pairs.iter().find(|(from, _)| *from == source);
        found.unwrap_or_else(|| panic!("{source:?} was not expected")).1.to_owned()
    })
}

#[test]
fn what_is_written_is_what_models_know() {
    let warning = [("Warning: do not open X1.", "Aviso: não abra X1.")];
    assert_eq!(by(&warning, "WARNING: DO NOT OPEN {door}."), "AVISO: NÃO ABRA {door}.");
    let quotes = [(
        "He said \"yes\" and then 'no' - twice.",
        "Ele disse \"sim\" e depois \"não\" - duas vezes.",
    )];
    assert_eq!(
        by(&quotes, "He said “yes” and then ‘no’ — twice."),
        "Ele disse “sim” e depois ‘não’ — duas vezes."
    );
    let escaped = [("She said \"hello\" twice.", "Ela disse \"olá\" duas vezes.")];
    assert_eq!(by(&escaped, "She said \\\"hello\\\" twice."), "Ela disse \\\"olá\\\" duas vezes.");
    let tags = [("Click X1 here X2 now.", "Clique X1 aqui X2 agora.")];
    assert_eq!(by(&tags, "Click <0>here</0> now."), "Clique <0>aqui</0> agora.");
    let columns = [("Name", "Nome"), ("Age", "Idade")];
    assert_eq!(by(&columns, "  Name\tAge "), "  Nome\tIdade ");
}

#[test]
fn lines_without_words_are_copied() {
    for text in ["???", "42", "🦀 🍕", "https://a.example/b", "- [ ]", "{a}, {b}!", "   "] {
        assert_eq!(by(&[], text), text);
    }
}

#[test]
fn what_is_lost_stands_where_its_neighbour_went() {
    let (carried, _) = write("I love pizza 🍕 and cheese");
    assert_eq!(carried.text(), "I love pizza X1 and cheese");
    let output = "Queijo e pizza eu amo";
    let link = Link { source: 7..12, target: 9..14, weight: 0.9 };
    let restored = carried.restore(output, &[link]);
    assert_eq!((restored.text.text.as_str(), restored.lost), ("Queijo e pizza 🍕 eu amo", 1));
}

/// No text takes long.
#[test]
fn long_texts_are_read_in_time() {
    let start = std::time::Instant::now();
    for unit in [
        "a.", "<", "](", "1 ", "$", "`", "\\n", "{", "x1", "🦀 ", "a@", "  x", "A:", "{a}, ", "“",
        "_",
    ] {
        let text = unit.repeat(60_000 / unit.len());
        assert_eq!(translate(&text, str::to_owned), text, "{unit:?}");
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

proptest! {
    /// Masks alone change nothing else of a text, and what comes back may be something else.
    #[test]
    fn masks_alone(words in prop::collection::vec("[a-zé€\u{4e00}\\\\\" ]{1,6}", 1..8), which in prop::collection::vec(any::<bool>(), 8)) {
        let text = words.join(" ");
        let mut at = 0;
        let mut stretches = Vec::new();
        for (word, &masked) in words.iter().zip(&which) {
            let range = at..at + word.len();
            at = range.end + 1;
            if masked && !word.trim().is_empty() {
                stretches.push(range);
            }
        }
        let style = speller().styles().first().copied();
        let carried = Carried::masked(&text, &stretches, style);
        prop_assert_eq!(carried.masks(), stretches.len());
        let restored = carried.restore(carried.text(), &[]);
        prop_assert_eq!(&restored.text.text, &text);
        let places: Vec<_> = stretches.iter().cloned().map(Some).collect();
        prop_assert_eq!(&restored.places, &places);
        let others = stretches.iter().fold(carried, |carried, stretch| carried.returning(stretch, "<other>"));
        let restored = others.restore(&format!("{} Yes.", others.text()), &[]);
        prop_assert_eq!(restored.lost, 0);
        prop_assert_eq!(restored.text.text.matches("<other>").count(), stretches.len());
        for place in restored.places {
            prop_assert_eq!(&restored.text.text[place.expect("a place")], "<other>");
        }
    }
}
