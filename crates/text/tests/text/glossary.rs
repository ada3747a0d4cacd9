//! Glossaries of any entries in any text.

use peregrine_text::{Entry, Glossary, is_unspaced};
use proptest::prelude::*;

/// Words of few letters, so that many are found, some in capitals, some of a script without blanks.
fn term() -> impl Strategy<Value = String> {
    let word = prop_oneof!["[ab]{1,3}", "[aB]{1,2}", "[人工]{1,3}", "[aİé'’]{1,2}"];
    prop::collection::vec(word, 1..3).prop_map(|words| words.join(" "))
}

fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![4 => term(), 2 => " {1,2}", 1 => "[,.\"\\-]", 1 => any::<String>()];
    prop::collection::vec(part, 0..10).prop_map(|parts| parts.concat())
}

fn fold(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    words.join(" ").replace('’', "'").replace('ς', "σ")
}

/// Whether a stretch is one that an entry tells of, as slow as that may be.
fn fits(entry: &Entry, text: &str, start: usize, end: usize) -> bool {
    let surface = &text[start..end];
    let edge = |at: usize| {
        let (before, behind) = (text[..at].chars().next_back(), text[at..].chars().next());
        let letter = |c: char| c.is_alphanumeric() || c == '_' || c == '\u{307}';
        match (before, behind) {
            (_, Some('\u{307}')) => at == 0,
            (Some(a), Some(b)) => !letter(a) || !letter(b) || is_unspaced(a) || is_unspaced(b),
            _ => true,
        }
    };
    let exact = surface.split_whitespace().eq(entry.source.split_whitespace());
    surface.trim() == surface
        && fold(surface) == fold(&entry.source)
        && (!entry.is_cased() || exact)
        && edge(start)
        && edge(end)
}

proptest! {
    #[test]
    fn what_is_found_is_what_a_slow_search_finds(terms in prop::collection::vec(term(), 0..8), text in text()) {
        // Characters that marks may join to what is before them have rules of their own.
        prop_assume!(!text.contains(|c| matches!(c, '\u{300}'..='\u{306}' | '\u{308}'..='\u{36f}' | '\u{93c}' | '\u{94d}' | '\u{200d}' | '\u{fe0f}')));
        let glossary = Glossary::new(terms.iter().map(|term| Entry::new(term, "x"))).expect("a glossary");
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut expected = Vec::new();
        let mut at = 0;
        for &start in &places {
            let ends = places.iter().rev().filter(|&&end| start >= at && end > start);
            let fit = |end: &&usize| glossary.entries().iter().any(|entry| fits(entry, &text, start, **end));
            if let Some(&end) = ends.into_iter().find(fit) {
                expected.push(start..end);
                at = end;
            }
        }
        let found: Vec<_> = glossary.find(&text).into_iter().map(|found| found.range).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, text in "[ab\t,\"\n#|\r]{0,40}") {
        for name in ["x.tsv", "x.csv"] {
            let _ = Glossary::read(name, &bytes);
            if let Err(error) = Glossary::read(name, text.as_bytes()) {
                prop_assert!(error.to_string().starts_with(&format!("{name}: line ")), "{error}");
                prop_assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }

    #[test]
    fn csv_comes_back(terms in prop::collection::btree_map("[a-c,\" ]{0,5}[a-c]", "[a-c,\"\n ]{0,5}[a-c]", 0..6)) {
        let quote = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let file: String = terms.iter().map(|(s, t)| format!("{},{}\r\n", quote(s), quote(t))).collect();
        let entries: Vec<Entry> = terms.iter().map(|(s, t)| Entry::new(s, t)).collect();
        let (read, made) = (Glossary::read("x.csv", file.as_bytes()), Glossary::new(entries));
        prop_assert_eq!(read.map(|g| g.entries().to_vec()).ok(), made.map(|g| g.entries().to_vec()).ok());
    }
}
