//! Ordinary misfortune: streams that are closed, full or slow, signals at any time, pipes nobody opens,
//! disks that are full. Whatever happens, the exit code is one of those documented, nothing panics, an
//! output is a prefix of the right one, and `--resume` goes on to the same bytes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::nonsense::{Nonsense, assert_fine, odd_lines};
use crate::common::{ignores_interrupts, peregrine, scratch, scratch_with};

/// A small generator of numbers that are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The code a shell would show: 128 and the number of the signal that ended it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().expect("an end"))
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
}

/// Waits for the end; a process that does not end is a failure.
#[track_caller]
fn wait(child: &mut Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("its state") {
            return status;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How a stream is made that cannot be written to.
type Bad = fn() -> Stdio;

/// A pipe whose reader is gone.
fn broken() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// A device that has no room.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").expect("the device").into()
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

#[test]
fn nobody_needs_to_read_remarks() {
    let model = Nonsense::new();
    // Every line too long for the model is worth a remark.
    let text = [odd_lines(300), "w3 w4 ".repeat(3000).into_bytes(), b"\n".to_vec()].concat();
    std::fs::write(model.path("in"), text).expect("an input");
    assert_fine(&model.run(&["-i", "in", "-o", "right"]));
    let right = std::fs::read(model.path("right")).expect("an output");
    let streams: [(&str, Bad); 2] = [("broken", broken), ("full", full)];
    for (name, stream) in streams {
        let mut command = model.translate(&["-i", "in", "-o", name]);
        let status = command.stderr(stream()).stdout(stream()).status().expect("the command");
        assert_eq!(code(status), 0, "{name}");
        assert!(std::fs::read(model.path(name)).expect("an output") == right, "{name}");
    }
    let closed = "exec \"$0\" translate -m model.peregrine -i in -o closed 2>&- >&- <&-";
    let mut command = Command::new("sh");
    command.args(["-c", closed, env!("CARGO_BIN_EXE_peregrine")]);
    let status = command.current_dir(model.directory.path()).status().expect("the command");
    assert_eq!(code(status), 0);
    assert!(std::fs::read(model.path("closed")).expect("an output") == right);
}

/// Commands that write a file do so whoever reads their remarks; those that print end without panic.
#[test]
fn no_command_dies_of_its_streams() {
    let model = crate::common::model();
    let source = scratch_with("chaos.en", b"A dog.\nA cat sleeps.\n");
    let target = scratch_with("chaos.de", b"Ein Hund.\nEine Katze.\n");
    let table = scratch("chaos-table.txt").display().to_string();
    let converted = scratch("chaos.peregrine").display().to_string();
    let tuned = scratch("chaos-tuned.peregrine").display().to_string();
    assert_fine(&crate::common::run(&["convert", &model, "-o", &tuned, "--force"]));
    let build = ["shortlist", "build", "-m", &model, &source, &target, "-o", &table];
    let commands: [&[&str]; 13] = [
        &build,
        &["convert", &model, "-o", &converted],
        &["inspect", &model],
        &["inspect", &model, "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["bench", "-m", &model, "--source", &source, "--repeat", "1"],
        &["shortlist", "inspect", "-m", &model, &table],
        &["shortlist", "check", "-m", &model, &table, &source, &target],
        &["score", "-m", &model, &source, &target],
        &["tune", "-m", &tuned, "--source", &source],
        &["make-model", "--list"],
        &["translate", "--help"],
    ];
    for arguments in commands {
        let _ = std::fs::remove_file(&converted);
        let streams: [(Bad, [i32; 2]); 2] = [(broken, [0, 0]), (full, [0, 2])];
        for (stream, codes) in streams {
            let _ = std::fs::remove_file(&converted);
            let output = peregrine(arguments).stdout(stream()).output().expect("the command");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(codes.contains(&code(output.status)), "{arguments:?}: {said}");
            assert!(!said.contains("panicked"), "{arguments:?}: {said}");
            let _ = std::fs::remove_file(&converted);
            let status = peregrine(arguments).stderr(stream()).status().expect("the command");
            assert_eq!(code(status), 0, "{arguments:?}");
        }
        if arguments[0] == "convert" {
            assert!(Path::new(&converted).exists());
        }
    }
}

/// Text that comes slowly, to somebody who reads slowly, is translated like any other.
#[test]
fn slow_streams_change_nothing() {
    let model = Nonsense::new();
    let text = odd_lines(300);
    std::fs::write(model.path("in"), &text).expect("an input");
    let right = model.run(&["-q", "-i", "in"]).stdout;
    let mut command = model.translate(&["-q", "-t", "2"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        for chunk in text.chunks(97) {
            stdin.write_all(chunk).expect("written");
            std::thread::sleep(Duration::from_millis(3));
        }
    });
    let mut stdout = child.stdout.take().expect("a pipe");
    let (mut written, mut buffer) = (Vec::new(), [0; 61]);
    loop {
        let read = stdout.read(&mut buffer).expect("read");
        if read == 0 {
            break;
        }
        written.extend_from_slice(&buffer[..read]);
        std::thread::sleep(Duration::from_micros(500));
    }
    writer.join().expect("written");
    assert_eq!(code(wait(&mut child)), 0);
    assert!(written == right);
}

/// The job of these tests: long enough to be interrupted.
fn begun(model: &Nonsense, output: &str, more: &[&str]) -> Child {
    let arguments = [&["-q", "-i", "in", "-o", output], more].concat();
    model.translate(&arguments).stderr(Stdio::piped()).spawn().expect("the command")
}

#[test]
#[ignore = "slow: .ci/run runs it"]
fn signals_at_any_time_lose_nothing() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(20_000)).expect("an input");
    let begin = Instant::now();
    assert_fine(&model.run(&["-q", "-i", "in", "-o", "right"]));
    let right = std::fs::read(model.path("right")).expect("an output");
    let whole = begin.elapsed().as_micros() as u64;
    let mut random = Random(42);
    let ways: [&[&str]; 4] =
        [&[], &["-t", "2"], &["--set", "batching=top-up"], &["--batch-sentences", "7", "-t", "3"]];
    for round in 0..16 {
        let way = ways[random.below(4) as usize];
        let signal = ["INT", "TERM", "HUP", "KILL"][random.below(4) as usize];
        let output = format!("out{round}");
        let mut child = begun(&model, &output, way);
        std::thread::sleep(Duration::from_micros(random.below(whole)));
        // It may have ended.
        let _ = Command::new("kill")
            .args([&format!("-{signal}"), &child.id().to_string()])
            .stderr(Stdio::null())
            .status();
        let expected = 128
            + ["HUP", "INT", "KILL", "TERM"]
                .iter()
                .zip([1, 2, 9, 15])
                .find_map(|(name, number)| (*name == signal).then_some(number))
                .expect("a signal");
        let ended = code(wait(&mut child));
        assert!(ended == 0 || ended == expected, "round {round}, {signal}: exit code {ended}");
        let written = std::fs::read(model.path(&output)).unwrap_or_default();
        assert!(right.starts_with(&written), "round {round}, {signal}: no prefix");
        let way = ways[random.below(4) as usize];
        let again = model.run(&[&["-q", "-i", "in", "-o", &output, "--resume"], way].concat());
        assert_fine(&again);
        assert!(std::fs::read(model.path(&output)).expect("an output") == right, "round {round}");
        assert!(!model.path(&format!("{output}.resume")).exists(), "round {round}");
    }
}

#[test]
fn a_process_that_waits_for_a_pipe_can_be_ended() {
    let model = Nonsense::new();
    fifo(&model.path("fifo"));
    std::fs::write(model.path("in"), odd_lines(20)).expect("an input");
    std::fs::write(model.path("out"), odd_lines(20)).expect("an output");
    let waiting: [&[&str]; 3] =
        [&["-i", "fifo"], &["-i", "in", "-o", "fifo"], &["-i", "in", "--prefix", "fifo"]];
    for arguments in waiting {
        let signals = [("TERM", 143), ("INT", 130)];
        for (signal, expected) in &signals[..if ignores_interrupts() { 1 } else { 2 }] {
            let mut child = model.translate(arguments).stdout(Stdio::null()).spawn().expect("it");
            std::thread::sleep(Duration::from_millis(300));
            send(&child, signal);
            assert_eq!(code(wait(&mut child)), *expected, "{arguments:?}");
        }
    }
    // What cannot be read again cannot be resumed.
    let output = model.run(&["-i", "fifo", "-o", "out", "--resume"]);
    assert_eq!(code(output.status), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("must be files"));
}

/// What comes through a pipe (`--prefix <(command)`) is read once.
#[test]
fn prefixes_may_come_through_a_pipe() {
    let model = Nonsense::new();
    let prefixes = "w5\n\nw7 w8\n";
    std::fs::write(model.path("in"), "w2 w3\nw4\nw6\n").expect("an input");
    std::fs::write(model.path("prefixes"), prefixes).expect("a file");
    assert_fine(&model.run(&["-i", "in", "-o", "right", "--prefix", "prefixes"]));
    fifo(&model.path("fifo"));
    let path = model.path("fifo");
    let writer = std::thread::spawn(move || std::fs::write(path, prefixes));
    let mut child = model
        .translate(&["-i", "in", "-o", "out", "--prefix", "fifo"])
        .stderr(Stdio::null())
        .spawn()
        .expect("the command");
    assert_eq!(code(wait(&mut child)), 0);
    writer.join().expect("written").expect("written");
    let read = |name: &str| std::fs::read(model.path(name)).expect("an output");
    assert!(read("out") == read("right"));
}

#[test]
fn a_reader_that_does_not_read_cannot_hold_it() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(20_000)).expect("an input");
    let mut child =
        model.translate(&["-q", "-i", "in"]).stdout(Stdio::piped()).spawn().expect("it");
    // The pipe is full, and nobody reads.
    std::thread::sleep(Duration::from_millis(500));
    send(&child, "TERM");
    assert_eq!(code(wait(&mut child)), 143);
    // What it wrote is a prefix.
    let mut written = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut written).expect("read");
    let right = model.run(&["-q", "-i", "in"]).stdout;
    assert!(right.starts_with(&written));
}

