//! What the targets share: a network small enough to be opened thousands of times a second, a folder for
//! its files, and what is tried on every model that opens and on every document that can be read.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use peregrine_document::{Block, Document, Format, Link, Options, Translated};
use peregrine_model::{
    Architecture, Model, ModelError, OpenOptions, TransformerSize, export, made_up_model,
    marian_transformer, open,
};
use tempfile::TempDir;

/// A transformer of one layer and 12 words.
pub fn small_model() -> Model {
    let size = TransformerSize {
        width: 4,
        inner: 4,
        heads: 2,
        encoder_layers: 1,
        decoder_layers: 1,
        words: 12,
    };
    let network = Architecture::Transformer(marian_transformer(size));
    made_up_model(network, 1).expect("a model")
}

/// A folder with the files of a model, which a target changes in each run.
pub struct Folder(TempDir);

impl Folder {
    /// Marian's `model.npz` and `vocab.yml`.
    pub fn marian() -> Folder {
        let folder = Folder(TempDir::new().expect("a folder"));
        let model = small_model();
        export::marian_npz(&model.members[0], &folder.path("model.npz")).expect("model.npz");
        folder.write("vocab.yml", words(&model).as_bytes());
        folder
    }

    /// A CTranslate2 directory.
    pub fn ctranslate2() -> Folder {
        let folder = Folder(TempDir::new().expect("a folder"));
        export::ctranslate2(&small_model(), folder.0.path()).expect("a directory");
        folder
    }

    /// A checkpoint for Hugging Face's MarianMT.
    pub fn huggingface() -> Folder {
        let folder = Folder(TempDir::new().expect("a folder"));
        export::huggingface(&small_model(), folder.0.path()).expect("a checkpoint");
        folder
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Replaces a file.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a file");
    }

    /// Opens the folder, or a file in it.
    pub fn open(&self, name: &str) -> Result<Model, ModelError> {
        open(&[self.path(name)], &OpenOptions::default())
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        self.0.path()
    }
}

/// The text of the small model's `vocab.yml`.
fn words(model: &Model) -> String {
    let ids = 0..model.source.size() as u32;
    ids.map(|id| format!("{:?}: {id}\n", model.source.token(id))).collect()
}

/// A model is refused with a message of one line, or it reads and writes text without a fault.
pub fn check(opened: Result<Model, ModelError>) {
    let model = match opened {
        Ok(model) => model,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains('\n'), "{message:?}");
            return;
        }
    };
    let ids = model.source.encode("w2 w3 <unk> </s> w99").ids;
    model.target.decode(&ids);
    for member in &model.members {
        let framed = member.architecture.source_frame().frame(&ids);
        if let Some(shortlist) = &model.shortlist {
            let words = shortlist.select(&framed);
            assert!(words.is_sorted(), "{words:?}");
            let size = member.architecture.target_vocabulary();
            assert!(words.last().is_none_or(|&word| (word as usize) < size), "{words:?} of {size}");
        }
    }
    model.describe();
}

/// A document is refused with a message of one line, or a copy of it is the same bytes, and its blocks can be turned round.
pub fn check_document(bytes: &[u8], format: Format) {
    let mut options = Options::default();
    options.attributes = true;
    options.wrapped = bytes.len() % 2 == 0;
    let document = match Document::read(bytes.to_vec(), format, &options) {
        Ok(document) => document,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    assert!(copied(&document) == bytes, "a copy differs");
    check_new(&document);
}

/// The same for a document whose empty translations are filled: filled with copies there is nothing left to fill.
pub fn check_filled(bytes: &[u8], format: Format) {
    let options = Options::default();
    let document = match Document::read(bytes.to_vec(), format, &options) {
        Ok(document) => document,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    let filled = copied(&document);
    let again = Document::read(filled.clone(), format, &options).expect("a filled document");
    assert!(copied(&again) == filled, "a copy of a filled document differs");
    check_new(&document);
}

/// A document whose blocks come back as they are.
fn copied(document: &Document) -> Vec<u8> {
    let copy: Vec<Translated> = document.blocks().iter().map(Translated::copy).collect();
    document.write(&copy).bytes
}

fn check_new(document: &Document) {
    let new: Vec<Translated> = document.blocks().iter().map(turned_round).collect();
    let whole = document.write(&new).bytes;
    let (mut parts, mut first) = (Vec::new(), 0);
    for count in (1..=new.len()).filter(|&count| document.ready(count)) {
        parts.extend(document.write_part(first, &new[first..count]).bytes);
        first = count;
    }
    assert!(new.is_empty() || parts == whole, "in parts it differs");
}

/// What is written with other words can be read again.
pub fn check_readable(bytes: &[u8], format: Format) {
    let options = Options::default();
    let Ok(document) = Document::read(bytes.to_vec(), format, &options) else { return };
    let new: Vec<Translated> = document.blocks().iter().map(turned_round).collect();
    let written = document.write(&new).bytes;
    if let Err(error) = Document::read(written, format, &options) {
        panic!("{error}");
    }
}

/// A zip archive of entries that are not packed.
pub fn stored_archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in entries {
        let length = (content.len() as u32).to_le_bytes();
        // The version, no flags, stored, no date; the checksum and both sizes; the length of the name and of nothing else.
        let mut header = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header.extend(checksum(content).to_le_bytes());
        header.extend([length, length].concat());
        header.extend((name.len() as u32).to_le_bytes());
        directory.extend([b"PK\x01\x02\x14\0", header.as_slice(), &[0; 10]].concat());
        directory.extend((archive.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        archive.extend([b"PK\x03\x04", header.as_slice(), name.as_bytes(), content].concat());
    }
    let (count, start) = ((entries.len() as u16).to_le_bytes(), (archive.len() as u32).to_le_bytes());
    archive.extend(&directory);
    archive.extend([b"PK\x05\x06\0\0\0\0".as_slice(), &count, &count].concat());
    archive.extend([(directory.len() as u32).to_le_bytes(), start].concat());
    archive.extend([0; 2]);
    archive
}

/// The CRC-32 of some bytes.
fn checksum(bytes: &[u8]) -> u32 {
    let mut rest = !0u32;
    for byte in bytes {
        rest ^= u32::from(*byte);
        for _ in 0..8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ 0xedb8_8320 } else { rest >> 1 };
        }
    }
    !rest
}

/// The words of a block from last to first. Things to be kept are to be looked for.
fn turned_round(block: &Block) -> Translated {
    let mut new = Translated::default();
    let mut end = block.text.len();
    for word in block.text.split(' ').rev() {
        let start = new.text.len();
        new.text.push_str(word);
        new.links.push(Link::new(end - word.len()..end, start..new.text.len(), 0.5));
        new.text.push(' ');
        end = end.saturating_sub(word.len() + 1);
    }
    new
}
