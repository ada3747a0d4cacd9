//! What is written is read again, and what other programs write is read right.

use std::collections::BTreeMap;
use std::fs;

use peregrine_formats::marian_bin::{self, Item, Kind};
use peregrine_formats::shortlist::{self, Shortlist};
use peregrine_formats::{
    Bytes, DType, Source, Tensor, Tensors, ctranslate2, npz, pytorch, safetensors,
};
use proptest::prelude::*;

use crate::samples::{self, NPZ_TYPES, source, written};

#[test]
fn every_sample_is_read() {
    for sample in samples::all() {
        let result = (sample.read)(&source(&sample.bytes));
        assert_eq!(result, Ok(()), "{}", sample.name);
    }
}

#[test]
fn npz() {
    let tensors = samples::tensors();
    let bytes = written(|path| npz::write(path, &tensors));
    assert_eq!(npz::read(&source(&bytes)).unwrap(), tensors);
}

#[test]
fn arrays_of_version_2_and_3() {
    let header = "{'descr': '<u2', 'fortran_order': False, 'shape': (1,), }";
    for version in [2, 3] {
        let mut array = b"\x93NUMPY".to_vec();
        array.extend([version, 0]);
        array.extend((header.len() as u32).to_le_bytes());
        array.extend(header.as_bytes());
        array.extend([1, 2]);
        let bytes = crate::archive::archive(&[crate::archive::Member::stored("x.npy", &array)]);
        let tensors = npz::read(&source(&bytes)).unwrap();
        assert_eq!(tensors["x"].to_i64(), Some(vec![0x0201]));
    }
}

/// The arrays of `data/make.py`, as numpy writes them.
#[test]
fn npz_of_numpy() {
    for bytes in [
        include_bytes!("../data/numpy_savez.npz").as_slice(),
        include_bytes!("../data/numpy_savez_compressed.npz"),
    ] {
        let tensors = npz::read(&source(bytes)).unwrap();
        assert_eq!(tensors.len(), 3);
        assert_eq!(tensors["weights"], Tensor::from_f32([2, 3], &[0., 1., 2., 3., 4., 5.]));
        assert_eq!(tensors["zeros"], Tensor::from_f32([1000], &[0.; 1000]));
        assert_eq!(tensors["text"], Tensor::from_i8([3], &[104, 105, 0]));
    }
}

#[test]
fn marian_bin() {
    let items = samples::items();
    let bytes = written(|path| marian_bin::write(path, &items));
    assert_eq!(bytes.len() % 256, 0);
    assert_eq!(marian_bin::read(&source(&bytes)).unwrap(), items);
}

#[test]
fn ctranslate2_in_all_versions() {
    for version in 2..=6 {
        let model = samples::ctranslate2_model(version);
        let bytes = written(|path| ctranslate2::write(path, &model));
        assert_eq!(ctranslate2::read(&source(&bytes)).unwrap(), model, "version {version}");
    }
}

#[test]
fn ctranslate2_aliases_share_memory() {
    let model = samples::ctranslate2_model(6);
    let bytes = written(|path| ctranslate2::write(path, &model));
    let model = ctranslate2::read(&source(&bytes)).unwrap();
    for part in ["weight", "weight_scale"] {
        let embeddings = &model.variables[&format!("decoder/embeddings/{part}")];
        let projection = &model.variables[&format!("decoder/projection/{part}")];
        assert_eq!(embeddings.data.as_ptr(), projection.data.as_ptr());
    }
}

#[test]
fn ctranslate2_ignores_aliases_of_nothing() {
    let mut model = samples::ctranslate2_model(6);
    model.aliases.insert("lost".to_owned(), "missing".to_owned());
    let bytes = written(|path| ctranslate2::write(path, &model));
    model.aliases.remove("lost");
    assert_eq!(ctranslate2::read(&source(&bytes)).unwrap(), model);
}

#[test]
fn safetensors() {
    let file = safetensors::read(&source(&samples::safetensors_file())).unwrap();
    assert_eq!(file.tensors, samples::tensors());
    assert_eq!(file.metadata["format"], "pt");
}

#[test]
fn safetensors_are_aligned_in_a_mapped_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    fs::write(&path, samples::safetensors_file()).unwrap();
    let source = Source::open(&path).unwrap();
    let file = safetensors::read(&source).unwrap();
    for (name, tensor) in &file.tensors {
        assert_eq!(tensor.data.as_ptr().addr() % tensor.dtype.size(), 0, "{name}");
    }
    let start = source.bytes.as_ptr().addr();
    let scalar = file.tensors["scalar"].data.as_ptr().addr();
    assert_eq!((scalar - start) % 64, 0, "the widest elements come first, at a multiple of 64");
}

