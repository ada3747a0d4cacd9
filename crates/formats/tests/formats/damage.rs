//! Archives with a changed byte: their checksums tell.

use peregrine_formats::{Error, Source, Tensor, Tensors, npz, pytorch};

use crate::archive::{Member, archive};
use crate::samples::{source, torch_storage};

/// Every bit of `part`, which lies somewhere in `file`, changed by itself; each must be noticed.
fn flip_bits(file: &[u8], part: &[u8], read: impl Fn(&Source) -> Result<Tensors, Error>) {
    let start = file.windows(part.len()).position(|window| window == part).unwrap();
    read(&source(file)).unwrap();
    for offset in start..start + part.len() {
        for bit in 0..8 {
            let mut damaged = file.to_vec();
            damaged[offset] ^= 1 << bit;
            let error = read(&source(&damaged)).unwrap_err().to_string();
            assert!(error.ends_with(": the data is damaged"), "byte {offset}, bit {bit}: {error}");
        }
    }
}

#[test]
fn stored_arrays() {
    let values: Vec<f32> = (0..40).map(|i| i as f32 * 0.37 - 3.0).collect();
    let tensor = Tensor::from_f32(vec![5, 8], &values);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.npz");
    let other = Tensor::from_f32(vec![1], &[1.0]);
    let tensors = Tensors::from([("W".into(), tensor.clone()), ("b".into(), other)]);
    npz::write(&path, &tensors).unwrap();
    let file = std::fs::read(&path).unwrap();
    flip_bits(&file, &tensor.data, npz::read);
    // The header too, whose own errors would not say what the cause is.
    flip_bits(&file, b"'fortran_order'", npz::read);

    let mut damaged = file.clone();
    let at = file.windows(4).position(|window| window == values[7].to_le_bytes()).unwrap();
    damaged[at] ^= 0x40;
    std::fs::write(&path, damaged).unwrap();
    let error = npz::read(&Source::open(&path).unwrap()).unwrap_err().to_string();
    let start = format!("{}: W.npy: checksum ", path.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(error.contains(", expected "), "{error}");
}

#[test]
fn large_archives_are_verified_on_several_threads() {
    let data: Vec<i8> = (0..6 << 20).map(|i| (i * 31) as i8).collect();
    let tensor = Tensor::from_i8(vec![data.len()], &data);
    let names = (0..4).map(|i| (format!("W{i}"), tensor.clone()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.npz");
    npz::write(&path, &names.collect()).unwrap();
    let tensors = npz::read(&Source::open(&path).unwrap()).unwrap();
    assert!(tensors.values().all(|read| *read == tensor));
    drop(tensors);
    let mut file = std::fs::read(&path).unwrap();
    for quarter in [3, 1] {
        let at = quarter * (file.len() / 4) + 1000;
        file[at] ^= 1;
    }
    let error = npz::read(&source(&file)).unwrap_err().to_string();
    assert!(error.contains("W1.npy: checksum "), "the first of two: {error}");
}

#[test]
fn pytorch_storages_and_pickles() {
    let sample = crate::samples::all().iter().find(|sample| sample.name == "PyTorch").unwrap();
    flip_bits(&sample.bytes, b"_rebuild_tensor_v2", pytorch::read);
    flip_bits(&sample.bytes, &torch_storage(), pytorch::read);
}

/// PyTorch leaves checksums out where it is told so.
#[test]
fn a_checksum_of_zero_is_none() {
    let sample = crate::samples::all().iter().find(|sample| sample.name == "npz").unwrap();
    let tensors = npz::read(&source(&sample.bytes)).unwrap();
    let (_, tensor) = tensors.iter().next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.npz");
    npz::write(&path, &Tensors::from([("x".into(), tensor.clone())])).unwrap();
    let file = std::fs::read(&path).unwrap();
    // The only member's content: behind a header of 30 bytes and a name of 5.
    let length = u32::from_le_bytes(file[22..26].try_into().unwrap()) as usize;
    let mut member = Member::stored("x.npy", &file[35..35 + length]);
    member.checksum = 0;
    assert_eq!(npz::read(&source(&archive(&[member.clone()]))).unwrap()["x"], *tensor);
    member.checksum = 1;
    let error = npz::read(&source(&archive(&[member]))).unwrap_err().to_string();
    assert!(error.contains("x.npy: checksum ") && error.contains("expected 00000001"), "{error}");
}
