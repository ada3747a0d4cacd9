//! The output layer: the top k words of a product over the vocabulary.
//!
//! | file | contents |
//! |---|---|
//! | `layer` | the prepared layer, shortlists, the choice between layers |
//! | `question` | what rows ask, as kernels read it, and the answers |
//! | `epilogue` | top k in the epilogue of the product |
//! | `logits` | the papers' layers, over logits in memory |
//! | `device_beam` | the device-side beam search |

use peregrine_nn::{Ask, Candidates, Choices, Question, Scoring, choose};

use crate::Error;
use crate::device::bucket;
use crate::memory::{NONE, copy};

mod device_beam;
mod epilogue;
mod layer;
mod logits;
mod question;

pub(crate) use layer::logits;
pub use layer::{Output, OutputLayer, Selection};
pub(crate) use logits::Logits;
use question::room_for;
pub(crate) use question::{Asking, Pending, asked};

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

impl Asking<'_> {
    /// Asks a question of all rows.
    pub(crate) fn ask(self, question: Question<'_>, pending: &mut Pending) -> Result<(), Error> {
        pending.sent = None;
        let rows = question.asks.iter().zip(self.selections);
        let choices: Vec<KernelChoice> =
            rows.map(|(ask, &words)| self.kernel_choice(ask, words)).collect();
        let first = choices.first().copied().unwrap_or(KernelChoice::Epilogue);
        if choices.iter().all(|&choice| choice == first) {
            self.ask_kernels(first, question, pending)?;
        } else {
            self.ask_separately(&choices, question.asks, &mut pending.found)?;
        }
        match pending.sent {
            Some(_) => Ok(()),
            None => self.follow(question, &pending.found),
        }
    }

    fn kernel_choice(self, ask: &Ask<'_>, words: Option<&Selection>) -> KernelChoice {
        let paper = self.layer != OutputLayer::Epilogue;
        if paper && self.layer.can_answer(ask, words.is_some()) {
            return KernelChoice::Paper;
        }
        let fits = self.shared(ask, words) <= self.device.most_shared();
        if fits { KernelChoice::Epilogue } else { KernelChoice::Host }
    }

    fn ask_kernels(
        self,
        choice: KernelChoice,
        question: Question<'_>,
        pending: &mut Pending,
    ) -> Result<(), Error> {
        match choice {
            KernelChoice::Paper => {
                let Asking { device, layer, x, output, .. } = self;
                logits::ask(device, layer, x, output, question, pending)
            }
            KernelChoice::Epilogue => self.ask_epilogue(question, pending),
            KernelChoice::Host => self.best_of_logits(question, &mut pending.found),
        }
    }

    /// Asks each choice of kernels about its own rows, one after the other, and nothing about the others.
    fn ask_separately(
        self,
        kernels: &[KernelChoice],
        asks: &[Ask<'_>],
        found: &mut Choices,
    ) -> Result<(), Error> {
        let mut parts = Vec::new();
        for choice in [KernelChoice::Paper, KernelChoice::Epilogue, KernelChoice::Host] {
            if !kernels.contains(&choice) {
                continue;
            }
            let mut asks = asks.to_vec();
            for (ask, _) in asks.iter_mut().zip(kernels).filter(|(_, other)| **other != choice) {
                (ask.count, ask.forced, ask.scoring) = (0, None, Scoring::Logit);
            }
            let (mut pending, mut choices) = (Pending::default(), Choices::default());
            self.ask_kernels(choice, Question { asks: &asks, device_beams: None }, &mut pending)?;
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
    fn follow(self, question: Question<'_>, found: &Choices) -> Result<(), Error> {
        let rows = question.asks.len();
        if let Some(device_beams) = question.device_beams {
            let most = room_for(question.asks.iter().map(|ask| ask.count).max().unwrap_or(0));
            return self.device.record(|segment| {
                let asked = asked(segment, question, most)?;
                let lists = device_beam::stage(segment, found, rows, most)?;
                device_beam::record(segment, device_beams, question.asks, asked, lists)
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
    fn best_of_logits(self, question: Question<'_>, answer: &mut Choices) -> Result<(), Error> {
        let mut scores = Vec::new();
        let all = vec![true; self.selections.len()];
        logits(self.device, self.x, self.output, (self.selections, &all), &mut scores)?;
        let (mut rest, mut best) = (scores.as_slice(), Vec::new());
        answer.clear();
        for (ask, selection) in question.asks.iter().zip(self.selections) {
            let words = selection.map(|s| s.words.as_slice());
            let outputs = self.output.linear.outputs;
            let (row, behind) = rest.split_at(words.map_or(outputs, <[u32]>::len));
            choose(Candidates { scores: row, words }, ask, &mut best);
            answer.push(best.iter().copied());
            rest = behind;
        }
        Ok(())
    }
}
