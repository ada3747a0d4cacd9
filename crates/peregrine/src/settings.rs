//! Laboratory settings: which technique is used, and how. The defaults are the fastest known, so only measurements and
//! comparisons change them.
//!
//! [`SETTINGS`] is the one table of them. The command line (`--set NAME=VALUE`), its help and the documentation are made from
//! it.

use std::str::FromStr;

use peregrine_cpu::{CachePrecision, Functions, Level, Technique};
use peregrine_decode::batching::{Policy, Scope};

use crate::{Compute, Workers};

/// Values of all settings.
///
/// ```
/// use peregrine::settings::Settings;
///
/// let mut settings = Settings::default();
/// settings.set("cache=float16")?;
/// assert_eq!(settings.compute.cache, Some(peregrine::CachePrecision::Float16));
/// let wrong = settings.set("cach=float16").unwrap_err();
/// assert_eq!(wrong, "cach: no such setting; did you mean cache?");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The settings of a backend. Its device and precision are options of their own.
    pub compute: Compute,
    /// When kernels are timed.
    pub tuning: Tuning,
    batching: Policy,
    top_up_threshold: Option<f32>,
    shortlist_scope: Scope,
}

/// When kernels compete by their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tuning {
    /// Never, but choices stored beside a model are used.
    #[default]
    Stored,
    /// While translating.
    On,
    /// Never, and stored choices are not used.
    Off,
    /// While translating, and float32 competes with int16 as in Marian. A translation may then depend on its batch and on the
    /// run.
    Precisions,
}

/// A setting.
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What its value may be: the values, joined by `|`, or a word for a number or a list.
    pub values: &'static str,
    /// The value without it.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Whether it can change a translation or a score. Instruction sets change float32 sums alone, which the name of the device
    /// tells.
    pub changes_results: bool,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

impl Setting {
    /// The values it can have, if they can be listed.
    ///
    /// ```
    /// use peregrine::settings::SETTINGS;
    ///
    /// let sums = SETTINGS.iter().find(|setting| setting.name == "sums").unwrap();
    /// assert_eq!(sums.choices(), ["exact", "saturating"]);
    /// ```
    pub fn choices(&self) -> Vec<&'static str> {
        let listed = !self.values.chars().any(char::is_uppercase);
        self.values.split('|').filter(|_| listed).collect()
    }
}

impl Settings {
    /// Changes a setting by `NAME=VALUE`. The error is a sentence for whoever wrote it.
    pub fn set(&mut self, assignment: &str) -> Result<(), String> {
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(format!("{assignment}: expected NAME=VALUE"));
        };
        let setting = find(name)?;
        (setting.set)(self, value).map_err(|problem| format!("{name}: {problem}"))
    }

    /// Workers with these settings.
    pub fn apply_to(&self, mut workers: Workers) -> Workers {
        workers.batching = self.batching;
        workers.top_up_threshold = self.top_up_threshold;
        workers.shortlist_scope = self.shortlist_scope;
        workers
    }
}

/// The setting of that name.
pub fn find(name: &str) -> Result<&'static Setting, String> {
    SETTINGS.iter().find(|setting| setting.name == name).ok_or_else(|| {
        let near = SETTINGS.iter().map(|setting| setting.name).find(|known| is_near(name, known));
        match near {
            Some(near) => format!("{name}: no such setting; did you mean {near}?"),
            None => format!("{name}: no such setting; `peregrine help settings` lists them"),
        }
    })
}

/// Whether a name was meant by what was typed: one is the beginning of the other, or they differ in one letter at most.
fn is_near(typed: &str, known: &str) -> bool {
    let same = typed.chars().zip(known.chars()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&typed[nth(typed, same)..], &known[nth(known, same)..]);
    let (next_a, next_b) = (&a[nth(a, 1)..], &b[nth(b, 1)..]);
    (same >= 3 && (a.is_empty() || b.is_empty())) || next_a == b || a == next_b || next_a == next_b
}

/// The byte at which character `n` begins, or the end.
fn nth(text: &str, n: usize) -> usize {
    text.char_indices().nth(n).map_or(text.len(), |(at, _)| at)
}

/// Declares a row of the table.
macro_rules! setting {
    ($name:literal, $values:literal, $default:literal, $changes:literal, $set:expr, $about:literal) => {
        Setting {
            name: $name,
            values: $values,
            default: $default,
            about: $about,
            changes_results: $changes,
            set: $set,
        }
    };
}

