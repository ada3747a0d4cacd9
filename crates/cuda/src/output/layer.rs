//! A prepared output layer, its shortlists, and the choice between output layers.

use std::sync::Arc;

use peregrine_model::Activation;
use peregrine_nn::{RowRequest, Scoring};

use crate::Error;
use crate::device::{Device, bucket};
use crate::driver::Address;
use crate::memory::{Buffer, Rows, copy};
use crate::product::{Linear, Target};

/// Choices a row may ask for of the papers' output layers.
const MOST_CHOICES: usize = 32;

/// How the top k words are found. All find the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputLayer {
    /// In the epilogue of the product: logits are never written.
    #[default]
    Epilogue,
    /// Bias, softmax and top k in one kernel that reads logits once (Amun's Algorithm 4).
    Fused,
    /// A kernel for each of bias, softmax and top k (Algorithm 3).
    Separate,
    /// The best word only, without softmax (Algorithms 5 and 6); as `Fused` where more is asked for.
    Best,
}

impl OutputLayer {
    /// All of them.
    pub const ALL: [OutputLayer; 4] =
        [OutputLayer::Epilogue, OutputLayer::Fused, OutputLayer::Separate, OutputLayer::Best];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            OutputLayer::Epilogue => "epilogue",
            OutputLayer::Fused => "fused",
            OutputLayer::Separate => "separate",
            OutputLayer::Best => "best",
        }
    }

    /// Whether this layer can answer a row. The papers' layers have no shortlists and a limit on the top k.
    pub(crate) fn can_answer(self, request: &RowRequest<'_>, shortlist: bool) -> bool {
        self == OutputLayer::Epilogue || (!shortlist && request.count <= MOST_CHOICES)
    }

    /// The layer that answers rows which this one can answer. If one of them wants more than its best word, all are
    /// answered by `Fused`, which gives the others the same bits as `Best`.
    pub(crate) fn answering(self, requests: &[RowRequest<'_>]) -> OutputLayer {
        let more =
            |request: &RowRequest<'_>| request.count > 1 || request.scoring != Scoring::Logit;
        match self {
            OutputLayer::Best if requests.iter().any(more) => OutputLayer::Fused,
            layer => layer,
        }
    }
}

impl std::str::FromStr for OutputLayer {
    type Err = String;

    fn from_str(name: &str) -> Result<OutputLayer, String> {
        let found = OutputLayer::ALL.into_iter().find(|layer| layer.name() == name);
        found.ok_or_else(|| "expected epilogue, fused, separate or best".to_owned())
    }
}

/// A prepared output layer.
pub struct Output {
    pub(crate) linear: Linear,
}

impl Output {
    pub(crate) fn select(&self, device: &Arc<Device>, words: &[u32]) -> Result<Selection, Error> {
        let exists = |&word: &u32| (word as usize) < self.linear.outputs;
        let words: Vec<u32> = words.iter().copied().filter(exists).collect();
        let buffer = Buffer::new(device, 4 * words.len())?;
        let staged = device.record(|segment| segment.stage(&words))?;
        copy(device, staged, buffer.address, 4 * words.len())?;
        Ok(Selection { buffer, words })
    }
}

/// The words of a shortlist, on the device.
pub struct Selection {
    buffer: Buffer,
    pub(super) words: Vec<u32>,
}

/// A run of rows that share their shortlist.
pub(super) struct Group<'a> {
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) selection: Option<&'a Selection>,
}

impl Group<'_> {
    /// The number of words of the rows, of a vocabulary of `all`.
    pub(super) fn words(&self, all: usize) -> usize {
        self.selection.map_or(all, |selection| selection.words.len())
    }

    /// The shortlist on the device; 0 stands for all words.
    pub(super) fn address(&self) -> Address {
        self.selection.map_or(0, |selection| selection.buffer.address)
    }
}

pub(super) fn groups<'a>(selections: &[Option<&'a Selection>]) -> Vec<Group<'a>> {
    let same = |a: &Option<&Selection>, b: &Option<&Selection>| match (a, b) {
        (Some(a), Some(b)) => std::ptr::eq(*a, *b),
        (None, None) => true,
        _ => false,
    };
    let mut first = 0;
    let group = |rows: &[Option<&'a Selection>]| {
        let group = Group { first, rows: rows.len(), selection: rows[0] };
        first += rows.len();
        group
    };
    selections.chunk_by(same).map(group).collect()
}

/// All logits of every row that is wanted, end to end; of the selected words where a row has a shortlist.
pub(crate) fn logits(
    device: &Arc<Device>,
    x: &Rows,
    output: &Output,
    (selections, wanted): (&[Option<&Selection>], &[bool]),
    out: &mut Vec<f32>,
) -> Result<(), Error> {
    let all = output.linear.outputs;
    let scores = Buffer::new(device, 4 * bucket(x.count) * all)?;
    let target = Target {
        out: scores.address,
        stride: all,
        activation: Activation::Identity,
        input: 0,
        exact: true,
        bias: true,
    };
    output.linear.multiply_to(device, x, &target)?;
    let mut whole = vec![0.0; x.count * all];
    device.download(scores.address, &mut whole)?;
    out.clear();
    let rows = whole.chunks(all.max(1)).zip(selections).zip(wanted);
    for ((row, selection), _) in rows.filter(|(_, wanted)| **wanted) {
        match selection {
            None => out.extend_from_slice(row),
            Some(selection) => out.extend(selection.words.iter().map(|&w| row[w as usize])),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(&(count, scoring): &(usize, Scoring)) -> RowRequest<'static> {
        RowRequest { count, banned: &[], forced: None, path: 0.0, scoring }
    }

    #[test]
    fn a_layer_answers_what_it_can() {
        use OutputLayer::{Best, Epilogue, Fused, Separate};
        let (logit, probability) = (Scoring::Logit, Scoring::LogProbability);
        for (layer, count, shortlist, expected) in [
            (Fused, 32, false, true),
            (Fused, 33, false, false),
            (Separate, 1, true, false),
            (Best, 1, false, true),
            (Epilogue, 2000, true, true),
        ] {
            let found = layer.can_answer(&request(&(count, logit)), shortlist);
            assert_eq!(found, expected, "{layer:?} {count}");
        }
        for (layer, requests, expected) in [
            (Best, &[(1, logit), (1, logit)][..], Best),
            (Best, &[(1, logit), (1, probability)], Fused),
            (Best, &[(2, logit), (1, logit)], Fused),
            (Separate, &[(1, logit), (4, probability)], Separate),
            (Fused, &[(1, logit)], Fused),
        ] {
            let of: Vec<RowRequest<'_>> = requests.iter().map(request).collect();
            assert_eq!(layer.answering(&of), expected, "{layer:?} {requests:?}");
        }
    }

    #[test]
    fn names_lead_back() {
        for layer in OutputLayer::ALL {
            assert_eq!(layer.name().parse(), Ok(layer));
        }
        assert!("softmax".parse::<OutputLayer>().is_err());
    }
}
