//! Kernels made ahead, for machines that have a GPU and its driver but not the compiler.
//!
//! `kernels/portable.ptx.z` holds PTX for compute capability 8.0 (8.9 for fp8), which every newer
//! device's driver can translate. It does without what later devices have (overlapped kernels, for one), so
//! the compiler is preferred where there is one. Regenerate it after every change to a kernel, with NVRTC
//! where the loader finds it:
//!
//! ```sh
//! cargo test -p peregrine-cuda make_portable_kernels -- --ignored
//! ```
//!
//! Six texts of more than a megabyte have little in them that is new. Whole functions are the
//! same in several precisions: they are stored once, as *pieces*. Loops are unrolled, with other
//! registers each time: a register is written as its distance from the one before it of its kind,
//! so that turns look alike. The rest is left to deflate.
//!
//! Inflated: a line that says what it was made from and by what, a line of piece numbers for each
//! precision, then the pieces, each behind a zero byte.

use std::fmt::Write;
use std::io::Read;

use crate::Error;
use crate::precision::Numbers;

const STORED: &[u8] = include_bytes!("../kernels/portable.ptx.z");

/// The stored kernels of a precision, as the driver takes them.
pub(crate) fn kernels(numbers: Numbers) -> Result<Vec<u8>, Error> {
    let damaged = || Error::Compiler("the kernels made ahead are damaged".to_owned());
    let text = inflate(STORED).ok_or_else(damaged)?;
    let mut ptx = restore(&text, numbers).ok_or_else(damaged)?.into_bytes();
    ptx.push(0);
    Ok(ptx)
}

fn inflate(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    flate2::read::ZlibDecoder::new(bytes).read_to_string(&mut text).ok()?;
    Some(text)
}

fn restore(text: &str, numbers: Numbers) -> Option<String> {
    let mut pieces = text.split('\0');
    let list = 1 + Numbers::ALL.into_iter().position(|other| other == numbers)?;
    let list = pieces.next()?.lines().nth(list)?;
    let pieces: Vec<&str> = pieces.collect();
    let mut ptx = String::new();
    for number in list.split(' ') {
        ptx.push_str(&absolute(pieces.get(number.parse::<usize>().ok()?)?)?);
    }
    Some(ptx)
}

/// Registers by their numbers, which were distances.
fn absolute(piece: &str) -> Option<String> {
    let mut last = Registers::default();
    let mut out = String::with_capacity(2 * piece.len());
    let mut rest = piece;
    while let Some((before, kind, behind)) = next_register(rest) {
        out.push_str(before);
        rest = behind;
        let digits = 1 + behind.get(1..)?.bytes().take_while(u8::is_ascii_digit).count();
        if behind.starts_with(['+', '-']) && digits > 1 {
            let number = last.of(kind);
            *number += behind[..digits].parse::<i64>().ok()?;
            write!(out, "%{kind}{number}").ok()?;
            rest = &behind[digits..];
        } else {
            write!(out, "%{kind}").ok()?;
        }
    }
    out.push_str(rest);
    Some(out)
}

/// What is before the next `%`, the letters behind it, and what follows them.
fn next_register(text: &str) -> Option<(&str, &str, &str)> {
    let (before, behind) = text.split_once('%')?;
    let letters = behind.bytes().take_while(u8::is_ascii_lowercase).count();
    Some((before, &behind[..letters], &behind[letters..]))
}

/// The last register of each kind.
#[derive(Default)]
struct Registers<'a>(Vec<(&'a str, i64)>);