/// All settings, by theme: processor, GPU, recurrent networks, batching, measuring.
pub const SETTINGS: &[Setting] = &[
    setting!(
        "isa",
        "portable|neon|neon-dot|avx2|avx-vnni|avx512|avx512-vnni|amx",
        "best",
        false,
        |s, v| assign(&mut s.compute.isa, by_name(&Level::ALL, Level::name, v)),
        "Instruction set of the kernels. The default is the best one of this processor."
    ),
    setting!(
        "cache",
        "float32|float16|bfloat16|int8",
        "as the precision",
        true,
        |s, v| assign(&mut s.compute.cache, by_name(&CachePrecision::ALL, CachePrecision::name, v)),
        "Precision of the KV cache. The default is int8 with int8 products, float16 with bfloat16 products, else float32."
    ),
    setting!(
        "input-scales",
        "row|file",
        "row",
        true,
        |s, v| switch(&mut s.compute.integers.fixed_scales, v, ["row", "file"]),
        "Quantisation scales of int8 inputs: fit to each row, or fixed by the model file (alphas) where it has them."
    ),
    setting!(
        "sums",
        "exact|saturating",
        "exact",
        true,
        |s, v| switch(&mut s.compute.integers.saturating, v, ["exact", "saturating"]),
        "Sums of int8 products: exact in 32 bits, or saturating in 16 bits as intgemm does without VNNI."
    ),
    setting!(
        "hidden",
        "float16|float32",
        "float16",
        true,
        |s, v| switch(&mut s.compute.integers.float_hidden, v, ["float16", "float32"]),
        "Precision of feed-forward activations (with ReLU) before they are quantised to int8."
    ),
    setting!(
        "row-blocks",
        "on|off",
        "on",
        false,
        |s, v| switch(&mut s.compute.all_rows_at_once, v, ["on", "off"]),
        "Work on what follows a product in blocks of rows that stay in L2."
    ),
    setting!(
        "screening",
        "on|off",
        "on",
        false,
        |s, v| switch(&mut s.compute.all_output_bytes, v, ["on", "off"]),
        "Greedy search in float32, and of one or two sentences in int8: rule out most words with output weights in int8 or 4 bits, then compute the rest in full."
    ),
    setting!(
        "tune",
        "auto|on|off|precisions",
        "auto",
        false,
        |s, v| assign(&mut s.tuning, tuning(v)),
        "Auto-tuning: time the kernels for each shape and keep the fastest. `auto` uses what `peregrine tune` stored; `precisions` lets float32 compete with int16 as Marian does."
    ),
    setting!(
        "without",
        "TECHNIQUE,…",
        "none",
        true,
        |s, v| assign(&mut s.compute.without, techniques(v)),
        "Turn off techniques: packed-once, prefetch, large-pages, joint-products, tile-order, two-panels, fused-norms, shared-reads, sixteen-rows, relu-sparsity."
    ),
    setting!(
        "output-layer",
        "epilogue|fused|separate|best",
        "epilogue",
        true,
        |s, v| assign(&mut s.compute.output_layer, v.parse()),
        "Top-k of the output layer on a GPU: in the epilogue of the product, by one fused kernel over stored logits, by separate kernels, or the best word without softmax."
    ),
    setting!(
        "gpu-cache",
        "activations|fp8",
        "activations",
        true,
        |s, v| switch(&mut s.compute.fp8_cache, v, ["activations", "fp8"]),
        "KV cache on a GPU: as activations are stored, or in fp8 (e4m3), half as large."
    ),
    setting!(
        "encode-beside",
        "on|off",
        "on",
        false,
        |s, v| switch(&mut s.compute.encode_in_turn, v, ["on", "off"]),
        "Encode sentences that will join a running batch on a second CUDA stream."
    ),
    setting!(
        "precompute-embeddings",
        "WORDS",
        "8000",
        false,
        |s, v| assign(&mut s.compute.speedups.embeddings, number(v)),
        "Recurrent networks: memoise the products of this many words' embeddings; 0 is off."
    ),
    setting!(
        "precompute-attention",
        "on|off",
        "on",
        true,
        |s, v| switch_on(&mut s.compute.speedups.attention, v),
        "Recurrent networks: multiply source states with the cell's weights once a sentence."
    ),
    setting!(
        "merge-states",
        "on|off",
        "on",
        false,
        |s, v| switch_on(&mut s.compute.speedups.merge, v),
        "Recurrent networks: hypotheses that share a state share its products."
    ),
    setting!(
        "reuse-memory",
        "on|off",
        "on",
        false,
        |s, v| switch_on(&mut s.compute.speedups.reuse, v),
        "Recurrent networks: keep working memory between steps."
    ),
    setting!(
        "functions",
        "fast|library",
        "fast",
        true,
        |s, v| assign(&mut s.compute.functions, functions(v)),
        "Recurrent networks: sigmoid and tanh by vectorised polynomials, or by the C library."
    ),
    setting!(
        "batching",
        "naive|shrink|sorted|top-up|auto",
        "auto",
        false,
        |s, v| assign(&mut s.batching, v.parse()),
        "Who is in the batch: `naive` computes ended sentences on, `shrink` drops them, `sorted` also sorts by length, `top-up` refills their slots."
    ),
    setting!(
        "top-up-threshold",
        "SHARE",
        "none",
        false,
        |s, v| assign(&mut s.top_up_threshold, share(v)),
        "Top-up batching refills a batch when at most this share of it is left (0.5 in the paper). By default a free slot is taken at once."
    ),
    setting!(
        "shortlist-scope",
        "sentence|batch",
        "sentence",
        true,
        |s, v| assign(&mut s.shortlist_scope, v.parse()),
        "Whose words a shortlist allows: the sentence's, or those of all sentences that join the batch with it, as in other engines. With `batch` a translation depends on its batch."
    ),
    setting!(
        "network",
        "model|echo",
        "model",
        true,
        |s, v| switch(&mut s.compute.echo, v, ["model", "echo"]),
        "What translates: the model, or a stand-in that costs nothing and says the source again, to measure everything else. It has the batches and workers of a GPU."
    ),
];

