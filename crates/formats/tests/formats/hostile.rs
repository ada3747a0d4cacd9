//! Files made to do harm, and the line that each is refused with.

use std::fs;
use std::path::Path;

use peregrine_formats::{Source, marian_bin};

use crate::archive::{Member, archive, overlapping_archive};
use crate::samples::{
    self, CTRANSLATE2, MARIAN_BIN, NPZ, PYTORCH, Read, SAFETENSORS, SHORTLIST, npy, seal_shortlist,
    source, written,
};

/// A file and a part of the message it must be refused with.
pub(crate) type Case = (&'static str, Vec<u8>, &'static str);

/// Each case must be refused, in one line, with the message expected.
pub(crate) fn check(read: Read, cases: Vec<Case>) {
    for (name, bytes, expected) in cases {
        let Err(error) = read(&source(&bytes)) else { panic!("{name}: accepted") };
        let line = error.to_string();
        assert!(line.starts_with("FILE: "), "{name}: {line}");
        assert!(line.contains(expected), "{name}: {line}\nexpected: {expected}");
        assert!(!line.contains(char::is_control) && line.len() < 1000, "{name}: not one line");
    }
}

#[test]
fn files_that_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let line = |path: &Path| Source::open(path).unwrap_err().to_string();
    let missing = folder.path().join("missing.npz");
    let expected = format!("{}: cannot be opened: No such file or directory", missing.display());
    assert_eq!(line(&missing), expected);
    let expected = format!("{}: cannot be opened: not a regular file", folder.path().display());
    assert_eq!(line(folder.path()), expected);
}

#[test]
fn empty_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty");
    fs::write(&path, []).unwrap();
    let empty = Source::open(&path).unwrap();
    for read in [NPZ, MARIAN_BIN, CTRANSLATE2, SAFETENSORS, PYTORCH, SHORTLIST] {
        assert!(read(&empty).is_err());
    }
}

fn npz_of(header: &str, length: usize) -> Vec<u8> {
    archive(&[Member::stored("x.npy", &npy(header, length))])
}

#[test]
fn npz() {
    let sound = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8);
    let stored = Member::stored("x.npy", &sound);
    let deflated = Member::deflated("x.npy", &sound);
    let bomb = Member::deflated("bomb.npy", &vec![0; 40 << 20]);
    let shape =
        |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}");
    let descr =
        |descr: &str| format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}");
    check(
        NPZ,
        vec![
            ("wrong magic", b"This is no archive at all.".to_vec(), "not a ZIP archive"),
            ("truncated", archive(std::slice::from_ref(&stored))[..90].to_vec(), "no end record"),
            (
                "no array",
                archive(&[Member::stored("readme", b"hi")]),
                "readme: a member that is no array",
            ),
            (
                "wrong array magic",
                archive(&[Member::stored("x.npy", b"NUMPY...")]),
                r#"x.npy, byte 0: "NUMPY.", expected "\x93NUMPY""#,
            ),
            (
                "array version",
                archive(&[Member::stored("x.npy", b"\x93NUMPY\x09\x00")]),
                "array version 9",
            ),
            (
                "Fortran order",
                npz_of("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", 8),
                "x.npy, byte 10: the array is in column-major (Fortran) order, expected row-major",
            ),
            (
                "object array",
                npz_of(&descr("'|O'"), 8),
                "an array of Python objects, which could run code",
            ),
            ("structure", npz_of(&descr("[('a', '<f4')]"), 8), "expected '"),
            ("big-endian", npz_of(&descr("'>f4'"), 4), "expected little-endian"),
            ("complex", npz_of(&descr("'<c8'"), 8), "expected one of f2 f4"),
            ("unknown key", npz_of("{'evil': 1}", 8), "unknown key \"evil\""),
            ("no shape", npz_of("{'descr': '<f4', 'fortran_order': False}", 8), "lacks one of"),
            ("negative size", npz_of(&shape("(-1,)"), 8), "expected a size"),
            (
                "overflowing shape",
                npz_of(&shape("(4294967296, 4294967296)"), 8),
                "too large for any file",
            ),
            ("overflowing size", npz_of(&shape("(99999999999999999999,)"), 8), "expected a size"),
            (
                "many dimensions",
                npz_of(&shape(&format!("({})", "1,".repeat(99))), 4),
                "99 dimensions",
            ),
            (
                "too short",
                npz_of(&shape("(3,)"), 8),
                "8 bytes of data, but float32 of shape [3] takes 12",
            ),
            (
                "too long",
                npz_of(&shape("(1,)"), 8),
                "8 bytes of data, but float32 of shape [1] takes 4",
            ),
            ("deflate bomb", archive(&[bomb]), "bomb.npy: would inflate to 41943040 bytes"),
            (
                "understated length",
                archive(&[Member { length: 9, ..deflated.clone() }]),
                "inflates to another length than the 9 it states",
            ),
            (
                "overstated length",
                archive(&[Member { length: 900, ..deflated.clone() }]),
                "inflates to another",
            ),
            ("checksum", archive(&[Member { checksum: 1, ..deflated }]), "the data is damaged"),
            (
                "two sizes",
                archive(&[Member { length: 1, ..stored.clone() }]),
                "its two sizes differ",
            ),
            (
                "beyond the file",
                archive(&[Member { compressed: Some(1 << 30), length: 1 << 30, ..stored.clone() }]),
                "the member's data: 1073741824 bytes needed",
            ),
            (
                "encrypted",
                archive(&[Member { flags: 1, ..stored.clone() }]),
                "x.npy: the member is encrypted",
            ),
            (
                "method",
                archive(&[Member { method: 12, ..stored.clone() }]),
                "compression method 12",
            ),
            (
                "same name",
                archive(&[stored.clone(), stored.clone()]),
                "a second member of this name",
            ),
            (
                "other name",
                overlapping_archive(&[stored.clone(), Member { name: "y.npy".into(), ..stored }]),
                "the local header belongs to \"x.npy\"",
            ),
        ],
    );
}

