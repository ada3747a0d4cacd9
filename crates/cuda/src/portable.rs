//! Precompiled kernels, for machines that have a GPU and its driver but not NVRTC.
//!
//! `kernels/portable.ptx.z` holds PTX for compute capability 8.0 (8.9 for fp8), which the driver of every newer
//! device can translate. It lacks what later devices have (programmatic dependent launch, for one), so NVRTC is
//! preferred where there is one. Regenerate it after every change to a kernel, with NVRTC where the loader finds it:
//!
//! ```sh
//! cargo test -p peregrine-cuda make_portable_kernels -- --ignored
//! ```
//!
//! The six texts, of more than a megabyte each, are redundant. Functions that are the same in several precisions are
//! stored once, as *pieces*. Unrolled loops differ in their registers only: a line is stored as its *form*, without the
//! numbers of registers, and these are stored apart, each as its distance from the last one of its kind. Deflate does
//! the rest.
//!
//! ```text
//! a line with the checksum of the sources and the version of NVRTC
//! a line of piece numbers for each precision
//! a line with the number of lines of each piece
//! 0  forms, one a line; a # stands for a register's number
//! 0  the form of each line, two bytes, low one first; then all distances, seven bits a byte, low ones first
//! ```

use std::fmt::Write;
use std::io::Read;

use crate::Error;
use crate::precision::GpuPrecision;

const STORED: &[u8] = include_bytes!("../kernels/portable.ptx.z");

/// The stored PTX of a precision, terminated by zero as the driver needs it.
pub(crate) fn kernels(precision: GpuPrecision) -> Result<Vec<u8>, Error> {
    let damaged = || Error::Compiler("the precompiled kernels are damaged".to_owned());
    let bytes = inflate(STORED).ok_or_else(damaged)?;
    let mut ptx = restore(&bytes, precision).ok_or_else(damaged)?.into_bytes();
    ptx.push(0);
    Ok(ptx)
}

fn inflate(deflated: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(deflated).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn restore(bytes: &[u8], precision: GpuPrecision) -> Option<String> {
    let mut parts = bytes.splitn(3, |&byte| byte == 0);
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (head, forms) = (text()?, text()?);
    let rest = parts.next()?;
    let lists: Vec<&str> = head.lines().skip(1).collect();
    let list = |line: usize| -> Option<Vec<usize>> {
        lists.get(line)?.split(' ').map(|number| number.parse().ok()).collect()
    };
    let lengths = list(GpuPrecision::ALL.len())?;
    let lines: usize = lengths.iter().sum();
    let (form_of, mut distances) = rest.split_at_checked(2 * lines)?;
    let forms: Vec<&str> = forms.lines().collect();
    let mut form_of = form_of.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]]));
    let mut pieces = Vec::new();
    for length in lengths {
        let (mut last, mut piece) = (Registers::default(), String::new());
        for _ in 0..length {
            let form = forms.get(usize::from(form_of.next()?))?;
            fill(form, &mut last, &mut distances, &mut piece)?;
        }
        pieces.push(piece);
    }
    let wanted = list(GpuPrecision::ALL.into_iter().position(|other| other == precision)?)?;
    wanted.into_iter().map(|piece| pieces.get(piece).map(String::as_str)).collect()
}

/// Appends the line of a form, with the numbers of its registers.
fn fill<'a>(
    form: &'a str,
    last: &mut Registers<'a>,
    distances: &mut &[u8],
    out: &mut String,
) -> Option<()> {
    let mut parts = form.split('#').peekable();
    while let Some(part) = parts.next() {
        out.push_str(part);
        if parts.peek().is_some() {
            let number = last.of(kind(part));
            *number += distance(distances)?;
            write!(out, "{number}").ok()?;
        }
    }
    out.push('\n');
    Some(())
}

/// The kind of the register that follows: the letters at the end of a form's part.
fn kind(part: &str) -> &str {
    &part[part.trim_end_matches(|c: char| c.is_ascii_lowercase()).len()..]
}