/// `nohup` starts a process with SIGHUP ignored.
#[test]
fn an_ignored_signal_stays_ignored() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(20_000)).expect("an input");
    let script = "trap '' HUP; exec \"$0\" translate -q -m model.peregrine -i in -o out";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_peregrine")]);
    let mut child = command.current_dir(model.directory.path()).spawn().expect("it");
    while !model.path("out.resume").exists() && child.try_wait().expect("its state").is_none() {
        std::thread::yield_now();
    }
    let _ = Command::new("kill").args(["-HUP", &child.id().to_string()]).status();
    assert_eq!(code(wait(&mut child)), 0);
}

#[test]
fn a_device_without_room_is_named() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(2000)).expect("an input");
    let output = model.run(&["-q", "-i", "in", "-o", "/dev/full"]);
    assert_eq!(code(output.status), 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("/dev/full: No space left on device"), "{said}");
    let output = model.translate(&["-q", "-i", "in"]).stdout(full()).output().expect("it");
    assert_eq!(code(output.status), 2);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("standard output: No space left on device"), "{said}");
}

/// A small file system in memory, where the user may mount one.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn new(path: &'a Path, size: &str) -> Option<Disk<'a>> {
        std::fs::create_dir(path).expect("a folder");
        let size = format!("size={size}");
        let mounted = Disk::mount(&["-t", "tmpfs", "-o", &size, "tmpfs"], path);
        if !mounted.status.success() {
            println!("skipped: no file system can be mounted here");
            return None;
        }
        Some(Disk(path))
    }

    fn mount(arguments: &[&str], path: &Path) -> Output {
        Command::new("mount").args(arguments).arg(path).output().expect("mount")
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_no_end() {
    let model = Nonsense::new();
    std::fs::write(model.path("in"), odd_lines(20_000)).expect("an input");
    assert_fine(&model.run(&["-q", "-i", "in", "-o", "right"]));
    let right = std::fs::read(model.path("right")).expect("an output");
    let folder = model.path("disk");
    let Some(disk) = Disk::new(&folder, "64k") else { return };
    let output = model.run(&["-q", "-i", "in", "-o", "disk/out"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output.status), 2, "{said}");
    assert!(said.contains("disk/out: No space left on device"), "{said}");
    let written = std::fs::read(model.path("disk/out")).expect("an output");
    assert!(right.starts_with(&written) && !written.is_empty());
    // A model that does not fit is not there at all, nor is what was made of it.
    let converted = peregrine(&["convert", "model.peregrine", "-o", "disk/model.peregrine"])
        .current_dir(model.directory.path())
        .output()
        .expect("it");
    assert_eq!(code(converted.status), 2);
    let said = String::from_utf8_lossy(&converted.stderr);
    assert!(said.contains("disk/model.peregrine") && said.contains("No space left"), "{said}");
    assert!(!model.path("disk/model.peregrine").exists());
    // With room the job goes on.
    assert!(Disk::mount(&["-o", "remount,size=64m"], disk.0).status.success());
    assert_fine(&model.run(&["-q", "-i", "in", "-o", "disk/out", "--resume"]));
    assert!(std::fs::read(model.path("disk/out")).expect("an output") == right);
}
