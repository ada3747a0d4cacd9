//! Files through the command: bounded memory, every line back, stopping and going on.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use peregrine::model::{
    Architecture, Autoregression, Member, Transformer, TransformerSize, marian_transformer,
    random_transformer, save,
};
use peregrine::{Dialect, Model, Search};
use peregrine_text::Tokenizer;

/// A model that speaks nonsense, fast, in a directory of its own.
struct Nonsense {
    directory: tempfile::TempDir,
}

impl Nonsense {
    fn new() -> Nonsense {
        const WORDS: usize = 200;
        let size = TransformerSize {
            width: 16,
            inner: 16,
            heads: 2,
            encoder_layers: 1,
            decoder_layers: 1,
            words: WORDS,
        };
        let autoregression = Autoregression::Ssru { layer_norm: false, projection: false };
        let description = Transformer { autoregression, ..marian_transformer(size) };
        let words: String = (2..WORDS).map(|i| format!("w{i}\n")).collect();
        let vocabulary = format!("</s>\n<unk>\n{words}");
        let tokenizer = Tokenizer::words("vocab.txt", vocabulary.as_bytes().into(), None);
        let tokenizer = Arc::new(tokenizer.expect("a list of words"));
        let weights = random_transformer(&description, 3);
        let architecture = Architecture::Transformer(description);
        let search =
            Search { beam: 1, max_length_factor: Some(1.0), ..Search::of(Dialect::Marian) };
        let model = Model {
            dialect: Dialect::Marian,
            members: vec![Member { path: "nonsense".into(), architecture, weights }],
            member_weights: vec![1.0],
            source: Arc::clone(&tokenizer),
            target: tokenizer,
            search,
            shortlist: None,
            notes: Vec::new(),
        };
        let directory = tempfile::tempdir().expect("a directory");
        save(&model, &directory.path().join("model.peregrine"), None).expect("a saved model");
        Nonsense { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn translate(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
        command.arg("translate").arg("-m").arg(self.path("model.peregrine"));
        command.args(arguments).current_dir(self.directory.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.translate(arguments).output().expect("the command")
    }
}

/// Lines of every kind, always the same, some of them no UTF-8.
fn odd_lines(count: u32) -> Vec<u8> {
    let mut text = Vec::new();
    for i in 0..count {
        match i % 97 {
            0 => {}
            1 => text.extend(b"w5 \xff\xfe w7 \xc3"),
            2 => text.extend(b"  \t "),
            3 if i % 9700 == 3 => text.extend("w11 w12 w13 ".repeat(2_000).bytes()),
            _ => {
                for j in 0..1 + (i * 7 + i / 13) % 19 {
                    text.extend(format!("w{} ", 2 + (i + j * 31) % 210).bytes());
                }
            }
        }
        text.extend(if i % 50 == 7 { b"\r\n".as_slice() } else { b"\n" });
    }
    text
}

fn lines(path: &Path) -> usize {
    std::fs::read(path).expect("a file").iter().filter(|&&byte| byte == b'\n').count()
}

#[track_caller]
fn assert_fine(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn fifty_thousand_lines_through_sixty_megabytes() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(50_000)).expect("an input");
    assert_fine(&model.run(&["-q", "-i", "in", "-o", "plain", "--batching", "shrink"]));
    let arguments =
        ["-q", "-i", "in", "-o", "out", "--memory", "60MB", "--stats", "stats", "-t", "2"];
    assert_fine(&model.run(&arguments));
    assert_eq!(lines(&model.path("out")), 50_000);
    assert!(!model.path("out.resume").exists(), "a finished job has no checkpoint");
    let read = |name| std::fs::read(model.path(name)).expect("an output");
    assert!(read("out") == read("plain"), "the budget changed the words");
    let stats: serde_json::Value = serde_json::from_slice(&read("stats")).expect("JSON");
    assert_eq!(stats["lines"], 50_000);
    if let Some(peak) = stats["peak_memory_mb"].as_f64() {
        assert!(peak * 1.048_576 <= 60.0, "{peak} MiB");
    }
}

#[test]
fn a_killed_job_goes_on_to_the_same_bytes() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(50_000)).expect("an input");
    assert_fine(&model.run(&["-q", "-i", "in", "-o", "whole"]));
    let mut child: Child =
        model.translate(&["-q", "-i", "in", "-o", "out"]).spawn().expect("the command");
    while !model.path("out.resume").exists() && child.try_wait().expect("its state").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("killed");
    child.wait().expect("its end");
    // As if it had been killed in the middle of a line.
    let output = std::fs::OpenOptions::new().append(true).open(model.path("out"));
    output.and_then(|mut file| file.write_all(b"half a li")).expect("appended");
    let whole = std::fs::read(model.path("whole")).expect("an output");
    if model.path("out.resume").exists() {
        // Another beam is another job.
        let other = model.run(&["-q", "-i", "in", "-o", "out", "--resume", "--beam", "2"]);
        assert_eq!(other.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&other.stderr).contains("other options"));
        assert_fine(&model.run(&["-q", "-i", "in", "-o", "out", "--resume"]));
        assert!(std::fs::read(model.path("out")).expect("an output") == whole);
    }
    // Nothing is left to do.
    let again = model.run(&["-i", "in", "-o", "whole", "--resume"]);
    assert_fine(&again);
    assert!(String::from_utf8_lossy(&again.stderr).contains("already complete"));
    assert!(std::fs::read(model.path("whole")).expect("an output") == whole);
}