impl<'a> Registers<'a> {
    fn of(&mut self, kind: &'a str) -> &mut i64 {
        let place = self.0.iter().position(|(other, _)| *other == kind).unwrap_or_else(|| {
            self.0.push((kind, 0));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::compiler::{Nvrtc, SOURCE, checksum};
    use crate::device;

    /// Flags for the compiler.
    fn flags(numbers: Numbers) -> Vec<String> {
        let (major, minor) = numbers.needs();
        let mut flags = vec![format!("--gpu-architecture=compute_{major}{minor}")];
        flags.extend(numbers.flags());
        flags
    }

    /// What the stored kernels must have been made from.
    fn origin() -> String {
        let flags: Vec<String> = Numbers::ALL.into_iter().flat_map(flags).collect();
        let all = format!("{SOURCE}{}", flags.join(" "));
        format!("{:016x}", checksum(all.as_bytes()))
    }

    /// The oldest version of the language that has all that is used, so that older drivers take it.
    fn version(numbers: Numbers) -> &'static str {
        if numbers == Numbers::Fp8 { ".version 8.4" } else { ".version 8.0" }
    }

    /// PTX without comments and indents, labels without the number of their function.
    fn plain(ptx: &str, numbers: Numbers) -> String {
        let mut out = String::new();
        for line in ptx.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let words: Vec<&str> = code.split_whitespace().collect();
            let line = words.join(" ");
            match line.starts_with(".version") {
                true => out.push_str(version(numbers)),
                false => out.push_str(&without_function(&line)),
            }
            if !line.is_empty() {
                out.push('\n');
            }
        }
        out
    }

    fn without_function(line: &str) -> String {
        const LABEL: &str = "$L__BB";
        let mut parts = line.split(LABEL);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            out.push_str(LABEL);
            out.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
        out
    }

    fn relative(piece: &str) -> String {
        let mut last = Registers::default();
        let mut out = String::new();
        let mut rest = piece;
        while let Some((before, kind, behind)) = next_register(rest) {
            let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
            out.push_str(before);
            out.push('%');
            out.push_str(kind);
            if let Ok(number) = behind[..digits].parse::<i64>() {
                let last = last.of(kind);
                out.push_str(&format!("{:+}", number - *last));
                *last = number;
            }
            rest = &behind[digits..];
        }
        out + rest
    }

    /// Functions and declarations; put together they are the text again.
    fn split(ptx: &str) -> Vec<String> {
        let mut pieces = vec![String::new()];
        for line in ptx.lines() {
            if [".visible", ".func", ".global", ".extern"].iter().any(|s| line.starts_with(s)) {
                pieces.push(String::new());
            }
            if let Some(piece) = pieces.last_mut() {
                piece.push_str(line);
                piece.push('\n');
            }
        }
        pieces
    }

    /// The text to be stored.
    fn store(texts: &[String], compiler: &str) -> String {
        let mut pieces: Vec<String> = Vec::new();
        let mut out = format!("{} nvrtc {compiler}\n", origin());
        for text in texts {
            let number = |piece: String| {
                let piece = relative(&piece);
                let known = pieces.iter().position(|other| *other == piece);
                known.unwrap_or_else(|| {
                    pieces.push(piece);
                    pieces.len() - 1
                })
            };
            let numbers: Vec<String> =
                split(text).into_iter().map(number).map(|n| n.to_string()).collect();
            out.push_str(&numbers.join(" "));
            out.push('\n');
        }
        pieces.iter().for_each(|piece| {
            out.push('\0');
            out.push_str(piece);
        });
        out
    }

    fn make(nvrtc: &Nvrtc) -> Vec<String> {
        let one = |numbers| {
            let ptx = nvrtc.build(&flags(numbers)).expect("the kernels compile");
            let ptx = String::from_utf8(ptx).expect("text");
            plain(ptx.trim_end_matches('\0'), numbers)
        };
        Numbers::ALL.into_iter().map(one).collect()
    }

    /// Kernels were changed? `cargo test -p peregrine-cuda make_portable_kernels -- --ignored`
    #[test]
    fn portable_kernels_belong_to_the_sources() {
        let text = inflate(STORED).expect("whole");
        assert!(text.starts_with(&origin()), "{}", text.lines().next().unwrap_or_default());
    }

    #[test]
    fn portable_kernels_are_what_the_compiler_makes() {
        let Ok(nvrtc) = Nvrtc::open() else { return eprintln!("skipped: no NVRTC") };
        let version = nvrtc.version_text();
        let old = inflate(STORED).expect("whole");
        if !old.lines().next().is_some_and(|line| line.ends_with(&format!(" nvrtc {version}"))) {
            return eprintln!("skipped: made by another NVRTC than {version}");
        }
        let texts = make(&nvrtc);
        for (numbers, text) in Numbers::ALL.into_iter().zip(&texts) {
            assert!(restore(&old, numbers).as_ref() == Some(text), "{numbers:?}");
        }
        assert!(old == store(&texts, &version), "not stored as it would be now");
    }

    /// Not a test: makes the stored kernels anew.
    #[test]
    #[ignore = "writes kernels/portable.ptx.z, by NVRTC"]
    fn make_portable_kernels() {
        let nvrtc = Nvrtc::open().expect("NVRTC");
        let text = store(&make(&nvrtc), &nvrtc.version_text());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/portable.ptx.z");
        let mut file = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        file.write_all(text.as_bytes()).expect("memory");
        std::fs::write(path, file.finish().expect("memory")).expect(path);
    }

    #[test]
    fn portable_kernels_are_all_there() {
        for numbers in Numbers::ALL {
            let ptx = String::from_utf8(kernels(numbers).expect("whole")).expect("text");
            let (major, minor) = numbers.needs();
            let head = format!("\n{}\n.target sm_{major}{minor}\n", version(numbers));
            assert!(format!("\n{ptx}").contains(&head), "{numbers:?}");
            assert!(ptx.ends_with("}\n\0"), "{numbers:?}");
            for kernel in device::kernels(numbers) {
                let entries = ptx.matches(&format!(".entry {kernel}(")).count();
                assert_eq!(entries, 1, "{numbers:?} {kernel}");
            }
        }
    }

    #[test]
    fn registers_come_back() {
        let text = ".reg .b32 %r<9>;\n@%p1 ld.f32 %f12, [%rd6+41];\nmov %r3, %tid.x; mov %r2, %r3;";
        let short = relative(text);
        assert!(short.contains("[%rd+6+41]") && short.contains("mov %r-1, %r+1;"), "{short}");
        assert_eq!(absolute(&short).as_deref(), Some(text));
    }

    #[test]
    fn damage_is_noticed() {
        assert_eq!(inflate(&STORED[..STORED.len() / 2]), None);
        assert_eq!(restore("origin\n0 7\n\0piece", Numbers::ALL[0]), None);
        assert_eq!(restore("origin\n\0piece", Numbers::ALL[1]), None);
    }
}
