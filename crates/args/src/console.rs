//! Standard output and standard error, for reports and remarks.
//!
//! `println!` and `eprintln!` panic when the stream is closed or full, which would end a job
//! because of a remark. Here a remark that cannot be written is dropped, and a report that cannot
//! be written ends the command. Clippy refuses the macros of the standard library in this crate.
//! Translations are written by the command's own `Output` instead.

use std::fmt;
use std::io::{self, Write};

/// The exit code for unusable arguments, models and files.
pub const BAD_INPUT: u8 = 2;

/// Writes a line to standard error, with the program's name in front. Errors are ignored.
pub fn write_remark(message: fmt::Arguments<'_>) {
    // One write, so that lines of several threads do not mix.
    let line = format!("peregrine: {message}\n");
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Writes to standard output. If that fails the process ends, with success if the reader has closed
/// the pipe.
pub fn print(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        drop(out);
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        write_remark(format_args!("standard output: {}", in_words(&error.to_string())));
        std::process::exit(i32::from(BAD_INPUT));
    }
}

/// A message of the operating system without its error number.
pub fn in_words(message: &str) -> String {
    let mut rest = message;
    let mut words = String::new();
    while let Some(start) = rest.find(" (os error ") {
        let Some(length) = rest[start..].find(')') else { break };
        words.push_str(&rest[..start]);
        rest = &rest[start + length + 1..];
    }
    words + rest
}

/// A remark on standard error: `peregrine: …`.
#[macro_export]
macro_rules! remark {
    ($($part:tt)*) => { $crate::console::write_remark(format_args!($($part)*)) };
}

/// A line on standard output.
#[macro_export]
macro_rules! show {
    ($($part:tt)*) => {
        $crate::console::print(format_args!("{}\n", format_args!($($part)*)))
    };
}

pub use {remark, show};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_system_are_left_out() {
        let missing = io::Error::from_raw_os_error(2).to_string();
        assert_eq!(in_words(&missing), "No such file or directory");
        assert_eq!(in_words("a (os error 2): b (os error 13), c"), "a: b, c");
        assert_eq!(in_words("a (os error "), "a (os error ");
    }
}
