//! The search settings of a checkpoint: `generation_config.json`, or the same fields of
//! `config.json` in a checkpoint without that file, as in `transformers`.

use serde_json::Value;

use crate::huggingface::class::Class;
use crate::huggingface::config::Config;
use crate::{AtLimit, Bound, Dialect, Finish, ModelError, Search, Suppression, Transformer};

/// Unsupported options of generation, and the value that turns each off.
const NOT_FOLLOWED: [(&str, Option<f64>); 13] = [
    ("repetition_penalty", Some(1.0)),
    ("no_repeat_ngram_size", Some(0.0)),
    ("encoder_no_repeat_ngram_size", Some(0.0)),
    ("encoder_repetition_penalty", Some(1.0)),
    ("num_beam_groups", Some(1.0)),
    ("diversity_penalty", Some(0.0)),
    ("penalty_alpha", Some(0.0)),
    ("guidance_scale", Some(1.0)),
    ("begin_suppress_tokens", None),
    ("exponential_decay_length_penalty", None),
    ("sequence_bias", None),
    ("force_words_ids", None),
    ("constraints", None),
];

/// The search settings of a checkpoint, limited to its positions.
pub(crate) fn search(
    class: Class,
    configs: &[&Config],
    description: &Transformer,
    notes: &mut Vec<String>,
) -> Result<Search, ModelError> {
    // The first file counts alone: generation_config.json if there is one.
    let config = configs[0];
    let mut search = Search { beam: 1, at_limit: AtLimit::Cut, ..Search::of(Dialect::HuggingFace) };
    if class != Class::MarianMt {
        search.max_source = usize::MAX;
    }
    set_lengths(config, &mut search)?;
    set_words(config, &mut search, notes)?;
    note_others(config, notes)?;
    if let Some(limit) = description.position_limit {
        search.max_source = limit;
        search.max_length = search.max_length.map(|most| most.min(limit));
    }
    // MarianMT's class never produces its padding word; the others have no such rule.
    let pads = configs.iter().filter(|_| class == Class::MarianMt);
    for config in pads {
        if let Some(pad) = config.id("pad_token_id")?
            && !search.suppress.contains(&pad)
        {
            search.suppress.push(pad);
        }
    }
    Ok(search)
}

/// Sets beam and lengths. `max_length` and `min_length` count the start token, which is not part of
/// a translation here; `max_new_tokens` and `min_new_tokens` do not.
fn set_lengths(config: &Config, search: &mut Search) -> Result<(), ModelError> {
    match config.count("num_beams")? {
        Some(0) => return Err(config.complain("num_beams", "at least 1")),
        beams => search.beam = beams.unwrap_or(search.beam),
    }
    match config.count("max_length")? {
        Some(0 | 1) => return Err(config.complain("max_length", "at least 2")),
        Some(length) => search.max_length = Some(length - 1),
        None => {}
    }
    match config.count("max_new_tokens")? {
        Some(0) => return Err(config.complain("max_new_tokens", "at least 1")),
        Some(length) => search.max_length = Some(length),
        None => {}
    }
    if let Some(length) = config.count("min_length")? {
        search.min_length = length.saturating_sub(1);
    }
    if let Some(length) = config.count("min_new_tokens")? {
        search.min_length = length;
    }
    search.normalize = config.number("length_penalty")?.unwrap_or(search.normalize);
    Ok(())
}

fn set_words(
    config: &Config,
    search: &mut Search,
    notes: &mut Vec<String>,
) -> Result<(), ModelError> {
    let name = config.path().display();
    search.finish = Finish::FullBounded;
    search.bound = match config.get("early_stopping") {
        None | Some(Value::Bool(false)) => Bound::Length,
        Some(Value::Bool(true)) => Bound::List,
        Some(Value::String(never)) if never == "never" => Bound::LengthLimit,
        Some(_) => return Err(config.complain("early_stopping", "true, false or \"never\"")),
    };
    if let Some(Value::Array(sequences)) = config.get("bad_words_ids") {
        search.suppress = sequences.iter().filter_map(single_word).collect();
        if search.suppress.len() < sequences.len() {
            notes.push(format!("{name}: bad_words_ids of several words are not followed"));
        }
    }
    search.suppress.extend(config.ids("suppress_tokens")?.unwrap_or_default());
    if config.ids("forced_eos_token_id")?.is_some() {
        search.at_limit = AtLimit::ForceEnd;
    }
    if config.flag("renormalize_logits")? == Some(true) {
        search.suppression = Suppression::BeforeSoftmax;
    }
    Ok(())
}

fn single_word(sequence: &Value) -> Option<u32> {
    match sequence.as_array()?.as_slice() {
        [word] => word.as_u64().and_then(|id| u32::try_from(id).ok()),
        _ => None,
    }
}

fn note_others(config: &Config, notes: &mut Vec<String>) -> Result<(), ModelError> {
    let name = config.path().display();
    for (key, off) in NOT_FOLLOWED {
        let is_off = |value: &Value| off.is_some() && value.as_f64() == off;
        if config.get(key).is_some_and(|value| !is_off(value)) {
            notes.push(format!("{name}: {key} is not followed"));
        }
    }
    if config.flag("do_sample")? == Some(true) {
        notes.push(format!("{name}: do_sample is not followed"));
    }
    Ok(())
}
