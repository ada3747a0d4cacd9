//! Batch invariance: a sentence that shares a batch with sentences of other search settings has the bits it has alone.

use peregrine_cpu::{Cpu, Isa};
use peregrine_model::{Precision, made_up_model, preset};
use peregrine_nn::{
    Choices, Network, Origin, Row, RowRequest, Scoring, Sentence, Slot, TopKQuery, prepare,
};

const WORDS: usize = 300;

/// A sentence and its search.
#[derive(Clone, Copy)]
struct Search {
    source: &'static [u32],
    /// The shortlist.
    words: Option<&'static [u32]>,
    /// Hypotheses after the first step.
    beam: usize,
    /// The query of each hypothesis.
    request: RowRequest<'static>,
}

const fn search(source: &'static [u32], beam: usize, count: usize, scoring: Scoring) -> Search {
    let request = RowRequest { count, banned: &[3, 9], forced: None, path: 0.0, scoring };
    Search { source, words: None, beam, request }
}

const SEARCHES: [Search; 5] = [
    search(&[5, 6, 7, 8], 1, 1, Scoring::Logit),
    search(&[15, 6], 4, 8, Scoring::LogProbability),
    Search {
        words: Some(&[0, 3, 5, 7, 8, 9, 30]),
        ..search(&[25, 7, 3], 3, 3, Scoring::LogProbability)
    },
    search(&[7, 7, 8, 5, 6], 2, 2, Scoring::LogProbabilityOfAllowed),
    search(&[9], 1, 1, Scoring::LogProbability),
];

/// The results of a row, as bits.
#[derive(Debug, Clone, PartialEq)]
struct RowBits {
    logits: Vec<u32>,
    answer: Vec<(u32, u32)>,
    /// Attention to the source. Empty if it was not wanted.
    alignment: Vec<u32>,
}

/// Decodes four steps of all sentences in one batch. Returns the results of each sentence's rows, step by step.
fn run(session: &mut dyn Network, searches: &[Search], alignments: bool) -> Vec<Vec<RowBits>> {
    let sentences: Vec<Sentence<'_>> = searches
        .iter()
        .map(|s| Sentence { source: s.source, words: s.words, beam: s.beam > 1 })
        .collect();
    let slots = session.admit(&sentences);
    let mut results = vec![Vec::new(); searches.len()];
    let mut before: Vec<usize> = Vec::new();
    for position in 0..4 {
        let mut rows: Vec<Row> = Vec::new();
        let (mut requests, mut owners, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
        for (owner, (search, slot)) in searches.iter().zip(&slots).enumerate() {
            firsts.push(rows.len());
            let first_row = before.get(owner).copied();
            let count = if position == 0 { 1 } else { search.beam };
            for hypothesis in 0..count {
                // Each hypothesis continues the one before, as may happen in a beam.
                let parent = if position == 1 { 0 } else { hypothesis.saturating_sub(1) };
                let from = match first_row {
                    None => Origin::Start(None),
                    Some(first) => {
                        let token = (7 * hypothesis as u32 + position + 4) % WORDS as u32;
                        Origin::Row { row: (first + parent) as u32, token }
                    }
                };
                rows.push(Row { slot: *slot, from, position });
                requests.push(search.request);
                owners.push(owner);
            }
        }
        before = firsts;
        session.step(&rows, alignments);
        session.top_k(TopKQuery { requests: &requests, device_beams: None });
        let (mut choices, mut logits) = (Choices::default(), Vec::new());
        session.take_top_k(&mut choices);
        session.logits(&vec![true; rows.len()], &mut logits);
        let mut rest = logits.as_slice();
        for (row, &owner) in owners.iter().enumerate() {
            let own = rest.split_off(..searches[owner].words.map_or(WORDS, <[u32]>::len));
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
            results[owner].push(RowBits {
                logits: bits(own.expect("logits of every row")),
                answer: choices.of(row).iter().map(|c| (c.token, c.score.to_bits())).collect(),
                alignment: if alignments { bits(session.alignment(row)) } else { Vec::new() },
            });
        }
    }
    slots.into_iter().for_each(|slot: Slot| session.release(slot));
    results
}

#[test]
fn neither_other_sentences_nor_alignments_change_a_bit() {
    for shape in ["student", "gru", "mlstm", "rnnfc-s2", "rnnfc-s3"] {
        let model = made_up_model(preset(shape, Some(WORDS)).expect("a known shape"), 1);
        let member = &model.expect("a model").members[0];
        for precision in [Precision::Float32, Precision::Int8] {
            let cpu = Cpu::new(Isa::best(), precision);
            let network = prepare(cpu, &member.architecture, &member.weights).expect("weights");
            let mut session = network.session();
            let plain = run(&mut *session, &SEARCHES, false);
            let aligned = run(&mut *session, &SEARCHES, true);
            for (number, search) in SEARCHES.iter().enumerate() {
                let what = format!("{shape}, {precision:?}, sentence {number}");
                let alone = run(&mut *session, &[*search], true).remove(0);
                assert!(alone.iter().all(|row| row.answer.len() == search.request.count), "{what}");
                assert!(
                    alone.iter().all(|row| row.alignment.len() == search.source.len()),
                    "{what}"
                );
                assert!(aligned[number] == alone, "{what}");
                let without = |row: &RowBits| RowBits { alignment: Vec::new(), ..row.clone() };
                assert!(plain[number] == alone.iter().map(without).collect::<Vec<_>>(), "{what}");
            }
        }
    }
}
