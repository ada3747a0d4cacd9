//! What a build without the features `cuda` and `builtin` says where a whole build computes.
//!
//! `cargo test -p peregrine-cli --no-default-features --test builds` runs it for the small one.

#[path = "cli/common/mod.rs"]
#[expect(dead_code, reason = "for many tests, of which this is one")]
mod common;

use common::{complaint, model, run, stdout};

const NO_CUDA: &str = "this build has no CUDA backend";

#[test]
fn a_model_that_is_named_is_translated_with() {
    let arguments = ["translate", "--device", "cpu", "-m", &model(), "The black cat sleeps."];
    let expected = stdout(run(&arguments));
    assert!(!expected.trim().is_empty());
    let auto = ["translate", "-m", &model(), "The black cat sleeps."];
    assert_eq!(stdout(run(&auto)), expected);
}

#[test]
fn a_command_without_a_model_has_one_or_says_so() {
    let output = run(&["translate", "--device", "cpu", "Two dogs play in the snow."]);
    if cfg!(feature = "builtin") {
        assert_eq!(stdout(output), "Dois cães brincam na neve.\n");
    } else {
        let said = complaint(output);
        assert!(said.contains("this build has no built-in model: name one by -m"), "{said}");
    }
    let help = stdout(run(&["translate", "--help"]));
    assert_eq!(help.contains("built-in"), cfg!(feature = "builtin"), "{help}");
}

/// Of a whole build, that nothing is said to be missing from it: this machine may have a GPU or none.
#[test]
fn a_gpu_is_looked_for_or_said_to_be_out_of_reach() {
    let model = model();
    let text = "The black cat sleeps.";
    for arguments in [
        &["translate", "-m", &model, "--device", "cuda:99", text][..],
        &["translate", "-m", &model, "--precision", "tf32", "--device", "cuda:99", text],
        &["translate", "-m", &model, "--precision", "tf32", "--device", "cpu", text],
        &["selftest", "--device", "cuda:99", "--quick", "-m", &model],
        &["bench", "gpu", "--device", "cuda:99", "--shapes", "student", "--repeat", "1"],
    ] {
        let output = run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.contains(NO_CUDA), cfg!(not(feature = "cuda")), "{arguments:?}: {said}");
    }
    let report = stdout(run(&["doctor", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert!(report["instructions_used"].is_string(), "{report}");
    let missing = report["gpus_missing"].as_str().unwrap_or_default();
    assert_eq!(missing == NO_CUDA, cfg!(not(feature = "cuda")), "{report}");
}
