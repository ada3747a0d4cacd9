//! The kernels of `kernels/search.cu`, run on the processor by `search.cpp`, where there is a C++ compiler.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::path::Path;
use std::process::Command;

#[test]
fn races_and_lists_are_right() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/search.cpp");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("search");
    let mut version = Command::new("c++");
    version.arg("--version");
    if !succeeds(version) {
        eprintln!("no C++ compiler: not tried");
        return;
    }
    let mut compile = Command::new("c++");
    compile.args(["-std=c++17", "-O1", "-o"]).arg(&program).arg(&source);
    assert!(succeeds(compile), "the kernels compile");
    let output = Command::new(&program).output().expect("a program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

fn succeeds(mut command: Command) -> bool {
    command.stdin(std::process::Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}
