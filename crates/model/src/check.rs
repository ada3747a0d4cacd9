//! Checks that a file holds the weights of its description.
//!
//! The output of every importer is checked here, so that code which computes with a [`Member`] can
//! index weights without checks.

use std::path::Path;

use peregrine_text::Tokenizer;

use crate::names::{self, Expected};
use crate::tensors::as_vector;
use crate::{
    Architecture, Autoregression, FeedForward, Member, Model, ModelError, Positions, Search, Start,
    TargetPlace, Transformer, Weight, Weights,
};

/// The most layers that are allowed, so that a hostile description cannot exhaust memory.
const MOST_LAYERS: usize = 1000;
/// The widest beam that is allowed.
const WIDEST_BEAM: usize = 10_000;
/// The largest dimension that is allowed.
const LARGEST_DIMENSION: usize = 1 << 26;

/// The result of an importer's search for a weight.
pub(crate) struct Lookup {
    /// The name in the file.
    pub stored: String,
    /// The weight, in canonical orientation.
    pub weight: Option<Weight>,
}

/// Collects all weights of a description. Missing ones and wrong shapes are all reported at once.
pub(crate) fn gather(
    path: &Path,
    description: &Transformer,
    look_up: impl FnMut(&Expected) -> Result<Lookup, ModelError>,
) -> Result<Weights, ModelError> {
    self::description(path, description)?;
    gather_list(path, names::transformer_weights(description), look_up)
}

/// Collects all weights of any architecture.
pub(crate) fn gather_any(
    path: &Path,
    architecture: &Architecture,
    look_up: impl FnMut(&Expected) -> Result<Lookup, ModelError>,
) -> Result<Weights, ModelError> {
    let nonsense = match architecture {
        Architecture::Transformer(t) => return gather(path, t, look_up),
        Architecture::Recurrent(r) => r.nonsense(),
        Architecture::RnnFc(r) => r.nonsense(),
    };
    if let Some(problem) = nonsense {
        return Err(ModelError::invalid(path, problem));
    }
    gather_list(path, names::weights(architecture), look_up)
}

/// Collects weights that already have their canonical names.
pub(crate) fn gather_known(
    path: &Path,
    architecture: &Architecture,
    weights: &Weights,
) -> Result<Weights, ModelError> {
    gather_any(path, architecture, |expected| {
        let weight = weights.get(&expected.name).cloned();
        Ok(Lookup { stored: expected.name.clone(), weight })
    })
}

fn gather_list(
    path: &Path,
    list: Vec<Expected>,
    mut look_up: impl FnMut(&Expected) -> Result<Lookup, ModelError>,
) -> Result<Weights, ModelError> {
    let mut weights = Weights::default();
    let mut problems = Vec::new();
    for expected in list {
        let Lookup { stored, weight } = look_up(&expected)?;
        let weight = match expected.shape.len() {
            1 => weight.map(as_vector),
            _ => weight,
        };
        match weight {
            Some(weight) if weight.shape == expected.shape => weights.insert(expected.name, weight),
            Some(weight) => problems.push(wrong_shape(&stored, &weight.shape, &expected.shape)),
            None if expected.optional => {}
            None => problems.push(format!("missing tensor {stored} {}", shape(&expected.shape))),
        }
    }
    if problems.is_empty() {
        Ok(weights)
    } else {
        Err(ModelError::Weights { path: path.into(), problems })
    }
}

fn wrong_shape(stored: &str, found: &[usize], expected: &[usize]) -> String {
    let order = if expected.len() == 2 { " (outputs, inputs)" } else { "" };
    format!("tensor {stored} is {}, expected {}{order}", shape(found), shape(expected))
}

fn shape(shape: &[usize]) -> String {
    let numbers: Vec<_> = shape.iter().map(usize::to_string).collect();
    format!("({})", numbers.join(", "))
}

/// Checks that a description is consistent by itself.
pub(crate) fn description(path: &Path, t: &Transformer) -> Result<(), ModelError> {
    match nonsense(t) {
        Some(problem) => Err(ModelError::invalid(path, problem)),
        None => Ok(()),
    }
}

fn nonsense(t: &Transformer) -> Option<String> {
    let dimensions = [
        ("model width", t.width),
        ("source vocabulary", t.source_vocabulary),
        ("target vocabulary", t.target_vocabulary),
        ("position limit", t.position_limit.unwrap_or(1)),
    ];
    for (name, value) in dimensions {
        if value == 0 || value > LARGEST_DIMENSION {
            return Some(format!("{name} {value} is out of range"));
        }
    }
    for (side, stack) in [("encoder", &t.encoder), ("decoder", &t.decoder)] {
        if stack.layers == 0 || stack.layers > MOST_LAYERS {
            return Some(format!("{side}: {} layers are out of range", stack.layers));
        }
        if stack.heads == 0 || !t.width.is_multiple_of(stack.heads) {
            return Some(format!("{side}: width {} and {} heads", t.width, stack.heads));
        }
        if stack.positions == Positions::Table && t.position_limit.is_none() {
            return Some(format!("{side}: stored positions without a limit"));
        }
        if matches!(stack.positions, Positions::Sinusoid { .. }) && !t.width.is_multiple_of(2) {
            return Some(format!("{side}: sinusoidal positions of odd width {}", t.width));
        }
        if !stack.embedding_scale.is_finite() {
            return Some(format!("{side}: embeddings are scaled by {}", stack.embedding_scale));
        }
        if !(stack.norm_epsilon.is_finite() && stack.norm_epsilon >= 0.0) {
            return Some(format!("{side}: norm epsilon {}", stack.norm_epsilon));
        }
        if let Some(problem) = odd_dense(&stack.feed_forward) {
            return Some(format!("{side}: {problem}"));
        }
    }
    odd_decoder(t)
}

