//! Documents, several files and folders, with the built-in model.
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{complaint, peregrine, run, run_with, stdout};

const PAGE: &str = "<!DOCTYPE html>\n<p class='a'>Two <b id=x>dogs</b> play in the snow.</p>\n";
const NEW_PAGE: &str = "<!DOCTYPE html>\n<p class='a'>Dois <b id=x>cães</b> brincam na neve.</p>\n";
const LINE: &str = "Two dogs play in the snow.\n";
const NEW_LINE: &str = "Dois cães brincam na neve.\n";

/// A new folder with files in it.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = crate::common::scratch(name);
    let _ = fs::remove_dir_all(&folder);
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_document_is_known_by_its_name_or_its_format() {
    let files = folder("document-names", &[("page.html", PAGE)]);
    let page = text(&files.join("page.html"));
    assert_eq!(stdout(run(&["translate", "-i", &page])), NEW_PAGE);
    assert_eq!(stdout(run(&["translate", &page])), NEW_PAGE);
    let read = run_with(&["translate", "--format", "html"], PAGE.as_bytes());
    assert_eq!(stdout(read), NEW_PAGE);
    let out = text(&files.join("out.html"));
    stdout(run(&["translate", "-i", &page, "-o", &out]));
    assert_eq!(fs::read_to_string(&out).unwrap(), NEW_PAGE);
    let refused = complaint(run(&["translate", "-q", "--json", "-i", &page]));
    assert!(refused.contains("--json") && refused.contains("--format lines"), "{refused}");
    let lines = stdout(run(&["translate", "-q", "--format", "lines", "--json", "-i", &page]));
    assert_eq!(lines.lines().count(), 2);
}

#[test]
fn folders_and_files_are_translated_into_a_folder() {
    let list = [
        ("a.html", PAGE),
        ("b/notes.md", "# Two dogs play in the snow.\n\n```\ncode\n```\n"),
        ("b/c.txt", LINE),
        ("b/picture.png", "no text"),
        (".hidden/d.txt", LINE),
    ];
    let files = folder("document-folder", &list);
    let out = folder("document-folder-out", &[]);
    stdout(run(&["translate", &text(&files), "-o", &text(&out)]));
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(read("a.html"), NEW_PAGE);
    assert_eq!(read("b/notes.md"), "# Dois cães brincam na neve.\n\n```\ncode\n```\n");
    assert_eq!(read("b/c.txt"), NEW_LINE);
    assert!(!out.join("b/picture.png").exists() && !out.join(".hidden").exists());
    assert_eq!(fs::read_dir(out.join("b")).unwrap().count(), 2);

    // Two files by name; the folder is made.
    let two = out.join("two");
    let (a, c) = (text(&files.join("a.html")), text(&files.join("b/c.txt")));
    stdout(run(&["translate", &a, &c, "-o", &text(&two)]));
    assert_eq!(fs::read_to_string(two.join("a.html")).unwrap(), NEW_PAGE);
    assert_eq!(fs::read_to_string(two.join("c.txt")).unwrap(), NEW_LINE);
}

#[test]
fn one_bad_file_does_not_cost_the_others() {
    let list = [("a.xml", "<a>"), ("b.txt", LINE), ("c.pdf", "%PDF-1.7")];
    let files = folder("document-bad", &list);
    let out = folder("document-bad-out", &[]);
    let output = run(&["translate", "-q", &text(&files), "-o", &text(&out)]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("a.xml: line 1, column 1: not well-formed"), "{errors}");
    assert!(errors.contains("1 of 2 files are not translated"), "{errors}");
    assert_eq!(fs::read_to_string(out.join("b.txt")).unwrap(), NEW_LINE);
    assert!(!out.join("a.xml").exists());
}

