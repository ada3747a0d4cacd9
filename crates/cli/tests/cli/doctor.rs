//! `doctor` says what was looked for, whatever the machine has.

use crate::common::{peregrine, stdout};

#[test]
fn a_machine_without_a_compiler_of_kernels_can_be_had() {
    let mut command = peregrine(&["doctor", "--json"]);
    command.env("PEREGRINE_NVRTC", "there-is-none");
    let report = stdout(command.output().unwrap());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["kernel_compiler"].is_null());
    let missing = report["kernel_compiler_missing"].as_str().unwrap();
    assert!(missing.contains("looked for there-is-none:"), "{missing}");
}
