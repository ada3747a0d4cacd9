//! Recurrent networks against a plain, obviously right implementation: loops over the equations in
//! double precision, one sentence and one number at a time.

use peregrine::measure::Functions;
use peregrine::model::{
    Architecture, CellKind, EncoderKind, Recurrent, RecurrentDecoder, RecurrentEncoder,
    RecurrentNorm, RnnFc, SourceFrame, StartCell, Top, Weights, made_up_model,
};
use peregrine::{Compute, Model, Speedups, Translator};

type Row = Vec<f64>;

/// Weights by name, as double precision.
struct Plain<'a>(&'a Weights);

impl Plain<'_> {
    fn vector(&self, name: &str) -> Option<Row> {
        self.0.get(name).map(|w| w.to_f32().iter().map(|&v| f64::from(v)).collect())
    }

    fn row(&self, name: &str, row: usize) -> Row {
        let weight = self.0.get(name).unwrap_or_else(|| panic!("{name}"));
        let mut out = vec![0.0; weight.columns()];
        weight.read_row(row, &mut out);
        out.iter().map(|&v| f64::from(v)).collect()
    }

    /// `x · Wᵀ + b`, then norms over groups of columns.
    fn dense(&self, name: &str, x: &[f64], norm: RecurrentNorm, groups: &[usize]) -> Row {
        let weight = self.0.get(&format!("{name}.weight")).unwrap_or_else(|| panic!("{name}"));
        let mut y: Row = (0..weight.rows())
            .map(|o| {
                let row = self.row(&format!("{name}.weight"), o);
                row.iter().zip(x).map(|(a, b)| a * b).sum()
            })
            .collect();
        if let Some(bias) = self.vector(&format!("{name}.bias")) {
            y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
        }
        if norm == RecurrentNorm::None {
            return y;
        }
        let scale = self.vector(&format!("{name}.norm.scale")).unwrap();
        let bias = self.vector(&format!("{name}.norm.bias"));
        let mut start = 0;
        for &width in groups {
            let part = &mut y[start..start + width];
            let n = width as f64;
            let mean = part.iter().sum::<f64>() / n;
            let variance = part.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
            let spread = (variance + f64::from(norm.epsilon())).sqrt();
            for (i, v) in part.iter_mut().enumerate() {
                let b = bias.as_ref().map_or(0.0, |b| b[start + i]);
                *v = (*v - mean) / spread * scale[start + i] + b;
            }
            start += width;
        }
        y
    }

    fn simple(&self, name: &str, x: &[f64], norm: RecurrentNorm) -> Row {
        let width = self.0.get(&format!("{name}.weight")).unwrap().rows();
        self.dense(name, x, norm, &[width])
    }

    /// One step of a cell.
    fn cell(
        &self,
        prefix: &str,
        kind: CellKind,
        x: Option<&[f64]>,
        norm: RecurrentNorm,
        (h, c): (Row, Row),
    ) -> (Row, Row) {
        let d = h.len();
        let groups = norm.groups(kind, d);
        let input = match x {
            Some(x) => self.dense(&format!("{prefix}.input"), x, norm, &groups),
            None => self
                .vector(&format!("{prefix}.input.bias"))
                .unwrap_or_else(|| vec![0.0; kind.parts() * d]),
        };
        let mut h = h;
        if let (true, Some(x)) = (kind.is_multiplicative(), x) {
            let a = self.simple(&format!("{prefix}.multiply.input"), x, norm);
            let s = self.simple(&format!("{prefix}.multiply.state"), &h, norm);
            h = a.iter().zip(&s).map(|(a, s)| a * s).collect();
        }
        let state = match kind.has_state_product() {
            true => self.dense(&format!("{prefix}.state"), &h, norm, &groups),
            false => vec![0.0; kind.parts() * d],
        };
        step(kind, &input, &state, x.unwrap_or(&[]), &h, &c)
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The equations of the cells.
fn step(kind: CellKind, x: &[f64], s: &[f64], raw: &[f64], h: &[f64], c: &[f64]) -> (Row, Row) {
    let d = h.len();
    let g = |part: usize, i: usize| x[part * d + i] + s[part * d + i];
    let (mut h2, mut c2) = (h.to_vec(), c.to_vec());
    for i in 0..d {
        match kind {
            CellKind::Gru | CellKind::Mgru => {
                let (r, z) = (sigmoid(g(0, i)), sigmoid(g(1, i)));
                let n = (x[2 * d + i] + r * s[2 * d + i]).tanh();
                h2[i] = (1.0 - z) * n + z * h[i];
            }
            CellKind::Lstm | CellKind::Mlstm => {
                let (f, input) = (sigmoid(g(0, i)), sigmoid(g(1, i)));
                c2[i] = f * c[i] + input * g(2, i).tanh();
                h2[i] = sigmoid(g(3, i)) * c2[i].tanh();
            }
            CellKind::Tanh => h2[i] = g(0, i).tanh(),
            CellKind::Relu => h2[i] = g(0, i).max(0.0),
            CellKind::Sru => {
                let (f, r) = (sigmoid(x[d + i]), sigmoid(x[2 * d + i]));
                c2[i] = f * c[i] + (1.0 - f) * x[i];
                h2[i] = r * c2[i].tanh() + (1.0 - r) * raw[i];
            }
            CellKind::Ssru => {
                let f = sigmoid(x[d + i]);
                c2[i] = f * c[i] + (1.0 - f) * x[i];
                h2[i] = c2[i].max(0.0);
            }
        }
    }
    (h2, c2)
}

fn softmax(scores: &[f64]) -> Row {
    let most = scores.iter().cloned().fold(f64::MIN, f64::max);
    let e: Row = scores.iter().map(|s| (s - most).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|v| v / sum).collect()
}

fn mixed(weights: &[f64], rows: &[Row]) -> Row {
    let mut out = vec![0.0; rows[0].len()];
    for (w, row) in weights.iter().zip(rows) {
        out.iter_mut().zip(row).for_each(|(o, v)| *o += w * v);
    }
    out
}

fn log_probability(p: &Plain<'_>, top: &[f64], word: u32, words: usize) -> f64 {
    let bias = p.vector("output.bias");
    let logit = |o: usize| -> f64 {
        let b = bias.as_ref().map_or(0.0, |b| b[o]);
        p.row("output.weight", o).iter().zip(top).map(|(a, b)| a * b).sum::<f64>() + b
    };
    softmax(&(0..words).map(logit).collect::<Row>())[word as usize].ln()
}

/// Runs a layer over a sentence.
fn layer(
    p: &Plain<'_>,
    cells: &[peregrine::model::CellPlace],
    inputs: &[Row],
    reversed: bool,
    d: usize,
    norm: RecurrentNorm,
) -> Vec<Row> {
    let mut outputs = vec![Vec::new(); inputs.len()];
    let mut state = (vec![0.0; d], vec![0.0; d]);
    for k in 0..inputs.len() {
        let t = if reversed { inputs.len() - 1 - k } else { k };
        for (j, cell) in cells.iter().enumerate() {
            let x = (j == 0).then_some(&inputs[t][..]);
            state = p.cell(&cell.prefix, cell.kind, x, norm, state);
        }
        outputs[t] = state.0.clone();
    }
    outputs
}

fn stack(
    p: &Plain<'_>,
    r: &Recurrent,
    layers: &[Vec<peregrine::model::CellPlace>],
    inputs: Vec<Row>,
    backward: bool,
) -> Vec<Row> {
    let mut rows = inputs;
    for (l, cells) in layers.iter().enumerate() {
        let turned = r.encoder.kind == EncoderKind::Alternating && l % 2 == 1;
        let mut out = layer(p, cells, &rows, backward != turned, r.width, r.cell_norm);
        if l > 0 && r.encoder.skip {
            for (out, x) in out.iter_mut().zip(&rows) {
                out.iter_mut().zip(x).for_each(|(o, x)| *o += x);
            }
        }
        rows = out;
    }
    rows
}

/// Log-probabilities of the words of `target`.
fn recurrent_scores(r: &Recurrent, weights: &Weights, source: &[u32], target: &[u32]) -> Row {
    let p = &Plain(weights);
    let embedded: Vec<Row> =
        source.iter().map(|&id| p.row("source.embedding", id as usize)).collect();
    let forward = stack(p, r, &r.encoder_direction(false), embedded.clone(), false);
    let backward = stack(p, r, &r.encoder_direction(true), embedded, true);
    let both = forward.into_iter().zip(backward).map(|(f, b)| [f, b].concat()).collect();
    let contexts = stack(p, r, &r.top(), both, false);
    let n = contexts.len() as f64;
    let mean = mixed(&vec![1.0 / n; contexts.len()], &contexts);
    let start: Row = p.simple("start", &mean, r.dense_norm).iter().map(|v| v.tanh()).collect();
    let keys: Vec<Row> =
        contexts.iter().map(|c| p.simple("attention.key", c, r.dense_norm)).collect();
    let energy = p.vector("attention.energy").unwrap();
    let cell = match r.decoder.start_cell {
        StartCell::State => start.clone(),
        StartCell::Zero => vec![0.0; r.width],
    };
    let cells = r.decoder_cells();
    let mut states = vec![(start, cell); cells.len()];
    let mut previous = vec![0.0; r.target_embedding];
    let mut scores = Vec::new();
    for &word in target {
        let (base, norm) = (&cells[0], r.cell_norm);
        let mut state =
            p.cell(&base[0].prefix, base[0].kind, Some(&previous), norm, states[0].clone());
        let query = p.simple("attention.query", &state.0, r.dense_norm);
        let energies: Row = keys
            .iter()
            .map(|k| k.iter().zip(&query).zip(&energy).map(|((k, q), e)| e * (k + q).tanh()).sum())
            .collect();
        let context = mixed(&softmax(&energies), &contexts);
        state = p.cell(&base[1].prefix, base[1].kind, Some(&context), norm, state);
        for cell in &base[2..] {
            state = p.cell(&cell.prefix, cell.kind, None, norm, state);
        }
        let mut x = state.0.clone();
        states[0] = state;
        for (l, cells) in cells.iter().enumerate().skip(1) {
            let mut state = states[l].clone();
            for (j, cell) in cells.iter().enumerate() {
                let input = (j == 0).then_some(&x[..]);
                state = p.cell(&cell.prefix, cell.kind, input, norm, state);
            }
            states[l] = state.clone();
            let below = if r.decoder.skip { x } else { vec![0.0; r.width] };
            x = state.0.iter().zip(below).map(|(a, b)| a + b).collect();
        }
        let parts = [("previous", &previous), ("state", &x), ("context", &context)]
            .map(|(name, x)| p.simple(&format!("deep.{name}"), x, r.dense_norm));
        let top: Row =
            (0..parts[0].len()).map(|i| (parts[0][i] + parts[1][i] + parts[2][i]).tanh()).collect();
        scores.push(log_probability(p, &top, word, r.target_vocabulary));
        previous = p.row("target.embedding", word as usize);
    }
    scores
}

/// The same for networks of Devlin's kind.
fn rnnfc_scores(r: &RnnFc, weights: &Weights, source: &[u32], target: &[u32]) -> Row {
    let p = &Plain(weights);
    let none = RecurrentNorm::None;
    let place =
        |prefix: String| vec![peregrine::model::CellPlace { prefix, kind: r.cell, input: Some(1) }];
    let mut rows: Vec<Row> =
        source.iter().map(|&id| p.row("source.embedding", id as usize)).collect();
    for l in 0..r.source_layers {
        let f =
            layer(p, &place(format!("encoder.forward.{l}")), &rows, false, r.source_width, none);
        let b =
            layer(p, &place(format!("encoder.backward.{l}")), &rows, true, r.source_width, none);
        rows = f.into_iter().zip(b).map(|(f, b)| [f, b].concat()).collect();
    }
    for l in 0..r.source_single_layers {
        rows = layer(p, &place(format!("encoder.top.{l}")), &rows, false, 2 * r.source_width, none);
    }
    let mean = mixed(&vec![1.0 / rows.len() as f64; rows.len()], &rows);
    let tanh = |row: Row| -> Row { row.iter().map(|v| v.tanh()).collect() };
    let mut h = tanh(p.simple("start", &mean, none));
    let mut c = vec![0.0; r.width];
    let mut tops = vec![(vec![0.0; r.top_width], vec![0.0; r.top_width]); r.top_cells()];
    let keys: Vec<Row> = rows.iter().map(|s| tanh(p.simple("attention.key", s, none))).collect();
    let mut previous = vec![0.0; r.target_embedding];
    let mut scores = Vec::new();
    for &word in target {
        let (a, b) =
            (p.simple("attention.state", &h, none), p.simple("attention.input", &previous, none));
        let query: Row = a.iter().zip(&b).map(|(a, b)| (a + b).tanh()).collect();
        let energies: Row =
            keys.iter().map(|k| k.iter().zip(&query).map(|(k, q)| k * q).sum()).collect();
        let context = mixed(&softmax(&energies), &rows);
        let (v, u) = (
            p.simple("decoder.input", &previous, none),
            p.simple("decoder.context", &context, none),
        );
        let x: Row = v.iter().zip(&u).map(|(v, u)| v + u).collect();
        (h, c) = step(r.cell, &x, &p.simple("decoder.state", &h, none), &[], &h, &c);
        let mut layers = vec![h.clone()];
        for k in 1..=r.dense_layers {
            let mut z = p.simple(&format!("dense.{}", k - 1), &layers[k - 1], none);
            if k >= 3 && k % 2 == 1 {
                z.iter_mut().zip(&layers[k - 2]).for_each(|(z, s)| *z += s);
            }
            layers.push(z.iter().map(|v| v.clamp(0.0, 10.0)).collect());
        }
        let mut y = layers.pop().unwrap();
        match r.top {
            Top::None => {}
            Top::Tanh => y = tanh(p.simple("top", &y, none)),
            Top::Recurrent(_) => {
                for (k, top) in tops.iter_mut().enumerate() {
                    *top = p.cell(&format!("top.{k}"), r.cell, Some(&y), none, top.clone());
                    y = top.0.clone();
                }
            }
        }
        scores.push(log_probability(p, &y, word, r.target_vocabulary));
        previous = p.row("target.embedding", word as usize);
    }
    scores
}

fn scores(model: &Model, member: usize, source: &[u32], target: &[u32]) -> Row {
    let member = &model.members[member];
    match &member.architecture {
        Architecture::Recurrent(r) => recurrent_scores(r, &member.weights, source, target),
        Architecture::RnnFc(r) => rnnfc_scores(r, &member.weights, source, target),
        Architecture::Transformer(_) => unreachable!("recurrent tests"),
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn sentence(&mut self, words: usize) -> Vec<u32> {
        (0..1 + self.below(7)).map(|_| 2 + self.below(words - 2) as u32).collect()
    }
}

fn text(ids: &[u32]) -> String {
    ids.iter().map(|id| format!("w{id}")).collect::<Vec<_>>().join(" ")
}

/// Every way of computing gives what the plain implementation gives, in a batch of all lengths.
fn check(model: &Model, random: &mut Random, what: &str) {
    let (sources, targets): (usize, usize) = {
        let a = &model.members[0].architecture;
        (a.source_vocabulary(), a.target_vocabulary())
    };
    let pairs: Vec<(Vec<u32>, Vec<u32>)> =
        (0..5).map(|_| (random.sentence(sources), random.sentence(targets))).collect();
    let texts: Vec<(String, String)> = pairs.iter().map(|(s, t)| (text(s), text(t))).collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(s, t)| (&**s, &**t)).collect();
    let some = Speedups { embeddings: sources / 2, ..Speedups::default() };
    let ways = [
        (Speedups::OFF, Functions::Library),
        (Speedups::default(), Functions::Fast),
        (some, Functions::Library),
    ];
    for (speedups, functions) in ways {
        let compute = Compute { speedups, functions, ..Compute::float32() };
        let translator = Translator::prepare(model.clone(), &compute).unwrap();
        let scored = translator.score(&texts, &translator.options()).unwrap();
        for ((source, target), scored) in pairs.iter().zip(scored) {
            let framed: Vec<u32> = source.iter().copied().chain([0]).collect();
            let ended: Vec<u32> = target.iter().copied().chain([0]).collect();
            let members: Vec<Row> =
                (0..model.members.len()).map(|m| scores(model, m, &framed, &ended)).collect();
            let expected = mixed(
                &model.member_weights.iter().map(|&w| f64::from(w)).collect::<Row>(),
                &members,
            );
            assert_eq!(scored.token_scores.len(), expected.len());
            for (got, expected) in scored.token_scores.iter().zip(&expected) {
                let error = (f64::from(*got) - expected).abs();
                assert!(error < 1e-3, "{what} {speedups:?}: {got} for {expected}");
            }
        }
    }
}

fn recurrent(
    random: &mut Random,
    kind: EncoderKind,
    cell: CellKind,
    norm: RecurrentNorm,
) -> Recurrent {
    let input_only = cell.needs_input();
    let depth = |random: &mut Random| if input_only { 1 } else { 1 + random.below(3) };
    let width = 3 + random.below(14);
    let simple = !cell.has_state_product();
    let decoder_cell = if simple { CellKind::Gru } else { cell };
    let transitions = if decoder_cell.needs_input() { 0 } else { random.below(3) };
    Recurrent {
        width,
        source_embedding: if simple { width } else { 2 + random.below(9) },
        target_embedding: 2 + random.below(9),
        source_vocabulary: 23,
        target_vocabulary: 29,
        source_frame: SourceFrame { begin: None, end: Some(0), after_end: None },
        encoder: RecurrentEncoder {
            kind,
            // A simple unit cannot read two halves side by side.
            layers: if simple && kind == EncoderKind::BiUnidirectional {
                1
            } else {
                1 + random.below(3)
            },
            forward: vec![cell; depth(random)],
            backward: vec![cell; depth(random)],
            skip: random.below(2) == 1,
        },
        decoder: RecurrentDecoder {
            base: vec![decoder_cell; 2 + transitions],
            high_layers: random.below(3),
            high: vec![decoder_cell; 1 + transitions.min(1)],
            skip: random.below(2) == 1,
            start_cell: random.pick(&[StartCell::State, StartCell::Zero]),
        },
        attention_width: 2 + random.below(9),
        cell_norm: norm,
        dense_norm: random.pick(&[
            RecurrentNorm::None,
            RecurrentNorm::Marian,
            RecurrentNorm::Nematus,
        ]),
    }
}

const CELLS: [CellKind; 8] = [
    CellKind::Gru,
    CellKind::Lstm,
    CellKind::Mgru,
    CellKind::Mlstm,
    CellKind::Tanh,
    CellKind::Relu,
    CellKind::Sru,
    CellKind::Ssru,
];

#[test]
fn every_cell_in_every_encoder_follows_the_equations() {
    let mut random = Random(11);
    let kinds =
        [EncoderKind::Bidirectional, EncoderKind::Alternating, EncoderKind::BiUnidirectional];
    for cell in CELLS {
        for kind in kinds {
            for norm in [RecurrentNorm::None, RecurrentNorm::Marian, RecurrentNorm::Nematus] {
                let description = recurrent(&mut random, kind, cell, norm);
                let what = format!("{cell:?} {kind:?} {norm:?}");
                let seed = random.below(1000) as u64;
                let model = made_up_model(Architecture::Recurrent(description), seed).unwrap();
                check(&model, &mut random, &what);
            }
        }
    }
}

/// Amun's second system: multiplicative LSTMs, and a GRU after attention that leaves the LSTM's cell
/// vector alone.
#[test]
fn mixtures_of_cells_pass_the_cell_vector_on() {
    let mut random = Random(5);
    for (first, second) in [
        (CellKind::Mlstm, CellKind::Gru),
        (CellKind::Lstm, CellKind::Gru),
        (CellKind::Gru, CellKind::Lstm),
        (CellKind::Mlstm, CellKind::Mlstm),
    ] {
        let norm = RecurrentNorm::None;
        let mut description = recurrent(&mut random, EncoderKind::Bidirectional, first, norm);
        description.decoder.base = vec![first, second];
        description.decoder.start_cell = StartCell::Zero;
        let model = made_up_model(Architecture::Recurrent(description), 3).unwrap();
        check(&model, &mut random, &format!("{first:?} + {second:?}"));
    }
}

fn rnnfc(random: &mut Random, cell: CellKind, dense_layers: usize, top: Top) -> RnnFc {
    RnnFc {
        source_vocabulary: 23,
        target_vocabulary: 29,
        source_frame: SourceFrame { begin: None, end: Some(0), after_end: None },
        source_embedding: 2 + random.below(9),
        target_embedding: 2 + random.below(9),
        cell,
        source_width: 2 + random.below(9),
        source_layers: 1 + random.below(3),
        source_single_layers: random.below(3),
        width: 3 + random.below(14),
        attention_width: 2 + random.below(9),
        dense_layers,
        dense_width: 3 + random.below(9),
        top,
        top_width: 3 + random.below(9),
    }
}

#[test]
fn recurrent_layers_under_dense_ones_follow_the_equations() {
    let mut random = Random(2);
    for cell in [CellKind::Gru, CellKind::Lstm] {
        for dense_layers in [0, 1, 2, 5] {
            for top in [Top::None, Top::Tanh, Top::Recurrent(1), Top::Recurrent(3)] {
                let description = rnnfc(&mut random, cell, dense_layers, top);
                let model = made_up_model(Architecture::RnnFc(description), 9).unwrap();
                check(&model, &mut random, &format!("{cell:?} {dense_layers} {top:?}"));
            }
        }
    }
}

#[test]
fn ensembles_of_three_add_up_weighted() {
    let mut random = Random(8);
    let norm = RecurrentNorm::None;
    let first = recurrent(&mut random, EncoderKind::Alternating, CellKind::Gru, norm);
    let second = recurrent(&mut random, EncoderKind::Bidirectional, CellKind::Mlstm, norm);
    let third = rnnfc(&mut random, CellKind::Gru, 3, Top::Tanh);
    let mut model = made_up_model(Architecture::Recurrent(first), 1).unwrap();
    for architecture in [Architecture::Recurrent(second), Architecture::RnnFc(third)] {
        model.members.extend(made_up_model(architecture, 2).unwrap().members);
    }
    model.member_weights = vec![0.5, 0.3, 0.2];
    check(&model, &mut random, "three");
}

#[test]
fn a_saved_network_is_the_same_network() {
    let mut random = Random(4);
    let folder = tempfile::tempdir().unwrap();
    let norm = RecurrentNorm::Marian;
    let description = recurrent(&mut random, EncoderKind::Alternating, CellKind::Mlstm, norm);
    for architecture in [
        Architecture::Recurrent(description),
        Architecture::RnnFc(rnnfc(&mut random, CellKind::Lstm, 3, Top::Recurrent(2))),
    ] {
        let model = made_up_model(architecture.clone(), 6).unwrap();
        let path = folder.path().join("saved.peregrine");
        peregrine::model::save(&model, &path, None).unwrap();
        let again = peregrine::model::open(&[path], &peregrine::OpenOptions::default()).unwrap();
        assert_eq!(again.members[0].architecture, architecture);
        check(&again, &mut random, "saved");
    }
}
