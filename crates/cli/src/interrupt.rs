//! Ctrl-C, and the signals that end a process politely.

use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a job that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;

/// That a job was interrupted; everything worth saying has been said.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Whether the user wants us to stop. From the first call on, Ctrl-C sets it instead of ending the
/// process; a second Ctrl-C ends it after all.
pub(crate) fn stop_flag() -> &'static AtomicBool {
    static STOP: AtomicBool = AtomicBool::new(false);
    static WATCHED: std::sync::Once = std::sync::Once::new();
    WATCHED.call_once(|| {
        // Without a handler Ctrl-C ends the process as ever, which is no reason not to translate.
        let _ = ctrlc::set_handler(|| {
            if STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(INTERRUPTED));
            }
        });
    });
    &STOP
}