fn assign<T>(to: &mut T, value: Result<T, String>) -> Result<(), String> {
    *to = value?;
    Ok(())
}

/// Sets whether the value is the second of two.
fn switch(to: &mut bool, value: &str, values: [&str; 2]) -> Result<(), String> {
    let found = values.iter().position(|known| *known == value);
    *to = found.ok_or_else(|| format!("expected {} or {}", values[0], values[1]))? == 1;
    Ok(())
}

fn switch_on(to: &mut bool, value: &str) -> Result<(), String> {
    let mut off = false;
    switch(&mut off, value, ["on", "off"])?;
    *to = !off;
    Ok(())
}

fn by_name<T: Copy>(
    all: &[T],
    name: fn(T) -> &'static str,
    value: &str,
) -> Result<Option<T>, String> {
    let found = all.iter().copied().find(|one| name(*one) == value);
    let names = || all.iter().map(|one| name(*one)).collect::<Vec<_>>().join(", ");
    found.map(Some).ok_or_else(|| format!("expected one of {}", names()))
}

fn techniques(value: &str) -> Result<Vec<Technique>, String> {
    let one = |name| by_name(&Technique::ALL, Technique::name, name);
    Ok(value.split(',').map(one).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

fn tuning(value: &str) -> Result<Tuning, String> {
    match value {
        "auto" => Ok(Tuning::Stored),
        "on" => Ok(Tuning::On),
        "off" => Ok(Tuning::Off),
        "precisions" => Ok(Tuning::Precisions),
        _ => Err("expected auto, on, off or precisions".to_owned()),
    }
}

fn functions(value: &str) -> Result<Functions, String> {
    match value {
        "fast" => Ok(Functions::Fast),
        "library" => Ok(Functions::Library),
        _ => Err("expected fast or library".to_owned()),
    }
}

fn number(value: &str) -> Result<usize, String> {
    usize::from_str(value).map_err(|_| "expected a whole number".to_owned())
}

fn share(value: &str) -> Result<Option<f32>, String> {
    let share = f32::from_str(value).ok().filter(|share| (0.0..=1.0).contains(share));
    share.map(Some).ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_value_is_taken_and_others_are_refused() {
        for setting in SETTINGS {
            let mut settings = Settings::default();
            for value in setting.choices() {
                let gpu_only = setting.name == "output-layer" && cfg!(not(feature = "cuda"));
                let outcome = settings.set(&format!("{}={value}", setting.name));
                assert!(outcome.is_ok() != gpu_only, "{}={value}: {outcome:?}", setting.name);
            }
            let wrong = settings.set(&format!("{}=no such value", setting.name)).unwrap_err();
            assert!(wrong.starts_with(setting.name), "{wrong}");
            assert!(setting.about.ends_with('.'), "{}", setting.name);
        }
    }

    #[test]
    fn names_are_in_the_list_of_techniques() {
        let about = find("without").unwrap().about;
        for technique in Technique::ALL {
            assert!(about.contains(technique.name()), "{}", technique.name());
        }
    }

    #[test]
    fn the_default_of_a_setting_changes_nothing() {
        let usual = format!("{:?}", Settings::default());
        for setting in SETTINGS.iter().filter(|s| s.choices().contains(&s.default)) {
            if setting.name == "output-layer" && cfg!(not(feature = "cuda")) {
                continue;
            }
            let mut settings = Settings::default();
            settings.set(&format!("{}={}", setting.name, setting.default)).unwrap();
            assert_eq!(format!("{settings:?}"), usual, "{}", setting.name);
        }
    }

    #[test]
    fn a_near_miss_is_named() {
        let near = |name| find(name).map(|s| s.name);
        assert!(near("screning").unwrap_err().ends_with("did you mean screening?"));
        assert!(near("top-up").unwrap_err().ends_with("did you mean top-up-threshold?"));
        assert!(near("zzz").unwrap_err().contains("help settings"));
        assert!(near("é").is_err() && near("").is_err());
        assert!(Settings::default().set("cache").unwrap_err().contains("NAME=VALUE"));
    }
}