#[test]
fn a_changed_input_is_not_gone_on_with() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), "w2 w3\nw4 w5\nw6\n").expect("an input");
    std::fs::write(model.path("out"), "w9\nhalf").expect("an output");
    // No checkpoint: nothing is known of the output.
    let output = model.run(&["-i", "in", "-o", "out", "--resume"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no checkpoint"));
    for (name, checkpoint) in [("broken", "{"), ("foreign", r#"{"peregrine_checkpoint": 7}"#)] {
        std::fs::write(model.path("out.resume"), checkpoint).expect("a checkpoint");
        let output = model.run(&["-i", "in", "-o", "out", "--resume"]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("not a checkpoint"), "{name}");
    }
    // Without --resume the job begins anew.
    assert_fine(&model.run(&["-i", "in", "-o", "out"]));
    assert_eq!(lines(&model.path("out")), 3);
    assert!(!model.path("out.resume").exists());
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_complete_prefix() {
    let model = Nonsense::new();
    let mut child = model
        .translate(&[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    input.write_all(b"w2 w3\nw4\n").expect("written");
    // Answers come although the input has not ended.
    let mut line = String::new();
    for _ in 0..2 {
        assert!(output.read_line(&mut line).expect("read") > 0);
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill").success());
    // The pipe is still open: only the signal can end it.
    let status = child.wait().expect("its end");
    assert_eq!(status.code(), Some(130));
    let mut said = String::new();
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    stderr.lines().for_each(|line| said.push_str(&line.expect("text")));
    assert!(said.contains("stopped: 2 lines"), "{said}");
    drop(input);
}

#[test]
fn every_policy_and_split_gives_a_line_for_a_line() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(300)).expect("an input");
    let mut outputs = Vec::new();
    for batching in ["naive", "shrink", "sorted", "top-up", "auto"] {
        let output = model.run(&["-q", "-i", "in", "--batching", batching, "-t", "3"]);
        assert_fine(&output);
        outputs.push(output.stdout);
    }
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
    for split in ["none", "sentence", "paragraph"] {
        let output = model.run(&["-q", "-i", "in", "--split", split]);
        assert_eq!(output.stdout.iter().filter(|&&byte| byte == b'\n').count(), 300, "{split}");
    }
}

#[test]
fn figures_are_drawn() {
    let model = Nonsense::new();
    std::fs::write(model.path("text.en"), odd_lines(40)).expect("an input");
    let lengths: String = (0..40).map(|i| format!("{}\n", 1 + i % 9)).collect();
    std::fs::write(model.path("lengths"), lengths).expect("lengths");
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(["bench", "batching", "-m", "model.peregrine", "--source", "text.en"]);
    command.args(["--lengths", "lengths", "--rounds", "1", "--batch-sizes", "1,8"]);
    command.args(["--plots", "plots", "--json", "numbers"]).current_dir(model.directory.path());
    assert_fine(&command.output().expect("the command"));
    for name in ["step-time", "occupancy", "step-cost", "batch-size"] {
        let svg = std::fs::read_to_string(model.path(&format!("plots/{name}-text.svg")));
        let svg = svg.expect("a plot");
        roxmltree::Document::parse(&svg).expect("well-formed XML");
    }
    let numbers = std::fs::read(model.path("numbers")).expect("numbers");
    let numbers: serde_json::Value = serde_json::from_slice(&numbers).expect("JSON");
    assert!(numbers["text"]["policies"]["auto"]["tokens_per_second"].is_number());
}
