//! Files through the command: bounded memory, every line back, stopping and going on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::common::ignores_interrupts;
use crate::common::nonsense::{Nonsense, assert_fine, lines, odd_lines};

#[test]
#[ignore = "slow: .ci/run runs it"]
fn fifty_thousand_lines_through_sixty_megabytes() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(50_000)).expect("an input");
    assert_fine(&model.run(&["-q", "-i", "in", "-o", "plain", "--set", "batching=shrink"]));
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
#[ignore = "slow: .ci/run runs it"]
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
        assert!(String::from_utf8_lossy(&other.stderr).contains("--beam"));
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

/// A job that was killed after some lines.
fn killed() -> Nonsense {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(50_000)).expect("an input");
    let mut child = model.translate(&["-q", "-i", "in", "-o", "out"]).spawn().expect("the command");
    while std::fs::metadata(model.path("out")).map_or(0, |found| found.len()) == 0
        && child.try_wait().expect("its state").is_none()
    {
        std::thread::yield_now();
    }
    child.kill().expect("killed");
    child.wait().expect("its end");
    model
}

/// Whatever changes the words ends a job that is resumed; what was written stays.
#[test]
fn a_job_is_not_resumed_with_other_words() {
    let model = killed();
    let written = std::fs::read(model.path("out")).expect("an output");
    std::fs::write(model.path("dictionary"), "a w3 1\n").expect("a file");
    let changes: [&[&str]; 9] = [
        &["--set", "cache=float16"],
        &["--set", "hidden=float32"],
        &["--set", "sums=saturating"],
        &["--set", "input-scales=file"],
        &["--replace-unknown"],
        &["--replace-unknown", "dictionary"],
        &["--precision", "int8"],
        &["--set", "isa=portable"],
        &["--split", "paragraph"],
    ];
    for change in changes {
        let output = model.run(&[&["-i", "in", "-o", "out", "--resume"], change].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{change:?}: {said}");
        assert!(said.contains("the job was begun with"), "{change:?}: {said}");
        assert!(std::fs::read(model.path("out")).expect("an output") == written, "{change:?}");
    }
    // A model of the same shape with other weights is another model.
    Nonsense::save(&model.path("model.peregrine"), 4);
    let output = model.run(&["-i", "in", "-o", "out", "--resume"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("a model with the digest"));
}

/// The output is what was written, not only as long.
#[test]
fn a_job_is_not_resumed_behind_other_bytes() {
    let model = killed();
    let mut written = std::fs::read(model.path("out")).expect("an output");
    written[0] ^= 1;
    std::fs::write(model.path("out"), &written).expect("an output");
    let output = model.run(&["-i", "in", "-o", "out", "--resume"]);
    let said = String::from_utf8_lossy(&output.stderr);
    // Nothing of it may have been noted yet; then it is made anew.
    let noted = !output.status.success();
    assert!(!noted || said.contains("are not those that were written"), "{said}");
    assert!(!noted || std::fs::read(model.path("out")).expect("an output") == written);
}

/// A line that does not fit the memory is read, translated and written in parts.
#[test]
#[ignore = "slow: .ci/run runs it"]
fn a_budget_holds_for_any_line() {
    let model = Nonsense::new();
    let words = "w3 w4 w5 w6 w7 ".repeat(120_000);
    std::fs::write(model.path("in"), format!("w2\n{words}\nw3\n")).expect("an input");
    let arguments = ["-i", "in", "-o", "out", "--memory", "60MB", "--stats", "stats", "-t", "2"];
    let output = model.run(&arguments);
    assert_fine(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("line 2 is too long for the model"), "{said}");
    assert_eq!(lines(&model.path("out")), 3);
    let stats = std::fs::read(model.path("stats")).expect("statistics");
    let stats: serde_json::Value = serde_json::from_slice(&stats).expect("JSON");
    assert_eq!(stats["lines"], 3);
    if let Some(peak) = stats["peak_memory_mb"].as_f64() {
        assert!(peak * 1.048_576 <= 60.0, "{peak} MiB");
    }
    let small = model.run(&["--memory", "1MB", "w3"]);
    let said = String::from_utf8_lossy(&small.stderr);
    assert_eq!(small.status.code(), Some(2), "{said}");
    assert!(said.contains("--memory 1MB: the model and one sentence take about"), "{said}");
    assert!(small.stdout.is_empty());
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_complete_prefix() {
    if ignores_interrupts() {
        return;
    }
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
        let output =
            model.run(&["-q", "-i", "in", "--set", &format!("batching={batching}"), "-t", "3"]);
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