#[test]
fn pytorch_views() {
    for name in ["PyTorch", "PyTorch, legacy"] {
        let sample = samples::all().iter().find(|sample| sample.name == name).unwrap();
        let tensors = pytorch::read(&source(&sample.bytes)).unwrap();
        assert_eq!(tensors["plain"], Tensor::from_f32([2, 3], &[0., 1., 2., 3., 4., 5.]));
        assert_eq!(tensors["transposed"], Tensor::from_f32([3, 2], &[0., 3., 1., 4., 2., 5.]));
        if name == "PyTorch" {
            assert_eq!(tensors["wrapped"], tensors["plain"]);
            assert_eq!(tensors["attributed"], tensors["plain"]);
            assert_eq!(tensors["typed"], tensors["plain"]);
            assert_eq!(tensors["tied"].data.as_ptr(), tensors["plain"].data.as_ptr());
        }
    }
}

/// Byte for byte what PyTorch writes for one tensor, with its memo and its metadata.
#[test]
fn pytorch_pickle_with_memo() {
    let mut pickle = b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01(".to_vec();
    for name in ["first", "second"] {
        pickle.extend(crate::pickles::text(name));
        if name == "first" {
            pickle
                .extend(b"q\x02ctorch._utils\n_rebuild_tensor_v2\nq\x03((X\x07\0\0\0storageq\x04");
            pickle.extend(b"ctorch\nFloatStorage\nq\x05X\x01\0\0\x000q\x06X\x03\0\0\0cpuq\x07");
        } else {
            pickle.extend(b"r\x00\x01\0\0h\x03((h\x04h\x05h\x06h\x07");
        }
        pickle.extend(
            b"K\x06tq\x08QK\x00K\x02K\x03\x86q\x09K\x03K\x01\x86q\x0a\x89h\x00)Rq\x0btq\x0cRq\x0d",
        );
    }
    pickle.extend(b"u}q\x0eX\x09\0\0\0_metadataq\x0fh\x00)Rq\x10sb.");
    let bytes = crate::pickles::torch_file(&pickle, &[("0", &samples::torch_storage())]);
    let tensors = pytorch::read(&source(&bytes)).unwrap();
    assert_eq!(tensors["first"], Tensor::from_f32([2, 3], &[0., 1., 2., 3., 4., 5.]));
    assert_eq!(tensors["second"], tensors["first"]);
}

/// The state dictionaries of `data/make.py`, as Python's pickler writes them.
#[test]
fn pytorch_of_python() {
    for bytes in [
        include_bytes!("../data/torch_archive.bin").as_slice(),
        include_bytes!("../data/torch_legacy.bin"),
    ] {
        let tensors = pytorch::read(&source(bytes)).unwrap();
        assert_eq!(tensors.len(), 5);
        assert_eq!(tensors["embed.weight"], Tensor::from_f32([2, 3], &[0., 1., 2., 3., 4., 5.]));
        assert_eq!(tensors["tied.weight"], tensors["embed.weight"]);
        assert_eq!(tensors["transposed"], Tensor::from_f32([3, 2], &[0., 3., 1., 4., 2., 5.]));
        assert_eq!(tensors["last_row"], Tensor::from_f32([3], &[3., 4., 5.]));
        assert_eq!(tensors["positions"], Tensor::from_i64([2], &[-1, 1 << 40]));
    }
}

#[test]
fn shortlist() {
    let list = samples::shortlist_sample();
    let bytes = written(|path| shortlist::write(path, &list));
    let read = shortlist::read(&source(&bytes)).unwrap();
    assert_eq!(read, list);
    assert_eq!((read.first, read.best, read.source_words()), (2, 3, 5));
    assert_eq!(read.list(1), [4, 7, 9]);
    assert_eq!(read.list(4), [0u32; 0]);
    assert_eq!(read.list(5), [0u32; 0], "beyond the table");
    assert_eq!(read.list(u32::MAX), [0u32; 0], "far beyond the table");
}

#[test]
fn conversions() {
    assert_eq!(Tensor::from_f32_as_f16([1], &[0.5]).to_f32(), Some(vec![0.5]));
    assert_eq!(Tensor::from_f32_as_bf16([1], &[-2.0]).to_f32(), Some(vec![-2.0]));
    assert_eq!(Tensor::from_f64([1], &[0.25]).to_f32(), Some(vec![0.25]));
    assert_eq!(Tensor::from_i16([2], &[-3, 4]).to_i64(), Some(vec![-3, 4]));
    assert_eq!(Tensor::from_i8([1], &[1]).to_f32(), None);
    assert_eq!(Tensor::from_f32([1], &[1.0]).to_i64(), None);
    let huge = Tensor { dtype: DType::U64, shape: vec![1], data: Bytes::from_static(&[255; 8]) };
    assert_eq!(huge.to_i64(), None);
}

#[test]
fn replacing_a_file_keeps_the_old_map() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.npz");
    npz::write(&path, &samples::tensors()).unwrap();
    let old = npz::read(&Source::open(&path).unwrap()).unwrap();
    npz::write(&path, &Tensors::new()).unwrap();
    assert_eq!(old, samples::tensors());
    assert!(npz::read(&Source::open(&path).unwrap()).unwrap().is_empty());
}

