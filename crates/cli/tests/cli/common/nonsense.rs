//! A small random model that translates tens of thousands of lines in a second.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use peregrine::model::{
    Architecture, Autoregression, Member, Transformer, TransformerSize, marian_transformer,
    random_transformer, save,
};
use peregrine::{Dialect, Model, Search};
use peregrine_text::Tokenizer;

/// A model that speaks nonsense, fast, in a directory of its own.
pub(crate) struct Nonsense {
    pub(crate) directory: tempfile::TempDir,
}

impl Nonsense {
    pub(crate) fn new() -> Nonsense {
        let directory = tempfile::tempdir().expect("a directory");
        Nonsense::save(&directory.path().join("model.peregrine"), 3);
        Nonsense { directory }
    }

    /// Writes such a model; others for other seeds.
    pub(crate) fn save(path: &Path, seed: u64) {
        const WORDS: usize = 200;
        let size = TransformerSize {
            width: 16,
            inner: 16,
            heads: 2,
            encoder_layers: 1,
            decoder_layers: 1,
            words: WORDS,
        };
        let autoregression = Autoregression::Ssru { layer_norm: false, projection: false };
        let description = Transformer { autoregression, ..marian_transformer(size) };
        let words: String = (2..WORDS).map(|i| format!("w{i}\n")).collect();
        let vocabulary = format!("</s>\n<unk>\n{words}");
        let tokenizer = Tokenizer::words("vocab.txt", vocabulary.as_bytes().into(), None);
        let tokenizer = Arc::new(tokenizer.expect("a list of words"));
        let weights = random_transformer(&description, seed);
        let architecture = Architecture::Transformer(description);
        let search =
            Search { beam: 1, max_length_factor: Some(1.0), ..Search::of(Dialect::Marian) };
        let model = Model {
            dialect: Dialect::Marian,
            members: vec![Member { path: "nonsense".into(), architecture, weights }],
            member_weights: vec![1.0],
            source: Arc::clone(&tokenizer),
            target: tokenizer,
            search,
            shortlist: None,
            languages: None,
            notes: Vec::new(),
        };
        save(&model, path, None).expect("a saved model");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn translate(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
        command.arg("translate").arg("-m").arg(self.path("model.peregrine"));
        command.args(arguments).current_dir(self.directory.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.translate(arguments).output().expect("the command")
    }
}

/// Lines of every kind, always the same, some of them no UTF-8.
pub(crate) fn odd_lines(count: u32) -> Vec<u8> {
    let mut text = Vec::new();
    for i in 0..count {
        match i % 97 {
            0 => {}
            1 => text.extend(b"w5 \xff\xfe w7 \xc3"),
            2 => text.extend(b"  \t "),
            3 if i % 9700 == 3 => text.extend("w11 w12 w13 ".repeat(2_000).bytes()),
            _ => {
                for j in 0..1 + (i * 7 + i / 13) % 19 {
                    text.extend(format!("w{} ", 2 + (i + j * 31) % 210).bytes());
                }
            }
        }
        text.extend(if i % 50 == 7 { b"\r\n".as_slice() } else { b"\n" });
    }
    text
}

pub(crate) fn lines(path: &Path) -> usize {
    std::fs::read(path).expect("a file").iter().filter(|&&byte| byte == b'\n').count()
}

#[track_caller]
pub(crate) fn assert_fine(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
