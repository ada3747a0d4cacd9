//! `convert` and `inspect --verify`: what they write, check and refuse.

use std::path::Path;

use crate::common::{complaint, model, run, stdout};

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn verify(path: &Path) -> std::process::Output {
    run(&["inspect", "--verify", &text(path)])
}

#[test]
fn only_peregrine_files_are_written() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["model.npz", "model", "model.peregrine.bin"] {
        let file = folder.path().join(name);
        let message = complaint(run(&["convert", &model(), "-o", &text(&file)]));
        assert!(message.contains(name) && message.contains("end in .peregrine"), "{message}");
        assert!(!file.exists());
    }
}

#[test]
fn nothing_is_replaced_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.peregrine");
    std::fs::write(&file, "precious").unwrap();
    let arguments = ["convert", &model(), "-o", &text(&file)];
    let message = complaint(run(&arguments));
    assert!(message.contains("model.peregrine") && message.contains("--force"), "{message}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    stdout(run(&[&arguments[..], &["--force"]].concat()));
    assert!(stdout(verify(&file)).contains("the checksums of "));
}

#[test]
fn a_models_own_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["model.npz", "decoder.yml", "vocab.spm"] {
        std::fs::copy(Path::new(&model()).join(name), folder.path().join(name)).unwrap();
    }
    let inside = folder.path().join("model.peregrine");
    let message = complaint(run(&["convert", &text(folder.path()), "-o", &text(&inside)]));
    assert!(message.contains("part of the model"), "{message}");
    assert!(!inside.exists());
    // Of a file, the folder is free.
    let network = folder.path().join("model.npz");
    stdout(run(&["convert", &text(&network), "-o", &text(&inside)]));
    let before = std::fs::read(&inside).unwrap();
    let again = ["convert", &text(&inside), "--force", "--precision", "int8", "-o", &text(&inside)];
    let message = complaint(run(&again));
    assert!(message.contains("part of the model"), "{message}");
    assert_eq!(std::fs::read(&inside).unwrap(), before);
}

#[test]
fn damage_is_found_and_not_carried_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.peregrine");
    stdout(run(&["convert", &model(), "-o", &text(&file)]));
    let report = stdout(verify(&file));
    assert!(report.contains("checksums of ") && report.contains("finite numbers"), "{report}");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let message = complaint(verify(&file));
    assert!(message.contains("checksum ") && message.contains("is damaged"), "{message}");
    let second = folder.path().join("second.peregrine");
    let message = complaint(run(&["convert", &text(&file), "-o", &text(&second)]));
    assert!(message.contains("is damaged") && !second.exists(), "{message}");
    // The built-in model has no checksums, but numbers.
    assert!(stdout(run(&["inspect", "--verify"])).contains("finite numbers"));
}

#[test]
fn every_precision_can_be_stored_and_used() {
    let folder = tempfile::tempdir().unwrap();
    let sentence = "A woman in a red coat waits for the bus.";
    let translate = |file: &str, precision: &str| {
        stdout(run(&[
            "translate",
            "-m",
            file,
            "--precision",
            precision,
            "--device",
            "cpu",
            sentence,
        ]))
    };
    let expected = translate(&model(), "float32");
    for stored in ["auto", "float32", "float16", "bfloat16", "int16", "int8"] {
        let file = text(&folder.path().join(format!("{stored}.peregrine")));
        stdout(run(&["convert", &model(), "--precision", stored, "-o", &file]));
        let shown = stdout(run(&["inspect", &file]));
        // What the fixture is stored in.
        let name = if stored == "auto" { "float16" } else { stored };
        let weight = shown.lines().find(|line| line.contains("decoder.0.ffn.0.weight")).unwrap();
        assert!(weight.ends_with(name), "{stored}: {weight}");
        for precision in ["float32", "bfloat16", "int16", "int8"] {
            let translation = translate(&file, precision);
            assert!(translation.len() > 10, "{stored} in {precision}: {translation}");
            let exact = matches!(stored, "auto" | "float32" | "float16") && precision == "float32";
            assert!(!exact || translation == expected, "{stored}: {translation}");
        }
    }
    let file = text(&folder.path().join("no.peregrine"));
    let refused = run(&["convert", &model(), "--precision", "int4", "-o", &file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("bfloat16"));
}