/// Reads a distance: base-128 digits, zigzag-encoded.
fn distance(bytes: &mut &[u8]) -> Option<i64> {
    let (mut number, mut shift) = (0_i64, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= i64::from(byte & 127).checked_shl(shift)?;
        shift += 7;
        if byte < 128 {
            return Some((number >> 1) ^ -(number & 1));
        }
    }
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

    /// NVRTC's flags for a precision.
    fn flags(precision: GpuPrecision) -> Vec<String> {
        let (major, minor) = precision.needs();
        let mut flags = vec![format!("--gpu-architecture=compute_{major}{minor}")];
        flags.extend(precision.flags());
        flags
    }

    /// The checksum of the sources and flags that the stored PTX must have been compiled from.
    fn origin() -> String {
        let flags: Vec<String> = GpuPrecision::ALL.into_iter().flat_map(flags).collect();
        let all = format!("{SOURCE}{}", flags.join(" "));
        format!("{:016x}", checksum(all.as_bytes()))
    }

    /// The oldest PTX version that has all that is used, so that older drivers accept it.
    fn version(precision: GpuPrecision) -> &'static str {
        if precision == GpuPrecision::Fp8 { ".version 8.4" } else { ".version 8.0" }
    }

    /// PTX without comments and indentation; labels lose the number of their function.
    fn plain(ptx: &str, precision: GpuPrecision) -> String {
        let mut out = String::new();
        for line in ptx.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let words: Vec<&str> = code.split_whitespace().collect();
            let line = words.join(" ");
            match line.starts_with(".version") {
                true => out.push_str(version(precision)),
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

    /// A line's form, and the distances of its registers.
    fn form(line: &str, last: &mut Vec<(String, i64)>) -> (String, Vec<i64>) {
        assert!(!line.contains('#'), "{line}");
        let mut parts = line.split('%');
        let mut form = parts.next().unwrap_or_default().to_owned();
        let mut distances = Vec::new();
        for part in parts {
            let letters = part.bytes().take_while(u8::is_ascii_lowercase).count();
            let (kind, behind) = part.split_at(letters);
            let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
            form.push('%');
            form.push_str(kind);
            if let Ok(number) = behind[..digits].parse::<i64>() {
                form.push('#');
                let known = last.iter().position(|(other, _)| other == kind);
                let before = known.map_or(0, |at| last.swap_remove(at).1);
                distances.push(number - before);
                last.push((kind.to_owned(), number));
            }
            form.push_str(&behind[digits..]);
        }
        (form, distances)
    }

    fn put_distance(distance: i64, out: &mut Vec<u8>) {
        let mut number = if distance < 0 { -2 * distance - 1 } else { 2 * distance };
        while number > 127 {
            out.push((number & 127) as u8 | 128);
            number >>= 7;
        }
        out.push(number as u8);
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

    /// The index of a thing in a list, to which new things are added.
    fn place<T: PartialEq>(list: &mut Vec<T>, thing: T) -> usize {
        list.iter().position(|other| *other == thing).unwrap_or_else(|| {
            list.push(thing);
            list.len() - 1
        })
    }

    fn joined(numbers: impl Iterator<Item = usize>) -> String {
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// The contents of the file.
    fn store(texts: &[String], compiler: &str) -> Vec<u8> {
        let mut pieces: Vec<String> = Vec::new();
        let mut head = format!("{} nvrtc {compiler}\n", origin());
        for text in texts {
            let numbers = split(text).into_iter().map(|piece| place(&mut pieces, piece));
            head += &(joined(numbers) + "\n");
        }
        head += &joined(pieces.iter().map(|piece| piece.lines().count()));
        let (mut forms, mut form_of, mut distances) = (Vec::new(), Vec::new(), Vec::new());
        for piece in &pieces {
            let mut last = Vec::new();
            for line in piece.lines() {
                let (form, registers) = form(line, &mut last);
                let number = u16::try_from(place(&mut forms, form)).expect("few forms");
                form_of.extend(number.to_le_bytes());
                registers.into_iter().for_each(|d| put_distance(d, &mut distances));
            }
        }
        [head.as_bytes(), &[0], forms.join("\n").as_bytes(), &[0], &form_of, &distances].concat()
    }

    /// The first line: the checksum of the sources and the version of NVRTC.
    fn stored_head() -> String {
        let bytes = inflate(STORED).expect("whole");
        let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        String::from_utf8_lossy(line).into_owned()
    }

    fn make(nvrtc: &Nvrtc) -> Vec<String> {
        let one = |precision| {
            let ptx = nvrtc.build(&flags(precision)).expect("the kernels compile");
            let ptx = String::from_utf8(ptx).expect("text");
            plain(ptx.trim_end_matches('\0'), precision)
        };
        GpuPrecision::ALL.into_iter().map(one).collect()
    }

    /// Kernels were changed? `cargo test -p peregrine-cuda make_portable_kernels -- --ignored`
    #[test]
    fn portable_kernels_belong_to_the_sources() {
        assert_eq!(stored_head().split(' ').next(), Some(origin().as_str()));
    }

    #[test]
    fn portable_kernels_are_what_the_compiler_makes() {
        let Ok(nvrtc) = Nvrtc::open() else { return eprintln!("skipped: no NVRTC") };
        let version = nvrtc.version_text();
        if !stored_head().ends_with(&format!(" nvrtc {version}")) {
            return eprintln!("skipped: made by another NVRTC than {version}");
        }
        let (old, texts) = (inflate(STORED).expect("whole"), make(&nvrtc));
        for (precision, text) in GpuPrecision::ALL.into_iter().zip(&texts) {
            assert!(restore(&old, precision).as_ref() == Some(text), "{precision:?}");
        }
        assert!(old == store(&texts, &version), "not stored as it would be now");
    }

    /// Not a test: writes the precompiled kernels.
    #[test]
    #[ignore = "writes kernels/portable.ptx.z, by NVRTC"]
    fn make_portable_kernels() {
        let nvrtc = Nvrtc::open().expect("NVRTC");
        let bytes = store(&make(&nvrtc), &nvrtc.version_text());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/portable.ptx.z");
        let mut file = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        file.write_all(&bytes).expect("memory");
        std::fs::write(path, file.finish().expect("memory")).expect(path);
    }

    #[test]
    fn portable_kernels_are_all_there() {
        for precision in GpuPrecision::ALL {
            let ptx = String::from_utf8(kernels(precision).expect("whole")).expect("text");
            let (major, minor) = precision.needs();
            let head = format!("\n{}\n.target sm_{major}{minor}\n", version(precision));
            assert!(format!("\n{ptx}").contains(&head), "{precision:?}");
            assert!(ptx.ends_with("}\n\0"), "{precision:?}");
            for kernel in device::kernels(precision) {
                let entries = ptx.matches(&format!(".entry {kernel}(")).count();
                assert_eq!(entries, 1, "{precision:?} {kernel}");
            }
        }
    }

    #[test]
    fn texts_come_back() {
        let first =
            ".reg .b32 %r<9>;\n@%p1 ld.f32 %f812, [%rd6+41];\nmov %r3, %tid.x; mov %r2, %r3;\n";
        let texts: Vec<String> = GpuPrecision::ALL
            .iter()
            .map(|precision| {
                format!("{first}.visible .entry {}(\nadd %r70000, %r1, %r0;\n", precision.name())
            })
            .collect();
        let bytes = store(&texts, "1.0");
        for (precision, text) in GpuPrecision::ALL.into_iter().zip(&texts) {
            assert_eq!(restore(&bytes, precision).as_ref(), Some(text));
        }
        for length in 0..bytes.len() {
            assert_eq!(restore(&bytes[..length], GpuPrecision::Fp8), None, "{length} bytes");
        }
    }

    #[test]
    fn damage_is_noticed() {
        assert_eq!(inflate(&STORED[..STORED.len() / 2]), None);
        let endless = [255; 20];
        assert_eq!(distance(&mut &endless[..]), None);
    }
}
