//! What several tests share: fixtures, invented text and the optional folder of reference models.

pub(crate) mod spm;

use std::fs;
use std::path::PathBuf;

use peregrine_text::{SentencePiece, UserDefinedScore};

/// The SentencePiece models in the fixtures folder.
pub(crate) const MODELS: [&str; 16] = [
    "unigram",
    "case-folding",
    "bpe",
    "bpe-bytes",
    "unigram-bytes",
    "user-defined",
    "user-defined-bpe",
    "suffix",
    "suffix-bpe",
    "raw",
    "raw-prefix",
    "word",
    "char",
    "ties",
    "unused",
    "unused-bpe",
];

/// A file next to the script that made it.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A fixture parsed as JSON.
pub(crate) fn json(name: &str) -> serde_json::Value {
    serde_json::from_slice(&fixture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// One of [`MODELS`].
pub(crate) fn model(name: &str) -> SentencePiece {
    let file = format!("{name}.spm");
    SentencePiece::from_bytes(&file, &fixture(&file), UserDefinedScore::Zero).unwrap()
}

/// A file of the reference folder beside the repository, if it is there.
pub(crate) fn shared(path: &str) -> Option<Vec<u8>> {
    crate::reference::shared(path).map(|path| fs::read(path).unwrap())
}

/// The lines of a text file.
pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.split('\n').map(str::to_owned).collect()
}

/// A list of ids in JSON.
pub(crate) fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The generator of `make_fixtures.py`.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }
}

const RANGES: [(u32, u32); 22] = [
    (0x20, 0x7E),
    (0x61, 0x7A),
    (0x61, 0x65),
    (0x20, 0x20),
    (0xA0, 0x17F),
    (0x300, 0x36F),
    (0x370, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0x97F),
    (0x1100, 0x11FF),
    (0x1E00, 0x1FFF),
    (0x2000, 0x206F),
    (0x2070, 0x218F),
    (0x2580, 0x259F),
    (0x3000, 0x30FF),
    (0x4E00, 0x4FFF),
    (0xAC00, 0xAFFF),
    (0xF900, 0xFFFD),
    (0x1D400, 0x1D7FF),
    (0x1F300, 0x1F6FF),
    (0x1, 0x1F),
    (0x2581, 0x2581),
];

/// Random characters from many scripts, as `make_fixtures.py` makes them.
pub(crate) fn generated_lines(seed: u64, count: usize) -> Vec<String> {
    let mut dice = Dice(seed);
    (0..count).map(|_| generated_line(&mut dice)).collect()
}

fn generated_line(dice: &mut Dice) -> String {
    let (mut low, mut high) = RANGES[0];
    let length = 1 + dice.below(60);
    let mut line = String::new();
    for _ in 0..length {
        if dice.below(3) == 0 {
            (low, high) = RANGES[dice.below(RANGES.len() as u32) as usize];
        }
        let code = low + dice.below(high - low + 1);
        line.push(if code == 10 { ' ' } else { char::from_u32(code).unwrap() });
    }
    line
}

/// Lines full of ties for the model `ties`, as `make_fixtures.py` makes them.
pub(crate) fn tie_lines(count: usize) -> Vec<String> {
    const PARTS: [&str; 14] = [
        "a", "a", "a", "b", "c", "c", "c", " ", "☃", "aaaa", "cacaca", "bbbbbb", "cccccccc",
        "abababab",
    ];
    let mut dice = Dice(7);
    let line = |_| {
        let length = 1 + dice.below(20);
        (0..length).map(|_| PARTS[dice.below(PARTS.len() as u32) as usize]).collect()
    };
    (0..count).map(line).collect()
}
