//! XLIFF 1.2 and 2.

use super::{check_with, fixture, scrambler, text, texts, with};
use crate::engines::{counted, read, scrambled, write};
use peregrine_document::{Document, Format, Options, Translated};

#[test]
fn xliff_texts() {
    let plain = Options::default();
    assert_eq!(
        texts(&fixture("app.xlf"), Format::Xliff, &plain),
        [
            "The old garden & the house",
            "Press ⟨\u{fffc}⟩ to open ⟨{0}⟩ gatesnow.",
            "First sentence.",
            "Second ⟨sentence⟩.",
            "Slanted text with ⟨\u{fffc}⟩ in it",
        ]
    );
    assert_eq!(
        texts(&fixture("app2.xlf"), Format::Xliff, &plain),
        ["Open the green door slowly.", "It is very ⟨old⟩."]
    );
    let replace = with(|options| options.replace = true);
    assert_eq!(texts(&fixture("app.xlf"), Format::Xliff, &replace).len(), 6);
    for text in ["<xliff version='1.2'><file>", "<a/>", "", "no"] {
        assert!(Document::read(text.into(), Format::Xliff, &plain).is_err(), "{text}");
    }
}

#[test]
fn xliff_is_filled_and_marked() {
    let options = with(|options| options.target_language = Some("pt".to_owned()));
    let document = read(&fixture("app.xlf"), Format::Xliff, &options);
    let after = text(write(&document, Translated::copy).bytes);
    for part in [
        "original=\"garden.html\" target-language=\"pt\">",
        "house</source>\n        <target state=\"needs-review-translation\">The <g id=\"b1\">old</g> garden &amp; the house</target>\n      </trans-unit>",
        "<target state=\"needs-review-translation\">Press <x id=\"x1\"/> to open",
        "<alt-trans><source>Press it</source><target>Aperte</target></alt-trans>",
        "<source>Approved</source>\n        <target></target>",
        "<source>Peregrine</source>\n      </trans-unit>",
        "<target state=\"needs-review-translation\"><mrk mtype=\"seg\" mid=\"1\">First sentence.</mrk> <mrk",
        "<target state=\"final\">Feito</target>",
        "<target state=\"needs-review-translation\"><bpt id=\"1\">&lt;i></bpt>Slanted",
        "<trans-unit id=\"8\"><source>42</source></trans-unit>",
    ] {
        assert!(after.contains(part), "{part:?} in {after}");
    }
    let second = read(&fixture("app2.xlf"), Format::Xliff, &options);
    let after2 = text(write(&second, Translated::copy).bytes);
    for part in [
        "srcLang=\"en\" trgLang=\"pt\">",
        "<segment id=\"s1\" state=\"translated\" subState=\"peregrine:unreviewed\">\n        <source>Open",
        "slowly.</source>\n        <target>Open the <pc id=\"1\">green</pc>",
        "<segment id=\"s2\" state=\"translated\" subState=\"peregrine:unreviewed\">",
        "<segment id=\"s3\" state=\"final\">",
    ] {
        assert!(after2.contains(part), "{part:?} in {after2}");
    }
    for (document, after) in [(document, after), (second, after2)] {
        // What is filled is not filled again.
        let again = read(after.as_bytes(), Format::Xliff, &options);
        assert_eq!(again.blocks().len(), 0);
        assert_eq!(text(write(&again, Translated::copy).bytes), after);
        check_with("xmllint", &["--noout"], after.as_bytes());
        let tags = |text: &str| {
            counted(
                text.split('<')
                    .skip(1)
                    .filter_map(|part| part.split('>').next())
                    .map(str::to_owned),
            )
        };
        for seed in 0..100 {
            let mut rules = scrambler(seed);
            let scrambled = text(write(&document, |block| scrambled(block, &mut rules)).bytes);
            assert_eq!(tags(&after), tags(&scrambled), "{scrambled}");
            // Sources are the same.
            let sources = |text: &str| -> Vec<String> {
                let sources = text.split("<source>").skip(1);
                sources
                    .map(|part| part.split("</source>").next().unwrap_or_default().to_owned())
                    .collect()
            };
            assert_eq!(sources(&after), sources(&scrambled));
            let again = Document::read(scrambled.into(), Format::Xml, &Options::default());
            assert!(again.is_ok(), "{again:?}");
        }
    }
}
