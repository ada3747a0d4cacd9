//! A file that is read is never written: input, model, vocabulary, whatever way leads to it.

use std::fs::File;
use std::os::unix::fs::symlink;

use crate::common::nonsense::{Nonsense, odd_lines};
use crate::common::peregrine;

#[test]
fn the_input_is_not_the_output() {
    let model = Nonsense::new();
    let text = odd_lines(100);
    let path = |name: &str| model.path(name);
    std::fs::write(path("f"), &text).expect("an input");
    std::fs::write(path("other"), &text).expect("an input");
    std::fs::write(path("other.resume"), &text).expect("an input");
    std::fs::create_dir(path("a")).expect("a folder");
    symlink(path("f"), path("symlink")).expect("a link");
    symlink(path("new"), path("link-to-new")).expect("a link");
    std::fs::hard_link(path("f"), path("hard")).expect("a link");
    let before = std::fs::read(path("model.peregrine")).expect("a model");
    let cases: [&[&str]; 12] = [
        &["-i", "f", "-o", "f"],
        &["-i", "f", "-o", "symlink"],
        &["-i", "symlink", "-o", "f"],
        &["-i", "f", "-o", "hard"],
        &["-i", "f", "-o", "./a/../f"],
        &["-i", "f", "-o", "other", "--stats", "f"],
        &["-i", "f", "-o", "new", "--stats", "new"],
        &["-i", "f", "-o", "new", "--stats", "link-to-new"],
        &["-i", "f", "-o", "new", "--stats", "a/../new"],
        &["-i", "f", "-o", "other", "--prefix", "other"],
        &["-i", "f", "-o", "model.peregrine"],
        &["-i", "other.resume", "-o", "other"],
    ];
    for arguments in cases {
        let output = model.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("this file is"), "{said}");
        for name in ["f", "other", "other.resume"] {
            assert!(std::fs::read(path(name)).expect("a file") == text, "{arguments:?}: {name}");
        }
        assert!(!path("new").exists());
    }
    assert!(std::fs::read(path("model.peregrine")).expect("a model") == before);
    let open = |name: &str| File::open(path(name)).expect("a file");
    let redirected = model.translate(&["-o", "f"]).stdin(open("f")).output().expect("it");
    assert_eq!(redirected.status.code(), Some(2));
    let append = File::options().append(true).open(path("f")).expect("a file");
    let appended = model.translate(&["-i", "f"]).stdout(append).output().expect("it");
    assert_eq!(appended.status.code(), Some(2));
    assert!(std::fs::read(path("f")).expect("a file") == text);
}

/// Files of both kinds may be the same device.
#[test]
fn devices_may_be_read_and_written() {
    let model = Nonsense::new();
    let output = model.run(&["-i", "/dev/null", "-o", "/dev/null", "--stats", "/dev/null"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn parallel_text_is_not_the_table() {
    let model = Nonsense::new();
    std::fs::write(model.path("s"), b"w2 w3\n").expect("a text");
    std::fs::write(model.path("t"), b"w4 w5\n").expect("a text");
    let arguments = ["shortlist", "build", "-m", "model.peregrine", "s", "t", "-o", "t"];
    let output = peregrine(&arguments).current_dir(model.directory.path()).output().expect("it");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(model.path("t")).expect("a text"), b"w4 w5\n");
}