/// A member that holds the whole of another one.
#[test]
fn overlapping_members() {
    let inner = Member::stored("inner.npy", &npy("{}", 0));
    let nested = archive(std::slice::from_ref(&inner));
    let local = &nested[..30 + inner.name.len() + inner.data.len()];
    let outer = Member::stored("outer.npy", local);
    let mut bytes = archive(&[outer.clone(), inner.clone()]);
    // The directory's second entry is made to point into the first member's data.
    let entry = bytes.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    let inside = 30 + outer.name.len() as u32;
    bytes[entry + 42..entry + 46].copy_from_slice(&inside.to_le_bytes());
    check(NPZ, vec![("overlap", bytes, "outer.npy: overlaps with the member \"inner.npy\"")]);
}

/// The sample with one field of its first item's header replaced.
fn bin_with(field: usize, value: u64) -> Vec<u8> {
    let mut bytes = written(|path| marian_bin::write(path, &samples::items()));
    bytes[field..field + 8].copy_from_slice(&value.to_le_bytes());
    bytes
}

#[test]
fn marian_bin() {
    const VERSION: usize = 0;
    const COUNT: usize = 8;
    const NAME_LENGTH: usize = 16;
    const TYPE: usize = 24;
    const RANK: usize = 32;
    const DATA_LENGTH: usize = 40;
    let sound = bin_with(VERSION, 1);
    let items = samples::items();
    let twice = [items[0].clone(), items[0].clone()];
    let names = 16 + 32 * items.len();
    let shapes = names + items.iter().map(|item| item.name.len() + 1).sum::<usize>();
    let with_dimensions = |dimensions: [i32; 2]| {
        let mut bytes = sound.clone();
        bytes[shapes..shapes + 4].copy_from_slice(&dimensions[0].to_le_bytes());
        bytes[shapes + 4..shapes + 8].copy_from_slice(&dimensions[1].to_le_bytes());
        bytes
    };
    let with_name_byte = |byte| {
        let mut bytes = sound.clone();
        bytes[names + 4] = byte;
        bytes
    };
    check(
        MARIAN_BIN,
        vec![
            ("encrypted", bin_with(VERSION, 2), "byte 0: version 2, an encrypted model"),
            ("wrong magic", b"PK\x03\x04 no bin".to_vec(), "expected 1: not a Marian .bin model"),
            (
                "truncated",
                sound[..sound.len() - 1].to_vec(),
                "item \"special:model.yml\": 256 bytes needed, but only 255 are left",
            ),
            (
                "trailing",
                [sound.as_slice(), b"!"].concat(),
                "1 bytes after the last item, expected the end",
            ),
            ("huge count", bin_with(COUNT, u64::MAX), "but only"),
            (
                "huge name",
                bin_with(NAME_LENGTH, u64::MAX),
                "an item's name: 18446744073709551615 bytes needed",
            ),
            ("huge rank", bin_with(RANK, 1 << 62), "an item's shape: "),
            ("huge data", bin_with(DATA_LENGTH, u64::MAX - 8), "the data of item \"Wemb\": "),
            (
                "short data",
                bin_with(DATA_LENGTH, 2),
                "item \"Wemb\": 2 bytes of data, but int8 of shape [3, 1] takes 3",
            ),
            (
                "no multiplier",
                bin_with(DATA_LENGTH, 6),
                "item \"Wemb\": no room for the multiplier",
            ),
            ("unknown type", bin_with(TYPE, 0x999), "item \"Wemb\": unknown type 0x999"),
            (
                "FBGEMM",
                bin_with(TYPE, 0x1801),
                "item \"Wemb\": type packed8avx2 (0x1801) is packed for one kind of processor; convert",
            ),
            ("FBGEMM 16", bin_with(TYPE, 0x0802), "type packed16 (0x802)"),
            ("processor layout", bin_with(TYPE, 0x13001), "type intgemm8avx512vnni (0x13001)"),
            ("negative", with_dimensions([-3, 1]), "item \"Wemb\": a dimension is -3"),
            (
                "large shape",
                with_dimensions([i32::MAX, i32::MAX]),
                "bytes of data, but int8 of shape",
            ),
            ("no NUL", with_name_byte(b'x'), "an item's name is not UTF-8 ended by a NUL"),
            (
                "same name",
                written(|path| marian_bin::write(path, &twice)),
                "a second item \"Wemb\"",
            ),
        ],
    );
}

