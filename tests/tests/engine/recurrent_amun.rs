//! Amun: its configuration, and its mixed network (multiplicative LSTMs, and a GRU after attention)
//! under its own names and in its own order of gates, against its equations written down plainly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use peregrine::{Compute, Dialect, OpenOptions, Request, Translator};
use peregrine_formats::{Tensor, npz};

type Arrays = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

const WORDS: usize = 12;
const E: usize = 5;
const D: usize = 7;

struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32 * 2.0 - 1.0
    }
}

/// The parameters of Amun's second system.
fn mixed_network(seed: u64) -> Arrays {
    let mut random = Random(seed);
    let mut arrays = Arrays::new();
    let mut add = |name: &str, shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|_| random.next() * 0.7).collect();
        arrays.insert(name.into(), (shape.to_vec(), values));
    };
    add("Wemb", &[WORDS, E]);
    add("Wemb_dec", &[WORDS, E]);
    for p in ["encoder", "encoder_r", "decoder"] {
        add(&format!("{p}_W"), &[E, 4 * D]);
        add(&format!("{p}_U"), &[D, 4 * D]);
        add(&format!("{p}_b"), &[4 * D]);
        add(&format!("{p}_Wm"), &[E, D]);
        add(&format!("{p}_bm"), &[D]);
        add(&format!("{p}_Um"), &[D, D]);
        add(&format!("{p}_bmu"), &[D]);
    }
    for (name, shape) in [
        ("ff_state_W", vec![2 * D, D]),
        ("ff_state_b", vec![D]),
        ("decoder_Wc_att", vec![2 * D, 2 * D]),
        ("decoder_W_comb_att", vec![D, 2 * D]),
        ("decoder_b_att", vec![2 * D]),
        ("decoder_U_att", vec![2 * D, 1]),
        ("decoder_c_tt", vec![1]),
        ("decoder_Wc", vec![2 * D, 2 * D]),
        ("decoder_Wcx", vec![2 * D, D]),
        ("decoder_U_nl", vec![D, 2 * D]),
        ("decoder_Ux_nl", vec![D, D]),
        ("decoder_b_nl", vec![2 * D]),
        ("decoder_bx_nl", vec![D]),
        ("ff_logit_lstm_W", vec![D, E]),
        ("ff_logit_lstm_b", vec![E]),
        ("ff_logit_prev_W", vec![E, E]),
        ("ff_logit_prev_b", vec![E]),
        ("ff_logit_ctx_W", vec![2 * D, E]),
        ("ff_logit_ctx_b", vec![E]),
        ("ff_logit_W", vec![E, WORDS]),
        ("ff_logit_b", vec![WORDS]),
    ] {
        add(name, &shape);
    }
    arrays
}

/// A shallow GRU network under the same names.
fn gru_network(seed: u64) -> Arrays {
    let mut arrays = mixed_network(seed);
    let mut random = Random(seed + 1);
    for p in ["encoder", "encoder_r", "decoder"] {
        for (suffix, shape) in [
            ("W", vec![E, 2 * D]),
            ("U", vec![D, 2 * D]),
            ("b", vec![2 * D]),
            ("Wx", vec![E, D]),
            ("Ux", vec![D, D]),
            ("bx", vec![D]),
        ] {
            let values = (0..shape.iter().product()).map(|_| random.next() * 0.7).collect();
            arrays.insert(format!("{p}_{suffix}"), (shape, values));
        }
        for suffix in ["Wm", "bm", "Um", "bmu"] {
            arrays.remove(&format!("{p}_{suffix}"));
        }
    }
    arrays
}

fn write(arrays: &Arrays, path: &Path) {
    let tensors =
        arrays.iter().map(|(name, (shape, v))| (name.clone(), Tensor::from_f32(shape.clone(), v)));
    npz::write(path, &tensors.collect()).unwrap();
}

