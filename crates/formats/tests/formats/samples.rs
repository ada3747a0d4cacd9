//! A small correct file of every format and version.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use peregrine_formats::marian_bin::{self, Dialect, Item, Kind};
use peregrine_formats::shortlist::{self, Shortlist};
use peregrine_formats::{
    DType, Error, Source, Tensor, Tensors, ctranslate2, npz, pytorch, safetensors,
};

use crate::archive::{Member, archive, archive_zip64};
use crate::pickles::{Rebuild, legacy_torch_file, state_dict, torch_file};

/// A reader, for tests to which only success or failure matters.
pub(crate) type Read = fn(&Source) -> Result<(), Error>;

pub(crate) const NPZ: Read = |source| npz::read(source).map(drop);
pub(crate) const MARIAN_BIN: Read = |source| marian_bin::read(source).map(drop);
pub(crate) const CTRANSLATE2: Read = |source| ctranslate2::read(source).map(drop);
pub(crate) const SAFETENSORS: Read = |source| safetensors::read(source).map(drop);
pub(crate) const PYTORCH: Read = |source| pytorch::read(source).map(drop);
pub(crate) const SHORTLIST: Read = |source| shortlist::read(source).map(drop);

pub(crate) struct Sample {
    pub(crate) name: &'static str,
    pub(crate) read: Read,
    pub(crate) bytes: Vec<u8>,
    /// Makes checksums right again after a change, so that the change is looked at.
    pub(crate) seal: fn(&mut [u8]),
}

/// All samples, made once.
pub(crate) fn all() -> &'static [Sample] {
    static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(make_all);
    &SAMPLES
}

fn make_all() -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut add = |name, read, bytes| {
        samples.push(Sample { name, read, bytes, seal: |_| {} });
    };
    let members = npy_members();
    add("npz", NPZ, written(|path| npz::write(path, &tensors())));
    add("npz, deflated", NPZ, archive(&deflated(&members)));
    add("npz, ZIP64", NPZ, archive_zip64(&members));
    add("Marian bin", MARIAN_BIN, written(|path| marian_bin::write(path, &items())));
    for (name, version) in [("CTranslate2 v2", 2), ("CTranslate2 v3", 3), ("CTranslate2 v6", 6)] {
        let model = ctranslate2_model(version);
        add(name, CTRANSLATE2, written(|path| ctranslate2::write(path, &model)));
    }
    add("safetensors", SAFETENSORS, safetensors_file());
    add("PyTorch", PYTORCH, torch_sample());
    add("PyTorch, legacy", PYTORCH, legacy_torch_sample());
    samples.push(Sample {
        name: "shortlist",
        read: SHORTLIST,
        bytes: written(|path| shortlist::write(path, &shortlist_sample())),
        seal: seal_shortlist,
    });
    samples
}

/// The bytes that a writer writes.
pub(crate) fn written(write: impl FnOnce(&Path) -> Result<(), Error>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sample");
    write(&path).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file was left");
    fs::read(&path).unwrap()
}

pub(crate) fn source(bytes: &[u8]) -> Source {
    Source::new("FILE", bytes.to_vec())
}

pub(crate) fn tensors() -> Tensors {
    let named = [
        ("matrix", Tensor::from_f32([2, 3], &[0.0, 1.0, -2.5, 3.25, f32::MAX, 1e-30])),
        ("half", Tensor::from_f32_as_f16([2], &[0.5, -1024.0])),
        ("scalar", Tensor::from_i64([], &[-7])),
        ("empty", Tensor::from_i32([0, 4], &[])),
        ("special:model.yml", Tensor::from_i8([3], &[65, 66, 0])),
    ];
    named.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}

fn npy_members() -> Vec<Member> {
    vec![
        Member::stored(
            "a.npy",
            &npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8),
        ),
        Member::stored(
            "b.npy",
            &npy("{\"shape\": (1L, 3), 'descr': '|i1', 'fortran_order': False}", 3),
        ),
    ]
}

fn deflated(members: &[Member]) -> Vec<Member> {
    members.iter().map(|member| Member::deflated(&member.name, &member.data)).collect()
}

/// A version 1 array with a header of one's choice and `length` bytes of data.
pub(crate) fn npy(header: &str, length: usize) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend((0..length).map(|index| index as u8));
    bytes
}

pub(crate) fn items() -> Vec<Item> {
    let plain = |name: &str, tensor: Tensor| Item {
        name: name.to_owned(),
        kind: Kind::Plain(tensor.dtype),
        dialect: None,
        shape: tensor.shape,
        data: tensor.data,
    };
    let integers = |name: &str, kind: Kind, dialect, data: Vec<u8>| Item {
        name: name.to_owned(),
        kind,
        dialect: Some(dialect),
        shape: vec![data.len() / kind.dtype().size(), 1],
        data: data.into(),
    };
    let eight = Kind::IntGemm8 { multiplier: 153.25 };
    let sixteen = Kind::IntGemm16 { multiplier: 1024.0 };
    vec![
        integers("Wemb", eight, Dialect::Bergamot, vec![1, 255, 127]),
        integers("encoder_W1", eight, Dialect::Mainline, vec![9; 256]),
        integers("encoder_W2", sixteen, Dialect::Mainline, vec![1, 0, 2, 0]),
        plain("encoder_b1", Tensor::from_f32([1, 2], &[1.5, -2.0])),
        plain("special:model.yml", Tensor::from_i8([5], &[104, 58, 32, 49, 0])),
    ]
}

