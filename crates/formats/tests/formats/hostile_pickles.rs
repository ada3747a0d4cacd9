//! PyTorch files made to do harm, and the line that each is refused with.

use crate::archive::{Member, archive};
use crate::hostile::check;
use crate::pickles::{self, integer, legacy_torch_file, state_dict, torch_file};
use crate::samples::{PYTORCH, torch_rebuild, torch_storage};

fn torch_pickle(pickle: &[u8]) -> Vec<u8> {
    torch_file(pickle, &[("0", &torch_storage())])
}

fn torch_tensor(change: impl FnOnce(&mut pickles::Rebuild<'_>)) -> Vec<u8> {
    let mut rebuild = torch_rebuild(&[2, 3], &[3, 1]);
    change(&mut rebuild);
    torch_pickle(&state_dict(&[("x", rebuild.pickle())]))
}

#[test]
fn pytorch() {
    let system = b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R.";
    let stack_global = b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.";
    let two = |second: &str| {
        let mut other = torch_rebuild(&[1], &[1]);
        other.storage_type = second;
        let first = torch_rebuild(&[1], &[1]).pickle();
        torch_pickle(&state_dict(&[("a", first), ("b", other.pickle())]))
    };
    let sound = state_dict(&[("x", torch_rebuild(&[2, 3], &[3, 1]).pickle())]);
    let storage = torch_storage();
    let big_endian = archive(&[
        Member::stored("m/data.pkl", &sound),
        Member::stored("m/byteorder", b"big"),
        Member::stored("m/data/0", &storage),
    ]);
    let compressed =
        archive(&[Member::deflated("m/data.pkl", &sound), Member::stored("m/data/0", &storage)]);
    check(
        PYTORCH,
        vec![
            ("wrong magic", b"\x80\x02}.".to_vec(), "not a ZIP archive"),
            ("no pickle", archive(&[Member::stored("a/datadata.pkl", b"")]), "not a PyTorch file"),
            (
                "os.system",
                torch_pickle(system),
                "archive/data.pkl, byte 2: the pickle refers to \"os.system\", which is not allowed in a model",
            ),
            (
                "eval",
                torch_pickle(b"\x80\x02cbuiltins\neval\n."),
                "\"builtins.eval\", which is not allowed",
            ),
            ("STACK_GLOBAL", torch_pickle(stack_global), "pickle instruction 0x93 is not allowed"),
            ("INST", torch_pickle(b"(ios\nsystem\n."), "pickle instruction 0x69 is not allowed"),
            (
                "OBJ",
                torch_pickle(b"\x80\x02(ctorch\nFloatStorage\no."),
                "pickle instruction 0x6f is not allowed",
            ),
            ("EXT1", torch_pickle(b"\x82\x01."), "pickle instruction 0x82 is not allowed"),
            (
                "call of a storage",
                torch_pickle(b"ctorch\nFloatStorage\n)R."),
                "calls what is no known function",
            ),
            (
                "attributes",
                torch_pickle(b"ctorch\nFloatStorage\n}b."),
                "sets attributes of what is no dictionary",
            ),
            ("open name", torch_pickle(b"cos"), "the module of a global name has no end"),
            ("no end", torch_pickle(b"}"), "an instruction: 1 bytes needed, but only 0 are left"),
            ("empty stack", torch_pickle(b"."), "takes a value from an empty stack"),
            ("below a mark", torch_pickle(b"}(."), "takes a value from an empty stack"),
            ("no mark", torch_pickle(b"}t."), "a mark that is not set"),
            ("memo", torch_pickle(b"h\x07."), "nothing was memorised as 7"),
            ("long text", torch_pickle(b"X\xff\xff\xff\xffx."), "a text: 4294967295 bytes needed"),
            ("long number", torch_pickle(b"\x8a\x09123456789."), "an integer of over 64 bits"),
            ("no dictionary", torch_pickle(b"N."), "the pickle is no dictionary of tensors"),
            (
                "no tensor",
                torch_pickle(&state_dict(&[("x", integer(1))])),
                "tensor \"x\": not a tensor",
            ),
            (
                "negative stride",
                torch_tensor(|t| t.strides = &[3, -1]),
                "tensor \"x\": strides has -1",
            ),
            ("negative offset", torch_tensor(|t| t.offset = -1), "tensor \"x\": offset -1"),
            (
                "beyond the storage",
                torch_tensor(|t| t.offset = 1),
                "reach beyond the 6 elements of the storage",
            ),
            (
                "huge stride",
                torch_tensor(|t| t.strides = &[i64::MAX, 1]),
                "reach beyond the 6 elements",
            ),
            ("huge shape", torch_tensor(|t| t.shape = &[i64::MAX, 3]), "is too large for any file"),
            (
                "repeated without end",
                torch_tensor(|t| (t.shape, t.strides) = (&[1 << 40, 1], &[0, 0])),
                "far more than the file holds",
            ),
            ("ranks", torch_tensor(|t| t.strides = &[3]), "shape [2, 3], but strides [3]"),
            ("many dimensions", torch_tensor(|t| t.shape = &[1; 99]), "99 dimensions"),
            (
                "other size",
                torch_tensor(|t| t.elements = 7),
                "archive/data/0: 24 bytes, expected 7 elements of float32",
            ),
            (
                "huge storage",
                torch_tensor(|t| t.elements = i64::MAX),
                "archive/data/0: 24 bytes, expected",
            ),
            (
                "missing storage",
                torch_tensor(|t| t.key = "../../etc/passwd"),
                "archive/data/../../etc/passwd: the member is missing",
            ),
            ("two types", two("IntStorage"), "storage \"0\" is described in two ways"),
            ("big-endian", big_endian, "m/byteorder: elements are not little-endian"),
            ("compressed", compressed, "m/data.pkl: the member is compressed"),
        ],
    );
}

#[test]
fn legacy_pytorch() {
    let pickle = state_dict(&[("x", torch_rebuild(&[2, 3], &[3, 1]).legacy_pickle())]);
    let storage = torch_storage();
    let file = |storages: &[(&str, u64, &[u8])]| legacy_torch_file(&pickle, storages);
    let sound = file(&[("0", 6, &storage)]);
    check(
        PYTORCH,
        vec![
            ("missing storage", file(&[]), "tensor \"x\": its storage \"0\" is missing"),
            ("unknown storage", file(&[("1", 6, &storage)]), "no tensor uses the storage \"1\""),
            (
                "huge storage",
                file(&[("0", u64::MAX, &storage)]),
                "a storage: 18446744073709551615 bytes needed",
            ),
            (
                "other size",
                file(&[("0", 5, &storage[..20])]),
                "20 bytes, expected 6 elements of float32",
            ),
            ("twice", file(&[("0", 6, &storage), ("0", 6, &storage)]), "a second storage \"0\""),
            ("trailing", [sound.as_slice(), b"!"].concat(), "1 bytes after the last storage"),
            (
                "version",
                sound.iter().map(|&byte| if byte == 0xe9 { 0 } else { byte }).collect(),
                "not version 1001",
            ),
        ],
    );
}

/// Structures that recursive readers run out of stack with, and references that go round.
#[test]
fn pickles_without_bottom() {
    let deep_tuple = [b"\x80\x02)".as_slice(), &[0x85; 500_000], b"."].concat();
    let deep_list = [b"]".as_slice(), &b"]".repeat(200_000), &b"a".repeat(200_000), b"."].concat();
    let itself = b"}q\x00h\x00h\x00s.".to_vec();
    let endless = [b"N".repeat((1 << 20) + 1), b".".to_vec()].concat();
    check(
        PYTORCH,
        vec![
            ("deep tuple", torch_pickle(&deep_tuple), "the pickle is no dictionary of tensors"),
            ("deep list", torch_pickle(&deep_list), "the pickle is no dictionary of tensors"),
            ("key of itself", torch_pickle(&itself), "a name in the dictionary is no text"),
            ("endless", torch_pickle(&endless), "a pickle of over 1048576 instructions"),
        ],
    );
}
