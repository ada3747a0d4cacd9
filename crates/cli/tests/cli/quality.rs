//! `peregrine calibrate`, `translate --quality` and `score --flags`.

use crate::common::{complaint, model, peregrine, run, run_with, scratch, scratch_with, stdout};
use serde_json::Value;

/// Text of 900 sentences, no two of which are equal.
fn text(name: &str) -> String {
    let names =
        ["Anna", "Peter", "Maria", "John", "The doctor", "My sister", "The old man", "A boy"];
    let verbs = ["saw", "found", "bought", "lost", "sold", "painted", "wanted", "broke", "hid"];
    let things = ["a house", "the book", "two dogs", "some bread", "a red car", "the window"];
    let places = ["in the city", "last night", "near the river"];
    let mut lines = String::new();
    for n in 0..900 {
        let (a, b) = (names[n % 8], verbs[n / 8 % 9]);
        let (c, d) = (things[n / 72 % 6], places[n % 3]);
        lines += &format!("{a} {b} {c} {d}, and {n} people came.\n");
    }
    scratch_with(name, lines.as_bytes())
}

/// The small model in a folder of its own.
fn own_model(name: &str) -> String {
    let folder = scratch(name);
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(model()).unwrap().flatten() {
        let name = file.file_name();
        let wanted = ["model.npz", "vocab.spm", "decoder.yml"].iter().any(|other| name == *other);
        if wanted {
            std::fs::copy(file.path(), folder.join(name)).unwrap();
        }
    }
    let _ = std::fs::remove_file(folder.join("model.npz.quality.json"));
    folder.display().to_string()
}

fn objects(output: std::process::Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_table_is_stored_beside_the_model_and_found_there() {
    let (model, text) = (own_model("calibrated"), text("calibrate.en"));
    let line = "Two dogs play in the snow.";
    let before = run(&["translate", "-m", &model, "--quality", "--json", line]);
    let said = String::from_utf8_lossy(&before.stderr).into_owned();
    assert!(said.contains("uncalibrated") && said.contains("peregrine calibrate"), "{said}");
    assert_eq!(objects(before)[0]["calibrated"], false);
    let made = run(&["calibrate", "-m", &model, &text, "--max-length-factor", "3"]);
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(said.contains("model.npz.quality.json: a table of"), "{said}");
    assert!(stdout(made).is_empty());
    let after = run(&["translate", "-m", &model, "--quality", "--json", line]);
    assert!(!String::from_utf8_lossy(&after.stderr).contains("uncalibrated"));
    assert_eq!(objects(after)[0]["calibrated"], true);
    // The network named by itself has the same table, and it can be made again.
    let network = format!("{model}/model.npz");
    let again = run(&["calibrate", "-m", &network, &text, "--max-length-factor", "3"]);
    assert!(again.status.success(), "{:?}", again.stderr);
    // A damaged table is noted.
    std::fs::write(format!("{network}.quality.json"), "{}").unwrap();
    let damaged = run(&["translate", "-m", &model, "--quality", "--json", line]);
    let said = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert!(said.contains("model.npz.quality.json: not a table"), "{said}");
    assert_eq!(objects(damaged)[0]["calibrated"], false);
}

#[test]
fn a_table_can_be_named() {
    let text = text("named.en");
    let table = scratch("named.json").display().to_string();
    assert!(run(&["calibrate", &text, "-o", &table]).status.success());
    let value: Value = serde_json::from_slice(&std::fs::read(&table).unwrap()).unwrap();
    assert_eq!(value["sentence_quantiles"].as_array().unwrap().len(), 33);
    assert_eq!((&value["precision"], &value["shortlist"]), (&"int8".into(), &false.into()));
    assert_eq!(value["sentences"], 900);
    let printed = stdout(run(&["calibrate", &text, "-o", "-"]));
    assert_eq!(printed, std::fs::read_to_string(&table).unwrap());
    let named = format!("--quality={table}");
    let line = "Anna saw a house in the city, and 7 people came.";
    let [own, other] = ["--quality", &named].map(|how| {
        objects(run(&["translate", how, "--json", line]))[0]["quality"].as_f64().unwrap()
    });
    assert!(own != other && (0.0..=1.0).contains(&other), "{own} {other}");
    assert!(complaint(run(&["translate", "--quality=no-such-file", "x"])).contains("no-such-file"));
    let wrong = scratch_with("wrong.json", b"[1]");
    let said = complaint(run(&["translate", &format!("--quality={wrong}"), "x"]));
    assert!(said.contains("wrong.json: not a table of `peregrine calibrate`"), "{said}");
}

#[test]
fn what_makes_no_table_is_refused() {
    let short = scratch_with("short.en", b"One line.\n");
    let table = scratch("short.json").display().to_string();
    let said = complaint(run(&["calibrate", &short, "-o", &table]));
    assert!(said.contains("short.en: 1 sentences: expected 500 or more"), "{said}");
    assert!(!scratch("short.json").exists());
    assert!(complaint(run(&["calibrate", &short])).contains("--output"));
    assert!(complaint(run(&["calibrate", &short, "-o", &short])).contains("this file is read"));
    let two = ["calibrate", "-m", &model(), "-m", &model(), &short];
    assert!(complaint(run(&two)).contains("ensemble"));
}

#[test]
fn text_has_score_and_flags_behind_it() {
    let lines = "Two dogs play in the snow.\n\nPlease write to 東京 tomorrow morning.\n";
    let output = run_with(&["translate", "--quality", "--carry", "off"], lines.as_bytes());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("note: 1 of 3 lines have flags: unknown 1"), "{said}");
    let text = stdout(output);
    let lines: Vec<&str> = text.lines().collect();
    let (first, quality) = lines[0].split_once(" ||| Quality= ").unwrap();
    assert_eq!(first, "Dois cães brincam na neve.");
    assert!(quality.parse::<f32>().is_ok_and(|score| (0.0..=1.0).contains(&score)), "{quality}");
    assert_eq!(lines[1], " ||| Quality= -");
    assert!(lines[2].ends_with(" unknown"), "{}", lines[2]);
    let quiet = peregrine(&["translate", "--quality", "-q", "東京"]).output().unwrap();
    assert!(quiet.stderr.is_empty());
    let list = stdout(run(&["translate", "--quality", "--n-best", "--beam", "2", "Good morning!"]));
    assert!(list.lines().all(|line| line.contains(" ||| Quality= ")), "{list}");
}