pub(crate) fn ctranslate2_model(version: u32) -> ctranslate2::Model {
    let weight = Tensor::from_i8([2, 3], &[1, -2, 3, -4, 5, 127]);
    let scale = Tensor::from_f32([2], &[40.0, 0.5]);
    let mut variables: Tensors = [
        ("decoder/embeddings/weight".to_owned(), weight.clone()),
        ("decoder/embeddings/weight_scale".to_owned(), scale.clone()),
        ("encoder/num_heads".to_owned(), Tensor::from_i16([], &[8])),
    ]
    .into();
    let mut aliases = BTreeMap::new();
    variables.insert("decoder/projection/weight".to_owned(), weight);
    variables.insert("decoder/projection/weight_scale".to_owned(), scale);
    if version >= 3 {
        let (alias, name) = ("decoder/projection/weight", "decoder/embeddings/weight");
        aliases.insert(alias.to_owned(), name.to_owned());
    }
    if version >= 4 {
        variables.insert("half".to_owned(), Tensor::from_f32_as_f16([1], &[0.25]));
        variables.insert("brain".to_owned(), Tensor::from_f32_as_bf16([1], &[0.25]));
        variables.insert("word".to_owned(), Tensor::from_i32([1], &[1 << 20]));
    }
    let spec = "TransformerSpec".to_owned();
    ctranslate2::Model { version, spec, revision: 7, variables, aliases }
}

pub(crate) fn safetensors_file() -> Vec<u8> {
    let named: Vec<_> = tensors().into_iter().collect();
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    written(|path| safetensors::write(path, &named, &metadata))
}

/// A file with a tied, a transposed and a wrapped tensor.
fn torch_sample() -> Vec<u8> {
    let plain = torch_tensor(&[2, 3], &[3, 1]);
    let wrapped = [b"ctorch._utils\n_rebuild_parameter\n(".as_slice(), &plain, b"\x88NtR"].concat();
    // The state of a parameter with attributes: {"set": True}.
    let attributed = b"ctorch._utils\n_rebuild_parameter_with_state\n(";
    let state = b"\x88N}X\x03\0\0\0set\x88stR";
    let attributed = [attributed.as_slice(), &plain, state].concat();
    // A tensor with attributes: the function, the type, the arguments, {"set": True}.
    let function = b"ctorch._utils\n_rebuild_tensor_v2\n";
    let arguments = plain.strip_prefix(function).and_then(|rest| rest.strip_suffix(b"R"));
    let arguments = arguments.expect("a call of that function");
    let begin = b"ctorch._tensor\n_rebuild_from_type_v2\n(";
    let typed = [begin, function.as_slice(), b"ctorch\nTensor\n", arguments].concat();
    let typed = [typed.as_slice(), b"}X\x03\0\0\0set\x88stR"].concat();
    let pickle = state_dict(&[
        ("plain", plain.clone()),
        ("tied", plain),
        ("transposed", torch_tensor(&[3, 2], &[1, 3])),
        ("wrapped", wrapped),
        ("attributed", attributed),
        ("typed", typed),
    ]);
    torch_file(&pickle, &[("0", &torch_storage())])
}

fn torch_tensor(shape: &[i64], strides: &[i64]) -> Vec<u8> {
    torch_rebuild(shape, strides).pickle()
}

pub(crate) fn torch_rebuild<'a>(shape: &'a [i64], strides: &'a [i64]) -> Rebuild<'a> {
    Rebuild { storage_type: "FloatStorage", key: "0", elements: 6, offset: 0, shape, strides }
}

/// Six float32 numbers, 0 to 5.
pub(crate) fn torch_storage() -> Vec<u8> {
    (0..6).flat_map(|value| (value as f32).to_le_bytes()).collect()
}

fn legacy_torch_sample() -> Vec<u8> {
    let pickle = state_dict(&[
        ("plain", torch_rebuild(&[2, 3], &[3, 1]).legacy_pickle()),
        ("transposed", torch_rebuild(&[3, 2], &[1, 3]).legacy_pickle()),
    ]);
    legacy_torch_file(&pickle, &[("0", 6, &torch_storage())])
}

pub(crate) fn shortlist_sample() -> Shortlist {
    Shortlist::new(2, 3, &[vec![], vec![4, 7, 9], vec![1], vec![], vec![]])
}

/// Puts the right checksum into a shortlist.
pub(crate) fn seal_shortlist(bytes: &mut [u8]) {
    let Some(body) = bytes.get(16..) else { return };
    let mut hash = 0u64;
    for word in body.as_chunks().0 {
        let word = u64::from_le_bytes(*word);
        let sum = word.wrapping_add(0x9e37_79b9).wrapping_add(hash << 6).wrapping_add(hash >> 2);
        hash ^= sum;
    }
    bytes[8..16].copy_from_slice(&hash.to_le_bytes());
}

/// The types that every numpy array can have.
pub(crate) const NPZ_TYPES: [DType; 12] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
];
