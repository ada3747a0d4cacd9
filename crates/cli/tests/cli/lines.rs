//! One line in, one line out, in order, whatever the line holds.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::common::{model, peregrine, run_with, scratch, scratch_with, stdout};

/// Translates bytes with the small model, each line as it is; gives back lines and notes.
fn translate(input: &[u8]) -> (Vec<String>, String) {
    translate_with(&["--carry", "off", "--split", "none"], input)
}

fn translate_with(options: &[&str], input: &[u8]) -> (Vec<String>, String) {
    let model = model();
    let output = run_with(&[&["translate", "-m", &model], options].concat(), input);
    let notes = String::from_utf8(output.stderr.clone()).unwrap();
    let text = stdout(output);
    assert!(text.is_empty() || text.ends_with('\n'));
    (text.lines().map(str::to_owned).collect(), notes)
}

/// The translation of an ordinary line, to see that its odd neighbours do it no harm.
const PLAIN: &str = "The black cat sleeps on a chair.";

fn plain() -> String {
    translate(PLAIN.as_bytes()).0.remove(0)
}

/// A line between two ordinary ones.
fn between(odd: &[u8]) -> (String, String) {
    let plain_translation = plain();
    let input = [PLAIN.as_bytes(), b"\n", odd, b"\n", PLAIN.as_bytes(), b"\n"].concat();
    let (lines, notes) = translate(&input);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!([&lines[0], &lines[2]], [&plain_translation; 2]);
    (lines[1].clone(), notes)
}

/// The stand-in for a network leaves reading, splitting, tokenising and writing, by several threads.
#[test]
fn an_echo_gives_every_line_back() {
    let line = |number| match number % 9 {
        0 => String::new(),
        1 => format!("Two sentences here. This is the second one of number {number}."),
        _ => format!("This is line number {number} of the text, and no other."),
    };
    let text: String = (0..3000).map(|number| line(number) + "\n").collect();
    for split in ["sentence", "none"] {
        let options = ["translate", "--set=network=echo", "--threads=2", "--split", split];
        assert_eq!(stdout(run_with(&options, text.as_bytes())), text, "{split}");
    }
}

#[test]
fn empty_lines_stay_empty() {
    assert_eq!(between(b"").0, "");
    assert_eq!(between(b"   ").0, "");
    assert_eq!(translate(b"").0.len(), 0);
    assert_eq!(translate(b"\n").0, [""]);
    assert_eq!(translate(b"\n\n\n").0, ["", "", ""]);
}

#[test]
fn a_last_line_needs_no_end() {
    let plain = plain();
    assert_eq!(translate(format!("{PLAIN}\n{PLAIN}").as_bytes()).0, [plain.clone(), plain]);
}

#[test]
fn carriage_returns_belong_to_the_line_end() {
    let plain = plain();
    let (lines, _) = translate(format!("{PLAIN}\r\n\r\n{PLAIN}\r\n").as_bytes());
    assert_eq!(lines, [plain.clone(), String::new(), plain]);
    // Alone it is white space, not a line end.
    assert_eq!(translate(b"a man\ra dog\n").0.len(), 1);
}

#[test]
fn odd_characters() {
    let odd = [
        "\u{0}",
        "a\u{0}b",
        "\u{301}\u{308}\u{20dd}",
        "שלום עולם",
        "\u{202e}right to left\u{202c}",
        "\u{feff}a dog",
        "\u{85}\u{2028}\u{2029}\u{b}\u{c}",
        "\u{10ffff}\u{e000}\u{fffd}",
        "🐕‍🦺 🇵🇹",
        "</s> <unk> ||| \\n \\0",
        "%s %n {} $(date) `id`",
    ];
    for line in odd {
        between(line.as_bytes());
        let input = format!("{PLAIN}\n{line}\n{PLAIN}\n");
        let (lines, _) = translate_with(&[], input.as_bytes());
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!([&lines[0], &lines[2]], [&plain(); 2]);
    }
}

