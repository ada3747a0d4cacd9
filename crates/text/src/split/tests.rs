use super::*;

fn split(text: &str) -> Vec<&str> {
    sentences(text).into_iter().map(|range| &text[range]).collect()
}

/// Sentences, joined by `|` for the eye.
#[track_caller]
fn check(expected: &str) {
    let text = expected.replace('|', "");
    let parts: Vec<&str> = expected.split('|').map(str::trim).collect();
    assert_eq!(split(&text), parts);
}

#[test]
fn english() {
    check("Hello! |How are you? |Fine.");
    check("Mr. and Mrs. Brown met J. R. R. Tolkien. |He was late.");
    check("See Fig. 3 and No. 7. |Then go on.");
    check("It costs $3.50 in the U.S. Congress. |Really.");
    check("\"Stop!\" she cried. |\"Never.\" |That was all...");
    check("He left (at last.) |We stayed.");
    check("In 1990. |Then came 1991.");
    check("1. First item. |2. Second item.");
    check("Visit www.example.com today. |It is v1.2.3 now.");
    check("Wait... what? |No.");
    check("So did I. |You too.");
}

#[test]
fn other_european_languages() {
    check("Am 3. Oktober kam Dr. Müller, z.B. Herr A. Schmidt. |Er blieb.");
    check("M. Dupont et Mme. Durand sont là. |Ils partent.");
    check("¿Qué hora es? |¡Es tarde! |El Sr. García duerme.");
    check("O Sr. Silva chegou. |A Dra. Costa saiu.");
    check("Il Sig. Rossi parla. |Ecco.");
    check("Dhr. Jansen, bijv. Piet, komt. |Hij eet.");
    check("Prof. Kowalski mieszka przy ul. Długiej. |Tak.");
    check("Пр. Иванов живёт на ул. Ленина. |Да.");
    check("Er sagte: „Komm!“ |Sie ging.");
}

#[test]
fn other_scripts() {
    check("今天天气很好。|我们去公园吧！|好不好？");
    check("彼は「行く。」と言った。|私も行く。");
    check("यह एक वाक्य है। |यह दूसरा है।");
    check("هل أنت بخير؟ |نعم.");
}

/// What follows an abbreviation decides.
#[test]
fn abbreviations_and_what_follows() {
    check("She left the U.K. |His car stayed.");
    check("They live in Washington, D.C. |The rent is high.");
    check("He met U.S. Senator J. Smith on Elm St. |It rained.");
    check("Mäuse, z. B. Hausmäuse, u. a. Tiere. |Eulen nicht.");
    check("Volvió de EE. UU. en mayo. |Y ya.");
    check("Der 1. FC Ulm spielt am 24. 12. gegen uns. |Gut.");
    check("J.-P. Rey kam. |Firma Ott & Co. KG zahlt.");
    check("a. Go left. |b. Turn right.");
    check("Let us go in. |No. |Yes.");
}

#[test]
fn what_belongs_to_a_sentence_behind_its_mark() {
    check("It was built in 1410.[3] |It burned.");
    check("We won! 🎉 |They lost. ❤️ 🦀 |Bye.");
    check("Il cria : « Courez ! » |Puis il tomba.");
    check("»Komm.« |»Nein.«");
    check("« Où ? » dit-il. |« Là. »");
}

#[test]
fn white_space_is_left_out_and_nothing_else() {
    assert_eq!(split("  One.\t\n Two.  "), ["One.", "Two."]);
    assert_eq!(split(""), Vec::<&str>::new());
    assert_eq!(split(" \u{a0}\n"), Vec::<&str>::new());
    assert_eq!(split("..."), ["..."]);
    assert_eq!(split("no end"), ["no end"]);
}

#[test]
fn no_sentence_goes_over_an_empty_line() {
    assert_eq!(
        split("A title\n\nA text goes\non here.\n \t\nend"),
        ["A title", "A text goes\non here.", "end"]
    );
    assert_eq!(split("\n\n a\n\n\n"), ["a"]);
    let by_line = |text: &'static str| -> Vec<&str> {
        Split::Sentence.sentences(text).into_iter().map(|range| &text[range]).collect()
    };
    assert_eq!(by_line("a\r\n\r\n  b c. D\n"), ["a", "b c.", "D"]);
    assert_eq!(by_line("Mr.\nSmith"), ["Mr.", "Smith"]);
    assert_eq!(by_line("no end"), ["no end"]);
    assert!(by_line("").is_empty() && by_line("\n \n").is_empty());
}

proptest::proptest! {
    /// Of one line both ways of splitting say the same, and of a text the lines say what the text says.
    #[test]
    fn lines_are_split_each_for_itself(text in "[a-zA-Z0-9 .!?\"'。！“”»(\u{301}é\n\r\t]{0,60}") {
        let mut expected = Vec::new();
        let mut start = 0;
        for line in text.split('\n') {
            expected.extend(sentences(line).into_iter().map(|r| start + r.start..start + r.end));
            start += line.len() + 1;
        }
        proptest::prop_assert_eq!(Split::Sentence.sentences(&text), expected);
    }

    #[test]
    fn every_character_is_in_a_sentence_or_white(text in "[a-zA-Z0-9 .!?\"'。！“”»(\u{301}é\n]{0,60}") {
        let mut at = 0;
        for range in sentences(&text) {
            proptest::prop_assert!(range.start >= at && range.end > range.start);
            proptest::prop_assert!(text[at..range.start].trim().is_empty());
            at = range.end;
        }
        proptest::prop_assert!(text[at..].trim().is_empty());
    }
}