fn vocabulary(words: usize) -> String {
    let names = (0..words).map(|id| match id {
        0 => "\"eos\": 0".to_owned(),
        1 => "\"UNK\": 1".to_owned(),
        id => format!("\"w{id}\": {id}"),
    });
    format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
}

/// A folder with two networks, vocabularies and a configuration.
fn set_up(config: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    write(&mixed_network(3), &folder.path().join("mixed.npz"));
    write(&gru_network(4), &folder.path().join("gru.npz"));
    std::fs::write(folder.path().join("src.json"), vocabulary(WORDS)).unwrap();
    std::fs::write(folder.path().join("trg.json"), vocabulary(WORDS)).unwrap();
    std::fs::write(folder.path().join("big.json"), vocabulary(WORDS + 3)).unwrap();
    std::fs::write(folder.path().join("small.json"), vocabulary(WORDS / 2 - 1)).unwrap();
    std::fs::write(folder.path().join("lex"), "w5\tw6\t0.5\nw5\tw7\t0.4\nw3\tw8\t0.9\n").unwrap();
    std::fs::write(folder.path().join("codes"), "#version: 0.2\nw 5</w>\n").unwrap();
    let path = folder.path().join("config.yml");
    std::fs::write(&path, config).unwrap();
    (folder, path)
}

fn open(config: &Path) -> Result<Translator, String> {
    let options = OpenOptions { config: Some(config.into()), ..OpenOptions::default() };
    let model = peregrine::model::open(&[], &options).map_err(|error| error.to_string())?;
    Translator::prepare(model, &Compute::float32()).map_err(|error| error.to_string())
}

const MIXED: &str = "relative-paths: yes
scorers:
  F0: { path: mixed.npz, type: Nematus, enc-cell: mlstm, dec-cell: mlstm, dec-cell-2: gru }
weights: { F0: 1.0 }
source-vocab: src.json
target-vocab: trg.json
beam-size: 3
normalize: yes
";

/// Amun's equations, line by line.
struct Amun<'a>(&'a Arrays);