fn odd_dense(block: &FeedForward) -> Option<String> {
    if block.depth == 0 || block.depth > MOST_LAYERS {
        return Some(format!("a dense block of depth {}", block.depth));
    }
    if block.width == 0 || block.width > LARGEST_DIMENSION {
        return Some(format!("a dense block of width {}", block.width));
    }
    None
}

fn odd_decoder(t: &Transformer) -> Option<String> {
    if let Autoregression::Average { feed_forward, .. } = &t.autoregression
        && let Some(problem) = odd_dense(feed_forward)
    {
        return Some(format!("average attention: {problem}"));
    }
    if t.decoder_parameters.len() != t.decoder.layers {
        let sets = t.decoder_parameters.len();
        return Some(format!("{sets} tied layers named for {} layers", t.decoder.layers));
    }
    if let Some(&set) = t.decoder_parameters.iter().find(|&&set| set >= MOST_LAYERS) {
        return Some(format!("tied layer {set} is out of range"));
    }
    if t.alignment.layer >= t.decoder.layers || t.alignment.heads > t.decoder.heads {
        let (layer, heads) = (t.alignment.layer, t.alignment.heads);
        return Some(format!("alignment from layer {layer}, {heads} heads"));
    }
    if let Start::Token(id) = t.start
        && id as usize >= t.target_vocabulary
    {
        return Some(format!(
            "start word {id} is not in the vocabulary of {}",
            t.target_vocabulary
        ));
    }
    let frame = t.source_frame;
    let outside = |id: &u32| *id as usize >= t.source_vocabulary;
    let ids = [frame.begin, frame.end, frame.after_end];
    let id = ids.into_iter().flatten().find(outside)?;
    Some(format!("source frame word {id} is not in the vocabulary of {}", t.source_vocabulary))
}

/// Checks that the parts of a model fit each other. Adds notes on what is odd but usable.
pub(crate) fn model(model: &mut Model) -> Result<(), ModelError> {
    for member in &model.members {
        let notes = vocabularies(member, &model.source, &model.target)?;
        model.notes.extend(notes);
    }
    let first = &model.members[0];
    if let Some(languages) = &model.languages {
        let rows = match languages.target {
            TargetPlace::SourceBegin => first.architecture.source_vocabulary(),
            TargetPlace::First | TargetPlace::Start => first.architecture.target_vocabulary(),
        };
        let rows = rows.min(first.architecture.source_vocabulary()) as u32;
        if let Some(odd) = languages.list.iter().find(|language| language.id >= rows) {
            let problem = format!("the language {} is word {} of {rows}", odd.code, odd.id);
            return Err(ModelError::invalid(&first.path, problem));
        }
    }
    let words = model.members[0].architecture.target_vocabulary();
    match odd_search(&model.search, words) {
        Some(problem) => Err(ModelError::invalid(&model.members[0].path, problem)),
        None => Ok(()),
    }
}

fn odd_search(search: &Search, words: usize) -> Option<String> {
    if search.beam == 0 || search.beam > WIDEST_BEAM {
        return Some(format!("a beam of {}", search.beam));
    }
    if !search.normalize.is_finite() || !search.word_penalty.is_finite() {
        let (exponent, penalty) = (search.normalize, search.word_penalty);
        return Some(format!("normalisation {exponent} and word penalty {penalty}"));
    }
    if search.max_length == Some(0) || search.max_source == 0 {
        return Some("a length limit of 0".into());
    }
    if search.max_length_factor.is_some_and(|factor| !factor.is_finite() || factor <= 0.0) {
        return Some("a length factor that is not positive".into());
    }
    if search.early_stop.is_some_and(|delta| delta.is_nan()) {
        return Some("an early stop that is not a number".into());
    }
    let id = search.suppress.iter().find(|&&id| id as usize >= words)?;
    Some(format!("word {id} is to be suppressed, but there are {words}"))
}

/// Checks that the tokenizers' ids have rows in the embeddings. Spare rows get a note; if most rows
/// are spare, the vocabulary belongs to another model.
fn vocabularies(
    member: &Member,
    source: &Tokenizer,
    target: &Tokenizer,
) -> Result<Vec<String>, ModelError> {
    let rows = member.architecture.source_vocabulary();
    let sides = [
        ("source", source.size(), rows),
        ("target", target.size(), member.architecture.target_vocabulary()),
    ];
    let mut notes = Vec::new();
    for (side, words, rows) in sides {
        if words > rows || words < rows / 2 {
            let problem = format!("the {side} vocabulary has {words} words, the model {rows} rows");
            return Err(ModelError::invalid(&member.path, problem));
        }
        if words < rows {
            let path = member.path.display();
            notes.push(format!("{path}: {rows} {side} rows, but a vocabulary of {words} words"));
        }
    }
    if let Some(id) = source.unk().filter(|&id| id as usize >= rows) {
        let problem = format!("the unknown word {id} has no row, the model {rows}");
        return Err(ModelError::invalid(&member.path, problem));
    }
    Ok(notes)
}
