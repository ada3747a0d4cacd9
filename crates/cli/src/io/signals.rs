//! Signals that ask a process to end: SIGINT (Ctrl-C), SIGTERM and SIGHUP.
//!
//! A job that is writing ends after the step being computed, and what is complete stays. Before that
//! there is nothing to keep, and it ends at once. The exit code is 128 plus the signal's number, as
//! shells have it: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// How long a job may take to end by itself. Longer means that whoever reads its output does not.
const GRACE: Duration = Duration::from_secs(5);

/// That a job was interrupted; everything worth saying has been said.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

static STOP: AtomicBool = AtomicBool::new(false);
static WORKING: AtomicBool = AtomicBool::new(false);
/// The signal that came first; 0 is none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Begins to watch for signals: the first one ends the process.
pub(crate) fn watch() {
    #[cfg(unix)]
    unix::watch();
}

/// From now on the first signal only sets the flag that is returned; a second one ends the process.
pub(crate) fn begin_work() -> &'static AtomicBool {
    WORKING.store(true, Ordering::SeqCst);
    &STOP
}

/// The exit code of a job that was interrupted.
pub(crate) fn exit_code() -> u8 {
    let signal = SIGNAL.load(Ordering::SeqCst);
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

fn came(signal: i32) {
    let first = SIGNAL.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    STOP.store(true, Ordering::SeqCst);
    if !first || !WORKING.load(Ordering::SeqCst) {
        std::process::exit(i32::from(exit_code()));
    }
    std::thread::spawn(|| {
        std::thread::sleep(GRACE);
        std::process::exit(i32::from(exit_code()));
    });
}

#[cfg(unix)]
mod unix {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    pub(super) fn watch() {
        let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(signal));
        // Without a watcher signals end the process as ever, which is no reason not to translate.
        let Ok(mut signals) = Signals::new(wanted) else { return };
        std::thread::spawn(move || signals.forever().for_each(super::came));
    }

    /// Whether the process was started with the signal ignored, as `nohup` does with SIGHUP: then it
    /// shall not end by it. Where the system does not tell, it was not.
    fn is_ignored(signal: i32) -> bool {
        let ignored = || -> Option<u64> {
            let status = std::fs::read_to_string("/proc/self/status").ok()?;
            let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        };
        ignored().is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
    }
}