#[test]
fn objects_have_quality_of_sentences_and_words() {
    let arguments =
        ["translate", "--quality", "--json", "--split", "sentence", "--beam", "2", "--n-best"];
    let line = "Two dogs play in the snow. Good morning!";
    let object = objects(run_with(&arguments, line.as_bytes())).remove(0);
    assert!(object["quality"].as_f64().is_some() && object["calibrated"] == true);
    assert_eq!(object["flags"], Value::Array(Vec::new()));
    for sentence in object["sentences"].as_array().unwrap() {
        let [quality, flags] = ["quality", "flags"].map(|name| sentence[name].as_array().unwrap());
        assert_eq!((quality.len(), flags.len()), (2, 2));
    }
    let best = &object["alternatives"][0];
    assert_eq!(best["quality"], object["quality"]);
    let words = best["word_quality"].as_array().unwrap();
    let count = best["text"].as_str().unwrap().split_whitespace().count();
    assert_eq!(words.len(), count);
    assert!(words.iter().all(|word| word["quality"].as_f64().is_some()));
    let plain = objects(run_with(&["translate", "--json"], line.as_bytes())).remove(0);
    assert!(plain.get("quality").is_none() && plain.get("flags").is_none());
}

#[test]
fn given_translations_are_checked() {
    let pairs = "It was 147 metres high.\tTinha 122 metros de altura.\nThank you.\tObrigado.\n";
    let scored = stdout(run_with(&["score", "--flags"], pairs.as_bytes()));
    let lines: Vec<&str> = scored.lines().collect();
    assert!(lines[0].ends_with(" ||| Flags= numbers"), "{scored}");
    assert!(lines[1].ends_with(" ||| Flags="), "{scored}");
    let objects = objects(run_with(&["score", "--flags", "--json"], pairs.as_bytes()));
    assert_eq!(objects[0]["flags"], serde_json::json!(["numbers"]));
    let plain = stdout(run_with(&["score"], pairs.as_bytes()));
    assert!(!plain.contains("Flags"));
}
