//! `.spm` files written anew as `tokenizer.json`, the way `transformers` converts them.

use serde_json::{Value, json};

/// What a `.spm` file says.
pub(crate) struct Spm {
    /// Texts, scores and types.
    pub(crate) pieces: Vec<(String, f32, u64)>,
    pub(crate) is_bpe: bool,
    byte_fallback: bool,
    charsmap: Vec<u8>,
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
}

const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

impl Spm {
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut spm = Self {
            pieces: Vec::new(),
            is_bpe: false,
            byte_fallback: false,
            charsmap: Vec::new(),
            add_dummy_prefix: true,
            remove_extra_whitespaces: true,
        };
        for (number, _, message) in fields(bytes) {
            for (field, value, bytes) in fields(message) {
                match (number, field) {
                    (1, 1) => {
                        let text = String::from_utf8(bytes.to_vec()).unwrap();
                        spm.pieces.push((text, 0.0, 1));
                    }
                    (1, 2) => spm.pieces.last_mut().unwrap().1 = f32::from_bits(value as u32),
                    (1, 3) => spm.pieces.last_mut().unwrap().2 = value,
                    (2, 3) => spm.is_bpe = value == 2,
                    (2, 35) => spm.byte_fallback = value != 0,
                    (3, 2) => spm.charsmap = bytes.to_vec(),
                    (3, 3) => spm.add_dummy_prefix = value != 0,
                    (3, 4) => spm.remove_extra_whitespaces = value != 0,
                    _ => {}
                }
            }
        }
        spm
    }

    /// With the ids of the model.
    pub(crate) fn tokenizer_json(&self) -> Value {
        let unknown = self.pieces.iter().position(|piece| piece.2 == 2).unwrap();
        let is_added =
            |piece: &&(usize, &(String, f32, u64))| [CONTROL, USER_DEFINED].contains(&piece.1.2);
        let numbered: Vec<_> = self.pieces.iter().enumerate().collect();
        let added = numbered.iter().filter(is_added).map(|(id, (text, _, kind))| {
            json!({"id": id, "content": text, "special": *kind == CONTROL, "lstrip": false})
        });
        let vocab: Value = match self.is_bpe {
            true => numbered.iter().map(|(id, piece)| (piece.0.clone(), json!(id))).collect(),
            false => numbered.iter().map(|(_, piece)| json!([piece.0, piece.1])).collect(),
        };
        let scheme = if self.add_dummy_prefix { "always" } else { "never" };
        let mut normalizers = vec![];
        if !self.charsmap.is_empty() {
            let map = base64(&self.charsmap);
            normalizers.push(json!({"type": "Precompiled", "precompiled_charsmap": map}));
        }
        if self.remove_extra_whitespaces {
            normalizers
                .push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
        }
        json!({
            "version": "1.0",
            "truncation": null,
            "added_tokens": added.collect::<Value>(),
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer":
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true},
            "post_processor": {"type": "TemplateProcessing", "single": [["anything", {"at": "all"}]]},
            "decoder": {"type": "Metaspace", "replacement": "▁"},
            "model": {
                "vocab": vocab,
                "type": if self.is_bpe { "BPE" } else { "Unigram" },
                "unk_id": (!self.is_bpe).then_some(unknown),
                "unk_token": self.is_bpe.then_some("<unk>"),
                "fuse_unk": true,
                "byte_fallback": self.byte_fallback,
                "merges": if self.is_bpe { self.merges() } else { vec![] },
            },
        })
    }

    /// All pairs that make a piece, best score first.
    fn merges(&self) -> Vec<[&str; 2]> {
        let known = |text: &str| self.pieces.iter().any(|piece| piece.0 == text);
        let mut merges = Vec::new();
        for (text, score, _) in &self.pieces {
            let cuts = text.char_indices().map(|(at, _)| text.split_at(at));
            let pairs = cuts.filter(|(left, right)| known(left) && known(right));
            merges.extend(pairs.map(|(left, right)| (*score, [left, right])));
        }
        merges.sort_by(|left, right| right.0.total_cmp(&left.0));
        merges.into_iter().map(|merge| merge.1).collect()
    }
}

/// Number, value of a number and bytes of each field of a protobuf message.
fn fields(mut message: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        fields.push(match key & 7 {
            0 => (key >> 3, varint(&mut message), &[][..]),
            5 => {
                let bytes = message.split_off(..4).unwrap();
                (key >> 3, u32::from_le_bytes(bytes.try_into().unwrap()).into(), &[][..])
            }
            2 => {
                let length = varint(&mut message) as usize;
                (key >> 3, 0, message.split_off(..length).unwrap())
            }
            kind => panic!("wire type {kind}"),
        });
    }
    fields
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = *message.split_off_first().unwrap();
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// Standard base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*group.get(at).unwrap_or(&0)));
        let digit = move |at: usize| DIGITS[(bits >> (18 - 6 * at)) as usize & 63] as char;
        let filled = group.len() + 1;
        (0..4).map(move |at| if at < filled { digit(at) } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}