#[test]
fn in_place_keeps_the_original() {
    let files = folder("document-in-place", &[("a.html", PAGE), ("b.txt", LINE)]);
    let (a, b) = (files.join("a.html"), files.join("b.txt"));
    stdout(run(&["translate", &text(&files), "--in-place"]));
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    assert_eq!((read(&a), read(&b)), (NEW_PAGE.to_owned(), NEW_LINE.to_owned()));
    assert_eq!(read(&files.join("a.html.orig")), PAGE);
    assert_eq!(read(&files.join("b.txt.orig")), LINE);
    // The backup of the first time is never overwritten.
    let again = run(&["translate", "-q", &text(&a), "--in-place"]);
    let errors = String::from_utf8(again.stderr).unwrap();
    assert!(again.status.code() == Some(2) && errors.contains("a.html.orig"), "{errors}");
    assert_eq!((read(&a), read(&files.join("a.html.orig"))), (NEW_PAGE.into(), PAGE.into()));
    fs::write(&a, PAGE).unwrap();
    stdout(run(&["translate", "-i", &text(&a), "--in-place=none"]));
    assert_eq!((read(&a), fs::read_dir(&files).unwrap().count()), (NEW_PAGE.into(), 4));
}

#[test]
fn names_of_no_file_are_not_translated_as_text() {
    let files = folder("document-lost-names", &[("a.html", PAGE), ("b.html", PAGE)]);
    let name = |name: &str| text(&files.join(name));
    let refused = complaint(run(&["translate", "-q", &name("c.html")]));
    assert!(refused.contains("c.html: no such file"), "{refused}");
    for pattern in ["*.html", "*"] {
        let arguments = ["translate", "-q", &name(pattern), "-o", &name("out")];
        let refused = complaint(run(&arguments));
        assert!(refused.contains("quotes"), "{refused}");
    }
    let refused = complaint(run(&["translate", "-q", &name("a.html"), &name("b.html")]));
    assert!(refused.contains("--in-place"), "{refused}");
    assert_eq!(
        stdout(run(&["translate", "Two dogs play in the snow.", "2 * 3."])).lines().count(),
        2
    );
}

#[test]
fn long_documents_go_through_in_pieces() {
    let line = "{\"id\": 17, \"text\": \"Two dogs play in the snow.\"}\n";
    let empty = "{\"id\": 18}\n".repeat(200_000);
    let lines = [line, &empty, line].concat();
    let files = folder("document-pieces", &[("a.jsonl", &lines)]);
    let (a, out) = (text(&files.join("a.jsonl")), files.join("out.jsonl"));
    stdout(run(&["translate", &a, "-o", &text(&out)]));
    let new = line.replace(LINE.trim(), NEW_LINE.trim());
    assert!(fs::read_to_string(&out).unwrap() == [&new, &empty[..], &new].concat());
    let read = run_with(&["translate", "--format", "json"], lines.as_bytes());
    assert_eq!(stdout(read).len(), fs::metadata(&out).unwrap().len() as usize);

    // A bad line far behind: what goes to a file is whole or not there.
    let bad = files.join("b.jsonl");
    fs::write(&bad, [&lines, "]\n"].concat()).unwrap();
    let kept = text(&files.join("kept.jsonl"));
    let refused = complaint(run(&["translate", "-q", &text(&bad), "-o", &kept]));
    assert!(refused.contains("b.jsonl: line 200003, column 1"), "{refused}");
    assert!(!Path::new(&kept).exists());
}

#[test]
fn nothing_that_is_read_is_written() {
    let files = folder("document-clash", &[("a.txt", LINE), ("b/a.txt", LINE)]);
    let (a, b) = (text(&files.join("a.txt")), text(&files.join("b/a.txt")));
    for arguments in [&[&a[..]][..], &[&b, &a]] {
        let folder = text(&files);
        let mut all = vec!["translate", "-q", "-o", &folder];
        all.extend(arguments);
        let refused = complaint(run(&all));
        assert!(refused.contains("a.txt"), "{refused}");
    }
    assert_eq!(fs::read_to_string(files.join("a.txt")).unwrap(), LINE);
    let refused = complaint(run(&["translate", "-q", "--in-place", "Two dogs"]));
    assert!(refused.contains("--in-place"), "{refused}");
    // A text that is no file's name stays a text.
    let mut command = peregrine(&["translate", "Two dogs play in the snow.", "-o"]);
    let out = files.join("out.txt");
    stdout(command.arg(&out).output().unwrap());
    assert_eq!(fs::read_to_string(out).unwrap(), NEW_LINE);
}
