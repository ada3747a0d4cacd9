//! `translate --glossary`: terms in the output, in JSON and in the summary, and bad files.

use crate::common::{complaint, peregrine, run, scratch_with, stdout};
use serde_json::{Value, json};

const TEXT: &str = "Two dogs play in the snow.";

#[test]
fn terms_are_in_the_output_and_the_summary() {
    let terms =
        scratch_with("glossary-terms.tsv", "# terms\ndogs\tcachorros\nsnow\tneve\n".as_bytes());
    for mode in ["constrain", "mask", "replace"] {
        let arguments =
            ["translate", "--glossary", &terms, "--glossary-mode", mode, TEXT, "Good morning!"];
        let output = run(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = stdout(output);
        assert!(text.contains("cachorros") && text.contains("neve"), "{mode}: {text}");
        let expected = match mode {
            "constrain" => "2 terms, 1 already, 1 constrained\n",
            "mask" => "2 terms, 2 masked\n",
            _ => "2 terms, 1 already, 1 replaced\n",
        };
        assert!(errors.ends_with(expected), "{mode}: {errors}");
    }
    let quiet = peregrine(&["translate", "--quiet", "--glossary", &terms, TEXT]).output().unwrap();
    assert!(quiet.stderr.is_empty());
}

#[test]
fn json_says_what_came_of_each_term() {
    let terms =
        scratch_with("glossary-terms.csv", "dogs,cachorros,en,pt\r\n\"snow\",\"\"\r\n".as_bytes());
    let output = stdout(run(&["translate", "--json", "--glossary", &terms, TEXT]));
    let line: Value = serde_json::from_str(&output).unwrap();
    let text = line["text"].as_str().unwrap();
    let [dogs, snow] = line["terms"].as_array().unwrap().as_slice() else { panic!("{output}") };
    assert_eq!(
        (&dogs["source"], &dogs["how"], &dogs["wanted"]),
        (&json!([4, 8]), &json!("constrained"), &json!("cachorros"))
    );
    let at = |term: &Value, place: usize| term["target"][place].as_u64().unwrap() as usize;
    assert_eq!(&text[at(dogs, 0)..at(dogs, 1)], "cachorros");
    assert!(dogs["cost"].as_f64().unwrap() > 0.0 && dogs["forbidden"] == json!(false));
    assert_eq!(&text[at(snow, 0)..at(snow, 1)], "snow");
    assert_eq!(snow["how"], json!("masked"));
    // Without a glossary nothing is said of terms.
    let without: Value =
        serde_json::from_str(&stdout(run(&["translate", "--json", TEXT]))).unwrap();
    assert!(without.get("terms").is_none());
}

#[test]
fn a_bad_file_is_one_line() {
    for (name, content, expected) in [
        ("bad-tab.tsv", "dogs cachorros\n", "line 1: no tab; expected `source<TAB>target`"),
        ("bad-twice.tsv", "a\tb\na\tc\n", "line 2: `a` has another target in line 1"),
        ("bad-empty.tsv", "a\tb\n\tc\n", "line 2: the source term is empty"),
        ("bad-quote.csv", "\"a,b\n", "line 1: a quote that is not closed"),
    ] {
        let path = scratch_with(name, content.as_bytes());
        let told = complaint(run(&["translate", "--glossary", &path, TEXT]));
        assert!(told.contains(&format!("{name}: {expected}")), "{told}");
    }
    let told = complaint(run(&["translate", "--glossary", "no-such-file.tsv", TEXT]));
    assert!(told.contains("no-such-file.tsv"), "{told}");
}