#[test]
fn invalid_utf_8_is_replaced() {
    let (replaced, _) = between(b"a dog \xff\xfe\xc3");
    assert_eq!(replaced, between("a dog \u{fffd}\u{fffd}\u{fffd}".as_bytes()).0);
    between(b"\xf0\x9f\x90");
    between(b"\xed\xa0\x80 half a pair");
}

#[test]
fn a_line_of_100_000_characters_is_translated_in_parts() {
    let sentence = "A man and a dog walk along a river. ";
    let (line, notes) = between(sentence.repeat(100_000 / sentence.len() + 1).as_bytes());
    assert!(line.len() > 10_000, "{} bytes", line.len());
    assert!(notes.contains("line 2 is too long for the model: translated in"), "{notes}");
    assert_eq!(notes.lines().count(), 1);
    // It was read in two parts, and is put together for forms that show it as a whole.
    let repeated = sentence.repeat(100_000 / sentence.len() + 1);
    let bare = ["--carry", "off", "--split", "none"];
    let model = model();
    let arguments = [&["translate", "-q", "-m", &model, "--json"][..], &bare].concat();
    let object: serde_json::Value =
        serde_json::from_str(&stdout(run_with(&arguments, repeated.as_bytes()))).unwrap();
    assert_eq!(object["text"], line);
    // Split into sentences nothing of it is too long.
    let (lines, notes) = translate_with(&[], repeated.as_bytes());
    assert!(lines.len() == 1 && lines[0].len() > 10_000 && notes.is_empty(), "{notes}");
}

#[test]
fn a_word_of_100_000_characters() {
    // Of characters it does not know the tokenizer makes one token; that is a line like any other.
    for word in ["狗", "\u{301}"] {
        between(word.repeat(100_000).as_bytes());
    }
    let word = "x".repeat(100_000);
    let (line, notes) = between(word.as_bytes());
    assert!(line == word, "copied");
    assert!(notes.contains("line 2 has a stretch too long"), "{notes}");
    // What stands around it is translated.
    let (line, _) = between(format!("{PLAIN} {word} {PLAIN}").as_bytes());
    assert!(line == format!("{0} {word} {0}", plain()));
    let json = run_with(&["translate", "-m", &model(), "--json"], word.as_bytes());
    let object: serde_json::Value = serde_json::from_str(&stdout(json)).unwrap();
    assert_eq!((&object["copied"], object["text"].as_str()), (&true.into(), Some(&*word)));
}

#[test]
fn order_is_kept_in_any_batch_on_any_thread() {
    let subjects = ["A man", "A woman", "Two dogs", "A girl in a red coat"];
    let places = ["", " on the beach", " in front of a white house", " in the street at night"];
    let sentences: Vec<String> = (0..80)
        .map(|i| format!("{} walks{}. {}", subjects[i % 4], places[i / 4 % 4], "a ".repeat(i / 16)))
        .collect();
    let input = sentences.join("\n");
    let run = |more: &[&str]| {
        let model = model();
        stdout(run_with(&[&["translate", "-m", &model], more].concat(), input.as_bytes()))
    };
    let alone = run(&["--batch-sentences", "1"]);
    assert_eq!(alone.lines().count(), sentences.len());
    for more in [
        &["--batch-sentences", "7", "-t", "2"][..],
        &["--batch-sentences", "64", "-t", "3"],
        &["--batch-tokens", "20"],
    ] {
        assert_eq!(run(more), alone, "{more:?}");
    }
}

#[test]
fn files_in_and_out() {
    let source = scratch_with("lines-in.txt", PLAIN.as_bytes());
    let target = scratch("lines-out.txt");
    let arguments =
        ["translate", "-m", &model(), "-i", &source, "-o", &target.display().to_string()];
    assert_eq!(stdout(run_with(&arguments, b"")), "");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), format!("{}\n", plain()));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = peregrine(&["translate", "-m", &model(), "--batch-sentences", "2"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&b"a dog\n".repeat(3000))));
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(!first.is_empty());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