impl Amun<'_> {
    fn product(&self, x: &[f64], name: &str) -> Vec<f64> {
        let (shape, values) = &self.0[name];
        let columns = shape[1];
        (0..columns)
            .map(|c| {
                x.iter().enumerate().map(|(r, x)| x * f64::from(values[r * columns + c])).sum()
            })
            .collect()
    }

    fn vector(&self, name: &str) -> Vec<f64> {
        self.0[name].1.iter().map(|&v| f64::from(v)).collect()
    }

    fn affine(&self, x: &[f64], matrix: &str, bias: &str) -> Vec<f64> {
        self.product(x, matrix).iter().zip(self.vector(bias)).map(|(a, b)| a + b).collect()
    }

    fn mlstm(&self, p: &str, x: &[f64], h: &[f64], c: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let a = self.affine(x, &format!("{p}_Wm"), &format!("{p}_bm"));
        let s = self.affine(h, &format!("{p}_Um"), &format!("{p}_bmu"));
        let m: Vec<f64> = a.iter().zip(&s).map(|(a, s)| a * s).collect();
        let x = self.affine(x, &format!("{p}_W"), &format!("{p}_b"));
        let u = self.product(&m, &format!("{p}_U"));
        let g = |part: usize, i: usize| x[part * D + i] + u[part * D + i];
        let (mut h2, mut c2) = (vec![0.0; D], vec![0.0; D]);
        for i in 0..D {
            // f, i, o, candidate
            c2[i] = sigmoid(g(0, i)) * c[i] + sigmoid(g(1, i)) * g(3, i).tanh();
            h2[i] = sigmoid(g(2, i)) * c2[i].tanh();
        }
        (h2, c2)
    }

    fn second(&self, context: &[f64], h: &[f64]) -> Vec<f64> {
        let (w, wx) = (self.product(context, "decoder_Wc"), self.product(context, "decoder_Wcx"));
        let u = self.affine(h, "decoder_U_nl", "decoder_b_nl");
        let ux = self.affine(h, "decoder_Ux_nl", "decoder_bx_nl");
        (0..D)
            .map(|i| {
                let (r, z) = (sigmoid(w[i] + u[i]), sigmoid(w[D + i] + u[D + i]));
                (1.0 - z) * (wx[i] + r * ux[i]).tanh() + z * h[i]
            })
            .collect()
    }

    fn embedding(&self, name: &str, id: u32) -> Vec<f64> {
        self.vector(name)[id as usize * E..][..E].to_vec()
    }

    fn scores(&self, source: &[u32], target: &[u32]) -> Vec<f64> {
        let n = source.len();
        let zeros = || (vec![0.0; D], vec![0.0; D]);
        let mut contexts = vec![vec![0.0; 2 * D]; n];
        for (p, half) in [("encoder", 0), ("encoder_r", 1)] {
            let (mut h, mut c) = zeros();
            for k in 0..n {
                let t = if half == 0 { k } else { n - 1 - k };
                (h, c) = self.mlstm(p, &self.embedding("Wemb", source[t]), &h, &c);
                contexts[t][half * D..][..D].copy_from_slice(&h);
            }
        }
        let mean: Vec<f64> =
            (0..2 * D).map(|i| contexts.iter().map(|c| c[i]).sum::<f64>() / n as f64).collect();
        let start = self.affine(&mean, "ff_state_W", "ff_state_b");
        let mut h: Vec<f64> = start.iter().map(|v| v.tanh()).collect();
        let mut c = vec![0.0; D];
        let mut e = vec![0.0; E];
        let mut scores = Vec::new();
        for &word in target {
            let h1;
            (h1, c) = self.mlstm("decoder", &e, &h, &c);
            let query = self.product(&h1, "decoder_W_comb_att");
            let energy = self.vector("decoder_U_att");
            let weight = |s: &Vec<f64>| -> f64 {
                let key = self.affine(s, "decoder_Wc_att", "decoder_b_att");
                let terms = key.iter().zip(&query).zip(&energy);
                terms.map(|((k, q), e)| (k + q).tanh() * e).sum::<f64>().exp()
            };
            let weights: Vec<f64> = contexts.iter().map(weight).collect();
            let sum: f64 = weights.iter().sum();
            let context: Vec<f64> = (0..2 * D)
                .map(|i| contexts.iter().zip(&weights).map(|(c, w)| c[i] * w / sum).sum())
                .collect();
            h = self.second(&context, &h1);
            let parts = [
                self.affine(&h, "ff_logit_lstm_W", "ff_logit_lstm_b"),
                self.affine(&e, "ff_logit_prev_W", "ff_logit_prev_b"),
                self.affine(&context, "ff_logit_ctx_W", "ff_logit_ctx_b"),
            ];
            let t: Vec<f64> =
                (0..E).map(|i| (parts[0][i] + parts[1][i] + parts[2][i]).tanh()).collect();
            let logits = self.affine(&t, "ff_logit_W", "ff_logit_b");
            let all: f64 = logits.iter().map(|l| l.exp()).sum();
            scores.push(logits[word as usize] - all.ln());
            e = self.embedding("Wemb_dec", word);
        }
        scores
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn the_mixed_network_follows_amuns_equations() {
    let (_folder, config) = set_up(MIXED);
    let translator = open(&config).unwrap();
    let model = translator.model();
    assert_eq!(model.dialect, Dialect::Amun);
    assert_eq!((model.search.beam, model.search.normalize), (3, 1.0));
    assert_eq!(model.search.max_length_factor, Some(2.0));
    let arrays = mixed_network(3);
    for (source, target) in [(vec![5, 3, 9], vec![2, 7]), (vec![4], vec![11, 6, 3, 2])] {
        let text = |ids: &[u32]| ids.iter().map(|i| format!("w{i}")).collect::<Vec<_>>().join(" ");
        let (s, t) = (text(&source), text(&target));
        let scored = translator.score(&[(&s, &t)], &translator.options()).unwrap();
        let with_end = |ids: &[u32]| -> Vec<u32> { ids.iter().copied().chain([0]).collect() };
        let expected = Amun(&arrays).scores(&with_end(&source), &with_end(&target));
        assert_eq!(scored[0].token_scores.len(), expected.len());
        for (got, want) in scored[0].token_scores.iter().zip(expected) {
            assert!((f64::from(*got) - want).abs() < 1e-4, "{got} for {want}");
        }
    }
}

#[test]
fn scorers_are_an_ensemble_and_filters_and_codes_are_followed() {
    let config = "relative-paths: true
scorers:
  F0: { path: mixed.npz, type: Nematus, enc-cell: mlstm, dec-cell: mlstm, dec-cell-2: gru }
  F1: { path: gru.npz, type: nematus2 }
weights: { F0: 0.75, F1: 0.25 }
source-vocab: [src.json]
target-vocab: trg.json
bpe: codes
softmax-filter: [lex, 3, 2]
allow-unk: yes
";
    let (_folder, config) = set_up(config);
    let translator = open(&config).unwrap();
    let model = translator.model();
    assert_eq!(model.members.len(), 2);
    assert_eq!(model.member_weights, [0.75, 0.25]);
    assert!(model.search.allow_unk);
    // Always the first three words; the table's lines with tabs begin with the source word.
    let shortlist = model.shortlist.as_ref().unwrap();
    assert_eq!(shortlist.list(5), [6, 7]);
    assert_eq!(shortlist.list(3), [8]);
    let requests = ["w5 w3", ""].map(Request::new);
    let translations = translator.translate_batch(&requests, &translator.options());
    assert_eq!(translations.unwrap().len(), 2);
}

#[test]
fn a_folder_with_amuns_configuration_opens() {
    let (folder, _config) = set_up(MIXED);
    let path = [folder.path().to_path_buf()];
    let model = peregrine::model::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(model.dialect, Dialect::Amun);
}

#[test]
fn every_bad_configuration_has_one_clear_error() {
    let changed = |from: &str, to: &str| {
        assert!(MIXED.contains(from), "{from}");
        MIXED.replace(from, to)
    };
    for (config, expected) in [
        (changed("path: mixed.npz", "path: none.npz"), "scorers: F0: path: there is no file"),
        (changed("src.json", "nothing.json"), "source-vocab: there is no file"),
        (changed("target-vocab: trg.json\n", ""), "target-vocab is missing"),
        (changed("{ F0: 1.0 }", "{ F0: 1.0, F7: 1.0 }"), "weights: F7: there is no such scorer"),
        (changed("{ F0: 1.0 }", "{ F1: 1.0 }"), "scorers: F0 has no weight"),
        (changed("{ F0: 1.0 }", "{ F0: much }"), "weights: F0: expected a number"),
        (changed("weights: { F0: 1.0 }\n", ""), "weights: expected"),
        (changed("dec-cell-2: gru", "dec-cell-2: cnn"), "dec-cell-2: \"cnn\": expected gru"),
        (changed("type: Nematus", "type: Moses"), "type: \"Moses\" is not supported"),
        (changed("src.json", "big.json"), "the source vocabulary has 15 words, the model 12 rows"),
        (changed("trg.json", "big.json"), "the target vocabulary has 15 words, the model 12 rows"),
        (changed("trg.json", "small.json"), "the target vocabulary has 5 words, the model 12 rows"),
        (changed("enc-cell: mlstm", "enc-cell: gru"), "missing tensor encoder_bi_Wx"),
        (format!("{MIXED}softmax-filter: [gone, 1, 2]\n"), "softmax-filter: there is no file"),
        (format!("{MIXED}bpe: gone\n"), "bpe: there is no file"),
    ] {
        let (_folder, path) = set_up(&config);
        let error = open(&path).err().unwrap_or_else(|| panic!("no error for {expected}"));
        assert!(error.contains(expected) && !error.contains('\n'), "{error}\nexpected {expected}");
    }
}