/// A model of one variable, with its type, count and data.
fn ctranslate2_with(version: u32, shape: &[u32], kind: u8, count: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(b"\x02\0S\0\x07\0\0\0\x01\0\0\0\x02\0x\0");
    bytes.push(shape.len() as u8);
    bytes.extend(shape.iter().flat_map(|size| size.to_le_bytes()));
    bytes.push(kind);
    bytes.extend(count.to_le_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn ctranslate2() {
    let none = 0u32.to_le_bytes();
    let sound = ctranslate2_with(6, &[2], 1, 2, b"ab");
    let itself = [sound.as_slice(), b"\x01\0\0\0\x02\0x\0\x02\0x\0"].concat();
    check(
        CTRANSLATE2,
        vec![
            ("version 1", vec![1, 0, 0, 0], "version 1, expected 2 to 6: convert the model again"),
            (
                "version 7",
                vec![7, 0, 0, 0],
                "version 7, expected 2 to 6: written by a newer CTranslate2",
            ),
            ("wrong magic", b"PK\x03\x04".to_vec(), "expected 2 to 6: not a CTranslate2 model"),
            (
                "empty text",
                b"\x06\0\0\0\0\0".to_vec(),
                "byte 4: the name of the specification is not UTF-8",
            ),
            ("no NUL", b"\x06\0\0\0\x01\0x".to_vec(), "the name of the specification is not UTF-8"),
            (
                "unknown type",
                ctranslate2_with(6, &[2], 9, 2, b"ab"),
                "variable \"x\": type 9, expected 0 to 5",
            ),
            (
                "element size",
                ctranslate2_with(3, &[2], 3, 2, b"ab"),
                "elements of 3 bytes, expected 1, 2 or 4",
            ),
            (
                "short data",
                ctranslate2_with(6, &[3], 1, 2, b"ab"),
                "variable \"x\": 2 bytes of data, but int8 of shape [3] takes 3",
            ),
            (
                "huge data",
                ctranslate2_with(6, &[2], 1, u32::MAX, b"ab"),
                "the data of variable \"x\": 4294967295 bytes needed, but only 2",
            ),
            (
                "huge count",
                ctranslate2_with(3, &[2], 4, u32::MAX, b"ab"),
                ": 17179869180 bytes needed",
            ),
            (
                "overflow",
                ctranslate2_with(6, &[u32::MAX; 3], 1, 2, b"ab"),
                "is too large for any file",
            ),
            ("many dimensions", ctranslate2_with(6, &[1; 255], 1, 1, b"a"), "255 dimensions"),
            (
                "no aliases",
                sound.clone(),
                "the number of aliases: 4 bytes needed, but only 0 are left",
            ),
            (
                "trailing",
                [sound.as_slice(), &none, b"!"].concat(),
                "1 bytes after the last variable or alias",
            ),
            ("alias of itself", itself, "variable \"x\": an alias of this name too"),
        ],
    );
}

fn safetensors_with(header: &str, data: &[u8]) -> Vec<u8> {
    [(header.len() as u64).to_le_bytes().as_slice(), header.as_bytes(), data].concat()
}

/// A header of two tensors of two bytes each at these offsets.
fn two_tensors(first: [u64; 2], second: [u64; 2]) -> String {
    let entry = |offsets| format!(r#"{{"dtype":"U8","shape":[2],"data_offsets":{offsets:?}}}"#);
    format!(r#"{{"a":{},"b":{}}}"#, entry(first), entry(second))
}

#[test]
fn safetensors() {
    let one = |dtype: &str, shape: &str, end: u64| {
        format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}}}"#)
    };
    let same = two_tensors([0, 2], [2, 4]).replace("\"b\"", "\"a\"");
    let line_break = r#"{"a":{"new\nline":1}}"#;
    let max = u64::MAX;
    check(
        SAFETENSORS,
        vec![
            (
                "huge header",
                u64::MAX.to_le_bytes().to_vec(),
                "a header of 18446744073709551615 bytes, expected at most",
            ),
            (
                "truncated header",
                99u64.to_le_bytes().to_vec(),
                "the header: 99 bytes needed, but only 0 are left",
            ),
            ("no object", safetensors_with("[]", b""), "byte 8: the header is not a JSON object"),
            ("bad JSON", safetensors_with("{\"a\":", b""), "header: EOF"),
            (
                "deep JSON",
                safetensors_with(&format!("{{\"a\":{}", "[".repeat(9999)), b""),
                "header: ",
            ),
            ("unknown field", safetensors_with(line_break, b""), "header: unknown field"),
            ("same name", safetensors_with(&same, b"1234"), "a second tensor \"a\""),
            (
                "overlap",
                safetensors_with(&two_tensors([0, 2], [1, 3]), b"123"),
                "tensor \"b\": data_offsets [1, 3], expected to begin at 2",
            ),
            (
                "gap",
                safetensors_with(&two_tensors([0, 2], [3, 5]), b"12345"),
                "tensor \"b\": data_offsets [3, 5], expected to begin at 2",
            ),
            (
                "backwards",
                safetensors_with(&two_tensors([0, 2], [2, 0]), b"12"),
                "tensor \"b\": data_offsets [2, 0]",
            ),
            (
                "beyond the end",
                safetensors_with(&two_tensors([0, 2], [2, max]), b"1234"),
                "within the 4 bytes of data",
            ),
            (
                "trailing",
                safetensors_with(&two_tensors([0, 2], [2, 4]), b"12345"),
                "5 bytes of data, but the tensors end at 4",
            ),
            (
                "truncated",
                safetensors_with(&two_tensors([0, 2], [2, 4]), b"123"),
                "within the 3 bytes of data",
            ),
            (
                "unknown type",
                safetensors_with(&one("F8_E4M3", "[2]", 2), b"12"),
                "tensor \"a\": unknown type \"F8_E4M3\"",
            ),
            (
                "other length",
                safetensors_with(&one("F32", "[2]", 2), b"12"),
                "2 bytes of data, but float32 of shape [2] takes 8",
            ),
            (
                "overflow",
                safetensors_with(&one("F32", "[4294967296,4294967296]", 0), b""),
                "is too large for any file",
            ),
            ("negative", safetensors_with(&one("F32", "[-1]", 0), b""), "header: invalid value"),
        ],
    );
}

/// A shortlist with the right checksum and whatever numbers are wanted.
fn shortlist_with(counts: [u64; 4], offsets: &[u64], words: &[u32]) -> Vec<u8> {
    let mut bytes = 0xF11A_48D5_0134_17F5u64.to_le_bytes().to_vec();
    bytes.extend([0; 8]);
    bytes.extend(counts.iter().chain(offsets).flat_map(|number| number.to_le_bytes()));
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    seal_shortlist(&mut bytes);
    bytes
}

#[test]
fn shortlist() {
    let sound = shortlist_with([5, 5, 3, 2], &[0, 1, 2], &[7, 8]);
    let mut damaged = sound.clone();
    damaged[72] ^= 1;
    let old = [1_234_567_890u32.to_le_bytes(), [0; 4]].concat();
    check(
        SHORTLIST,
        vec![
            (
                "wrong magic",
                b"12345678".to_vec(),
                "expected 0xf11a48d5013417f5: not a binary shortlist",
            ),
            ("older format", old, "a shortlist in an older format"),
            ("checksum", damaged, "byte 8: checksum"),
            (
                "truncated",
                sound[..sound.len() - 4].to_vec(),
                "the target words: 8 bytes needed, but only 4",
            ),
            ("trailing", [sound.as_slice(), &[0; 4]].concat(), "4 bytes after the last list"),
            (
                "no offsets",
                shortlist_with([5, 5, 0, 0], &[], &[]),
                "the lists end at 0, expected 0",
            ),
            (
                "falling",
                shortlist_with([5, 5, 3, 2], &[1, 0, 2], &[7, 8]),
                "source word 1: offset 0, expected 1 to 2",
            ),
            (
                "beyond the lists",
                shortlist_with([5, 5, 3, 2], &[0, 3, 2], &[7, 8]),
                "source word 1: offset 3, expected 0 to 2",
            ),
            (
                "unused words",
                shortlist_with([5, 5, 3, 2], &[0, 1, 1], &[7, 8]),
                "last offset: the lists end at 1, expected 2",
            ),
            (
                "huge first",
                shortlist_with([u64::MAX, 5, 3, 2], &[0, 1, 2], &[7, 8]),
                "header: first is 18446744073709551615",
            ),
            (
                "huge count",
                shortlist_with([5, 5, u64::MAX, 2], &[0, 1, 2], &[7, 8]),
                "the offsets: 18446744073709551615 bytes needed",
            ),
        ],
    );
}
