//! Kernels run on the processor, by `search.cpp`, `output.cpp` and `attention.cpp`, where there is a C++ compiler.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::path::Path;
use std::process::Command;

#[test]
fn beams_and_lists_are_right() {
    run("search", &["search.cu"]);
}

/// Rows that ask for different things have the answers they have alone.
#[test]
fn best_words_are_right() {
    run("output", &["output.cu", "logits.cu"]);
}

/// A block a head of a row gives the bits of a block a row.
#[test]
fn attention_has_the_same_bits_however_it_is_divided() {
    run("attention", &["attention.cu", "attention_heads.cu"]);
}

/// Compiles a program with these kernels, and runs it.
fn run(name: &str, kernels: &[&str]) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut version = Command::new("c++");
    version.arg("--version");
    if !succeeds(version) {
        eprintln!("no C++ compiler: not tried");
        return;
    }
    for kernel in kernels {
        let text = std::fs::read_to_string(sources.join("kernels").join(kernel)).expect(kernel);
        // Memory whose size the host says is that of the program.
        let text = text.replace("extern __shared__", "extern");
        std::fs::write(folder.join(kernel), text).expect(kernel);
    }
    let program = folder.join(name);
    let source = sources.join(format!("tests/{name}.cpp"));
    let mut compile = Command::new("c++");
    compile.args(["-std=c++17", "-O1", "-I"]).arg(&folder).arg("-o").arg(&program).arg(source);
    assert!(succeeds(compile), "the kernels compile");
    let output = Command::new(&program).output().expect("a program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn succeeds(mut command: Command) -> bool {
    command.stdin(std::process::Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}
