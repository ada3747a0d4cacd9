//! The output layer: the top k words of a product over the vocabulary.
//!
//! | file | contents |
//! |---|---|
//! | `layer` | the prepared layer, shortlists, the choice between layers |
//! | `query` | what rows ask, as kernels read it, and the answers |
//! | `epilogue` | top k in the epilogue of the product |
//! | `logits` | the papers' layers, over logits in memory |
//! | `device_beam` | the device-side beam search |

use peregrine_nn::{Candidates, Choices, RowRequest, Scoring, TopKQuery, choose};

use crate::Error;
use crate::device::bucket;
use crate::memory::{NONE, copy};

mod device_beam;
mod epilogue;
mod layer;
mod logits;
mod query;

pub(crate) use layer::logits;
pub use layer::{Output, OutputLayer, Selection};
pub(crate) use logits::Logits;
use query::room_for;
pub(crate) use query::{OutputCall, Pending, asked};

/// Which kernels answer a row. The last bits of a log-sum-exp differ between them, so the choice depends on nothing but
/// the row's own words and what it asks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KernelChoice {
    /// One of the papers' layers.
    Paper,
    /// The epilogue of the product.
    Epilogue,
    /// None: the host searches the logits, since the candidates of all tiles do not fit shared memory.
    Host,
}

impl OutputCall<'_> {
    /// Runs a query for all rows.
    pub(crate) fn run(self, query: TopKQuery<'_>, pending: &mut Pending) -> Result<(), Error> {
        pending.sent = None;
        let rows = query.requests.iter().zip(self.selections);
        let choices: Vec<KernelChoice> =
            rows.map(|(request, &words)| self.kernel_choice(request, words)).collect();
        let first = choices.first().copied().unwrap_or(KernelChoice::Epilogue);
        if choices.iter().all(|&choice| choice == first) {
            self.run_kernels(first, query, pending)?;
        } else {
            self.run_separately(&choices, query.requests, &mut pending.found)?;
        }
        match pending.sent {
            Some(_) => Ok(()),
            None => self.follow(query, &pending.found),
        }
    }

    fn kernel_choice(self, request: &RowRequest<'_>, words: Option<&Selection>) -> KernelChoice {
        let paper = self.layer != OutputLayer::Epilogue;
        if paper && self.layer.can_answer(request, words.is_some()) {
            return KernelChoice::Paper;
        }
        let fits = self.shared(request, words) <= self.device.most_shared();
        if fits { KernelChoice::Epilogue } else { KernelChoice::Host }
    }

    fn run_kernels(
        self,
        choice: KernelChoice,
        query: TopKQuery<'_>,
        pending: &mut Pending,
    ) -> Result<(), Error> {
        match choice {
            KernelChoice::Paper => {
                let OutputCall { device, layer, x, output, .. } = self;
                logits::run(device, layer, x, output, query, pending)
            }
            KernelChoice::Epilogue => self.run_epilogue(query, pending),
            KernelChoice::Host => self.best_of_logits(query, &mut pending.found),
        }
    }

    /// Asks each choice of kernels about its own rows, one after the other, and nothing about the others.
    fn run_separately(
        self,
        kernels: &[KernelChoice],
        requests: &[RowRequest<'_>],
        found: &mut Choices,
    ) -> Result<(), Error> {
        let mut parts = Vec::new();
        for choice in [KernelChoice::Paper, KernelChoice::Epilogue, KernelChoice::Host] {
            if !kernels.contains(&choice) {
                continue;
            }
            let mut requests = requests.to_vec();
            for (request, _) in
                requests.iter_mut().zip(kernels).filter(|(_, other)| **other != choice)
            {
                (request.count, request.forced, request.scoring) = (0, None, Scoring::Logit);
            }
            let (mut pending, mut choices) = (Pending::default(), Choices::default());
            self.run_kernels(
                choice,
                TopKQuery { requests: &requests, device_beams: None },
                &mut pending,
            )?;
            let sent = pending.sent;
            pending.answer(self.device, &mut choices)?;
            sent.map_or(Ok(()), |sent| self.device.reuse_answer(sent))?;
            parts.push((choice, choices));
        }
        found.clear();
        for (row, choice) in kernels.iter().enumerate() {
            let part = parts.iter().find(|(other, _)| other == choice);
            found.push(part.into_iter().flat_map(|(_, choices)| choices.of(row)).copied());
        }
        Ok(())
    }

    /// Gives the next step the words that the host has found.
    fn follow(self, query: TopKQuery<'_>, found: &Choices) -> Result<(), Error> {
        let rows = query.requests.len();
        if let Some(device_beams) = query.device_beams {
            let most =
                room_for(query.requests.iter().map(|request| request.count).max().unwrap_or(0));
            return self.device.record(|segment| {
                let asked = asked(segment, query, most)?;
                let lists = device_beam::stage(segment, found, rows, most)?;
                device_beam::record(segment, device_beams, query.requests, asked, lists)
            });
        }
        let best = |row: usize| found.of(row).first().map_or(NONE, |choice| choice.token);
        let best: Vec<u32> = (0..rows).map(best).collect();
        let (from, to) = self
            .device
            .record(|segment| Ok((segment.stage(&best)?, segment.next_latest(bucket(rows))?)))?;
        copy(self.device, from, to, 4 * rows)
    }

    /// Copies all logits to the host and finds the top k there.
    fn best_of_logits(self, query: TopKQuery<'_>, answer: &mut Choices) -> Result<(), Error> {
        let mut scores = Vec::new();
        let all = vec![true; self.selections.len()];
        logits(self.device, self.x, self.output, (self.selections, &all), &mut scores)?;
        let (mut rest, mut best) = (scores.as_slice(), Vec::new());
        answer.clear();
        for (request, selection) in query.requests.iter().zip(self.selections) {
            let words = selection.map(|s| s.words.as_slice());
            let outputs = self.output.linear.outputs;
            let (row, behind) = rest.split_at(words.map_or(outputs, <[u32]>::len));
            choose(Candidates { scores: row, words }, request, &mut best);
            answer.push(best.iter().copied());
            rest = behind;
        }
        Ok(())
    }
}