#[test]
fn writers_refuse_what_the_format_has_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let brain = Tensor::from_f32_as_bf16([1], &[1.0]);
    let error = npz::write(&path, &[("x".to_owned(), brain.clone())].into()).unwrap_err();
    assert!(error.problem.contains("bfloat16"), "{error}");
    let mut model = samples::ctranslate2_model(2);
    model.variables.insert("x".to_owned(), brain);
    let error = ctranslate2::write(&path, &model).unwrap_err();
    assert!(error.problem.contains("which version 2 has not"), "{error}");
    let twice = vec![("x".to_owned(), Tensor::from_i8([1], &[1])); 2];
    let error = safetensors::write(&path, &twice, &BTreeMap::new()).unwrap_err();
    assert!(error.problem.contains("a second tensor"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

/// Any tensor of a few elements.
fn any_tensor(types: &'static [DType]) -> impl Strategy<Value = Tensor> {
    let shape = prop::collection::vec(0usize..4, 0..4);
    (prop::sample::select(types), shape).prop_flat_map(|(dtype, shape)| {
        let length = shape.iter().product::<usize>() * dtype.size();
        prop::collection::vec(any::<u8>(), length).prop_map(move |data| Tensor {
            dtype,
            shape: shape.clone(),
            data: data.into(),
        })
    })
}

fn any_tensors(types: &'static [DType]) -> impl Strategy<Value = Tensors> {
    prop::collection::btree_map("[a-zA-Z_/:.é]{1,12}", any_tensor(types), 0..6)
}

const CTRANSLATE2_TYPES: [DType; 6] =
    [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I16, DType::I8];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_npz(tensors in any_tensors(&NPZ_TYPES)) {
        let bytes = written(|path| npz::write(path, &tensors));
        prop_assert_eq!(npz::read(&source(&bytes)).unwrap(), tensors);
    }

    #[test]
    fn any_safetensors(tensors in any_tensors(&NPZ_TYPES)) {
        let named: Vec<_> = tensors.clone().into_iter().collect();
        let bytes = written(|path| safetensors::write(path, &named, &BTreeMap::new()));
        prop_assert_eq!(safetensors::read(&source(&bytes)).unwrap().tensors, tensors);
    }

    #[test]
    fn any_ctranslate2(variables in any_tensors(&CTRANSLATE2_TYPES), version in 4u32..=6) {
        let (spec, aliases) = (String::new(), BTreeMap::new());
        let model = ctranslate2::Model { version, spec, revision: 3, variables, aliases };
        let bytes = written(|path| ctranslate2::write(path, &model));
        prop_assert_eq!(ctranslate2::read(&source(&bytes)).unwrap(), model);
    }

    #[test]
    fn any_marian_bin(tensors in any_tensors(&NPZ_TYPES[..11])) {
        let item = |(name, tensor): (String, Tensor)| Item {
            name,
            kind: Kind::Plain(tensor.dtype),
            dialect: None,
            shape: tensor.shape,
            data: tensor.data,
        };
        let items: Vec<_> = tensors.into_iter().map(item).collect();
        let bytes = written(|path| marian_bin::write(path, &items));
        prop_assert_eq!(marian_bin::read(&source(&bytes)).unwrap(), items);
    }

    #[test]
    fn any_shortlist(lists in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..5), 0..9)) {
        let list = Shortlist::new(100, 5, &lists);
        let bytes = written(|path| shortlist::write(path, &list));
        let read = shortlist::read(&source(&bytes)).unwrap();
        for (word, list) in lists.iter().enumerate() {
            prop_assert_eq!(read.list(word as u32), list);
        }
    }

    /// Any view that lies within its storage has the elements that its strides say.
    #[test]
    fn any_pytorch_view(
        dimensions in prop::collection::vec((1i64..4, 0i64..9), 0..4),
        offset in 0i64..9,
    ) {
        let (shape, strides): (Vec<i64>, Vec<i64>) = dimensions.iter().copied().unzip();
        let storage: Vec<u8> = (0..100).collect();
        let mut rebuild = samples::torch_rebuild(&shape, &strides);
        rebuild.storage_type = "ByteStorage";
        rebuild.elements = 100;
        rebuild.offset = offset;
        let pickle = crate::pickles::state_dict(&[("x", rebuild.pickle())]);
        let bytes = crate::pickles::torch_file(&pickle, &[("0", &storage)]);
        let mut expected = vec![offset];
        for (size, stride) in dimensions {
            let step = |start: i64| (0..size).map(move |index| start + index * stride);
            expected = expected.into_iter().flat_map(step).collect();
        }
        prop_assert_eq!(pytorch::read(&source(&bytes)).unwrap()["x"].to_i64(), Some(expected));
    }
}
