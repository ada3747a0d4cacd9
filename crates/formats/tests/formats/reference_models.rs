//! Files of real programs: read only where the folder with the reference models is present.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use peregrine_formats::marian_bin::{self, Dialect, Item, Kind};
use peregrine_formats::{DType, Source, ctranslate2, npz, safetensors, shortlist};

use crate::reference;
use crate::samples::{source, written};

/// The folder of reference models, if there is one.
fn models() -> Option<PathBuf> {
    reference::shared("models")
}

/// All files below a folder whose names end in a suffix.
fn find(folder: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(find(&path, suffix));
        } else if path.to_string_lossy().ends_with(suffix) {
            found.push(path);
        }
    }
    found
}

fn item<'a>(items: &'a [Item], name: &str) -> &'a Item {
    items.iter().find(|item| item.name == name).unwrap()
}

fn multiplier(items: &[Item], name: &str) -> f64 {
    match item(items, name).kind {
        Kind::IntGemm8 { multiplier } => multiplier.into(),
        kind => panic!("{name} is {kind:?}"),
    }
}

fn scalar(items: &[Item], name: &str) -> f64 {
    let data = item(items, name).data.first_chunk().unwrap();
    f32::from_le_bytes(*data).into()
}

#[test]
fn every_golden_npz() {
    let Some(models) = models() else { return };
    let mut identical = Vec::new();
    for path in find(&models, ".npz") {
        let opened = Source::open(&path).unwrap();
        let tensors = npz::read(&opened).unwrap();
        assert!(tensors.len() > 10, "{}", path.display());
        let again = written(|path| npz::write(path, &tensors));
        assert_eq!(npz::read(&source(&again)).unwrap(), tensors, "{}", path.display());
        if again == *opened.bytes {
            identical.push(path);
        }
    }
    let written_by_marian = models.join("golden/transformer-post/model.npz");
    assert!(identical.contains(&written_by_marian), "written again byte for byte: {identical:?}");
}

#[test]
fn every_golden_safetensors() {
    let Some(models) = models() else { return };
    for path in find(&models, ".safetensors") {
        let file = safetensors::read(&Source::open(&path).unwrap()).unwrap();
        assert!(!file.tensors.is_empty(), "{}", path.display());
        let named: Vec<_> = file.tensors.clone().into_iter().collect();
        let again = written(|path| safetensors::write(path, &named, &file.metadata));
        assert_eq!(safetensors::read(&source(&again)).unwrap(), file, "{}", path.display());
    }
}

#[test]
fn float_bin_equals_npz() {
    let Some(models) = models() else { return };
    let folder = models.join("golden/transformer-post");
    let tensors = npz::read(&Source::open(&folder.join("model.npz")).unwrap()).unwrap();
    let opened = Source::open(&folder.join("model.bin")).unwrap();
    let items = marian_bin::read(&opened).unwrap();
    let again = written(|path| marian_bin::write(path, &items));
    assert!(again == *opened.bytes, "written again byte for byte");
    assert_eq!(items.len(), tensors.len());
    for item in items.iter().filter(|item| !item.name.starts_with("special:")) {
        let tensor = &tensors[&item.name];
        assert_eq!(item.kind, Kind::Plain(DType::F32), "{}", item.name);
        assert_eq!((&item.shape, &item.data), (&tensor.shape, &tensor.data), "{}", item.name);
    }
}

#[test]
fn every_integer_bin() {
    let Some(models) = models() else { return };
    let paths = find(&models.join("golden"), ".intgemm8.bin");
    assert!(!paths.is_empty());
    for path in paths {
        let items = marian_bin::read(&Source::open(&path).unwrap()).unwrap();
        assert!(items.iter().any(|item| item.dialect == Some(Dialect::Mainline)));
        let again = written(|path| marian_bin::write(path, &items));
        assert_eq!(marian_bin::read(&source(&again)).unwrap(), items, "{}", path.display());
    }
}

#[test]
fn firefox_model() {
    let Some(models) = models() else { return };
    let path = models.join("enpt/model.enpt.intgemm.alphas.bin");
    let items = marian_bin::read(&Source::open(&path).unwrap()).unwrap();
    assert_eq!(items.len(), 195);
    assert_eq!(items[0].name, "Wemb");
    assert_eq!(items[0].shape, [32000, 256]);
    assert_eq!(items[0].dialect, Some(Dialect::Bergamot));
    assert_eq!(items[0].data.len(), 32000 * 256);
    assert_eq!(multiplier(&items, "Wemb"), 153.83001708984375);
    assert_eq!(items[1].name, "Wemb_QuantMultA");
    assert_eq!(*items[1].data, [0x7f]);
    let quantised = 127.0 / multiplier(&items, "Wemb_QuantMultA");
    assert!((quantised - scalar(&items, "none_QuantMultA")).abs() < 1e-6);
    assert_eq!(items[2].name, "decoder_ff_logit_out_b");
    assert_eq!((items[2].kind, items[2].data.len()), (Kind::Plain(DType::F32), 128_000));
    for (name, multiplier_of, alpha, range) in [
        ("decoder_l1_ffn_W1", 109.2332763671875, 22.77467155456543, (-127, 68)),
        ("encoder_l1_self_Wq", 232.27322387695312, 11.843823432922363, (-127, 84)),
    ] {
        assert_eq!(multiplier(&items, name), multiplier_of);
        assert_eq!(scalar(&items, &format!("{name}_QuantMultA")), alpha);
        let integers = || item(&items, name).data.iter().map(|&byte| byte as i8);
        assert_eq!((integers().min().unwrap(), integers().max().unwrap()), range);
    }
    assert_eq!(scalar(&items, "none_QuantMultA"), 8.778423309326172);
    let last = items.last().unwrap();
    assert_eq!((last.name.as_str(), last.data.len()), ("special:model.yml", 1124));
    let again = written(|path| marian_bin::write(path, &items));
    assert_eq!(marian_bin::read(&source(&again)).unwrap(), items);
}

#[test]
fn firefox_shortlist() {
    let Some(models) = models() else { return };
    let opened = Source::open(&models.join("enpt/lex.50.50.enpt.s2t.bin")).unwrap();
    assert_eq!(opened.bytes[8..16], 0xb74b_febc_2550_4cc1u64.to_le_bytes());
    let list = shortlist::read(&opened).unwrap();
    assert_eq!((list.first, list.best, list.source_words()), (50, 50, 32000));
    let words: usize = (0..32000).map(|word| list.list(word).len()).sum();
    assert_eq!(words, 1_054_118);
    assert!(list.list(0).is_empty());
    let again = written(|path| shortlist::write(path, &list));
    assert_eq!(again, *opened.bytes);
}

#[test]
fn ctranslate2_model() {
    let Some(folder) = env::var_os("PEREGRINE_ZHEN") else {
        eprintln!("skipped: PEREGRINE_ZHEN is not set");
        return;
    };
    let opened = Source::open(&Path::new(&folder).join("model/model.bin")).unwrap();
    let model = ctranslate2::read(&opened).unwrap();
    assert_eq!(model.spec, "TransformerSpec");
    assert!(model.variables.len() > 100);
    let again = written(|path| ctranslate2::write(path, &model));
    assert_eq!(ctranslate2::read(&source(&again)).unwrap(), model);
    assert!(again == *opened.bytes, "written again byte for byte");
}
