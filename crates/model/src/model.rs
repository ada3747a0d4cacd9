//! A model in memory: networks, tokenizers, search settings.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use peregrine_text::Tokenizer;
use serde_json::json;

use crate::{Architecture, Dialect, Languages, Precision, Search, Shortlist, Weights};

/// A network of a model: its file, description and weights.
#[derive(Clone)]
pub struct Member {
    /// The file it was read from.
    pub path: PathBuf,
    /// The description of what it computes.
    pub architecture: Architecture,
    /// The weights.
    pub weights: Weights,
}

/// A model in memory, before it is packed for a backend. Several members are an ensemble.
#[derive(Clone)]
pub struct Model {
    /// The tool whose format and defaults it has.
    pub dialect: Dialect,
    /// The networks.
    pub members: Vec<Member>,
    /// The weight of each network's log-probabilities.
    pub member_weights: Vec<f32>,
    /// The tokenizer of the source.
    pub source: Arc<Tokenizer>,
    /// The tokenizer of the target.
    pub target: Arc<Tokenizer>,
    /// The model's own search settings, or else its dialect's.
    pub search: Search,
    /// The table of target words allowed for a sentence.
    pub shortlist: Option<Shortlist>,
    /// The languages of a multilingual model.
    pub languages: Option<Languages>,
    /// One-line remarks for the user: choices made while opening.
    pub notes: Vec<String>,
}

impl Member {
    /// Number of trained parameters; tied weights count once.
    pub fn parameters(&self) -> usize {
        self.distinct().map(|(_, weight)| weight.elements()).sum()
    }

    /// The trained weights, tied ones once, without position tables and multipliers.
    fn distinct(&self) -> impl Iterator<Item = (&str, &crate::Weight)> {
        let mut seen = HashSet::new();
        self.weights
            .iter()
            .filter(|(name, _)| !name.ends_with(".positions") && !name.ends_with(".alpha"))
            .filter(move |(_, w)| seen.insert((w.data.as_ptr() as usize, w.data.len())))
    }

    /// The precision most parameters are stored in.
    pub fn stored_precision(&self) -> Precision {
        let count = |precision| {
            let stored = self.distinct().filter(|(_, weight)| weight.precision == precision);
            stored.map(|(_, weight)| weight.elements()).sum::<usize>()
        };
        Precision::ALL.into_iter().max_by_key(|&p| count(p)).unwrap_or(Precision::Float32)
    }

    /// Number of parameters stored in each precision.
    fn precisions(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for (_, weight) in self.distinct() {
            *counts.entry(weight.precision.name()).or_default() += weight.elements();
        }
        counts
    }
}

impl Model {
    /// Number of trained parameters of all members; tied weights count once.
    pub fn parameters(&self) -> usize {
        self.members.iter().map(Member::parameters).sum()
    }

    /// A description of the model in JSON.
    pub fn describe(&self) -> serde_json::Value {
        let members: Vec<_> = self.members.iter().zip(&self.member_weights).map(describe).collect();
        json!({
            "dialect": self.dialect,
            "parameters": self.parameters(),
            "members": members,
            "source_vocabulary": self.source.size(),
            "target_vocabulary": self.target.size(),
            "search": self.search,
            "shortlist": self.shortlist.as_ref().map(Shortlist::describe),
            "languages": self.languages.as_ref().map(Languages::describe),
            "notes": self.notes,
        })
    }
}

fn describe((member, weight): (&Member, &f32)) -> serde_json::Value {
    json!({
        "path": member.path.display().to_string(),
        "weight": weight,
        "parameters": member.parameters(),
        "precisions": member.precisions(),
        "architecture": member.architecture,
    })
}
