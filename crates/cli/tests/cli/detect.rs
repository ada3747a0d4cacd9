//! `peregrine detect`.

use crate::common::{complaint, run, run_with, scratch_with, stdout};
use serde_json::Value;

const ENGLISH: &str = "Two dogs play in the snow while the children look on.";
const PORTUGUESE: &str = "Dois cães brincam na neve enquanto as crianças olham.";

#[test]
fn a_document_has_one_language() {
    let english = format!("{ENGLISH}\n\n{ENGLISH}\n");
    let answer = stdout(run_with(&["detect"], english.as_bytes()));
    let fields: Vec<&str> = answer.trim_end().split('\t').collect();
    assert_eq!((fields[0], fields[2]), ("en", "English"));
    assert!(fields[1].parse::<f32>().is_ok_and(|confidence| confidence > 0.5), "{answer}");
    assert!(stdout(run(&["detect", PORTUGUESE])).starts_with("pt\t"));
    let file = scratch_with("detect.txt", "\n  Мы не знаем, почему вы ещё ждёте.\n".as_bytes());
    assert!(stdout(run(&["detect", "-i", &file])).starts_with("ru\t"));
    assert_eq!(stdout(run_with(&["detect"], b"")), "und\t0.00\tunknown\n");
    // A first line of any length is enough.
    let long = ENGLISH.repeat(5000) + &"и".repeat(100_000);
    assert_eq!(stdout(run_with(&["detect"], long.as_bytes())), "en\t1.00\tEnglish\n");
}

#[test]
fn lines_have_languages_of_their_own() {
    let text = format!("{ENGLISH}\n{PORTUGUESE}\n\n12:30\nΝαι\n");
    let answers = stdout(run_with(&["detect", "--lines"], text.as_bytes()));
    let codes: Vec<&str> = answers.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(codes, ["en", "pt", "und", "und", "el"]);
    let long = format!("{}\n{PORTUGUESE}\n", ENGLISH.repeat(5000));
    let answers = stdout(run_with(&["detect", "--lines"], long.as_bytes()));
    assert_eq!(answers.lines().count(), 2, "{answers}");
    assert!(answers.lines().last().unwrap().starts_with("pt\t"));
}

#[test]
fn an_object_has_all_there_is() {
    let answer = stdout(run(&["detect", "--json", "--among", "en,pt_BR", PORTUGUESE]));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["language"], "pt-BR");
    assert_eq!(answer["name"], "Portuguese (Brazil)");
    assert_eq!((&answer["reliable"], &answer["script"]), (&true.into(), &"Latn".into()));
    let none = stdout(run(&["detect", "--json", "--among", "ru", ENGLISH]));
    let none: Value = serde_json::from_str(&none).unwrap();
    assert_eq!((&none["language"], &none["script"]), (&Value::Null, &"Latn".into()));
}

#[test]
fn languages_that_do_not_exist_are_refused() {
    let said = complaint(run(&["detect", "--among", "en,Portugese", "text"]));
    assert!(said.contains("Portugese") && said.contains("pt (Portuguese)"), "{said}");
}
