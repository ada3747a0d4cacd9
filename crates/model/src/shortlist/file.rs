//! Readers of shortlist tables, for a pair of vocabularies.

use std::path::Path;

use peregrine_formats::Source;
use peregrine_text::Tokenizer;
use rustc_hash::FxHashMap;

use crate::shortlist::phrases::Phrases;
use crate::shortlist::{Parts, Rules, ShortlistFile, flatten};
use crate::{ModelError, belonging, files};

pub(super) fn read_binary(path: &Path, mut rules: Rules) -> Result<Parts, ModelError> {
    let stored = peregrine_formats::shortlist::read(&Source::open(path)?)?;
    rules.first = stored.first;
    let (mut offsets, mut lists) = (vec![0], Vec::new());
    for word in 0..offset(path, stored.source_words())? {
        lists.extend(stored.list(word));
        offsets.push(offset(path, lists.len())?);
    }
    Ok(Parts { rules, offsets, lists, phrases: Vec::new() })
}

fn offset(path: &Path, length: usize) -> Result<u32, ModelError> {
    u32::try_from(length).map_err(|_| ModelError::invalid(path, "the shortlist is too long"))
}

type Table = FxHashMap<u32, FxHashMap<u32, f32>>;

pub(super) fn read_text(
    file: &ShortlistFile,
    source: &Tokenizer,
    target: &Tokenizer,
    notes: &mut Vec<String>,
) -> Result<Vec<Vec<u32>>, ModelError> {
    let bytes = files::read(&file.path)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let what = "compressed shortlists are not supported; unpack it first";
        return Err(ModelError::unsupported(&file.path, what));
    }
    let id = |side: &Tokenizer, word: &str| side.id(word).or_else(|| side.unk());
    let mut table = Table::default();
    let (mut known, mut total) = (0, 0);
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        // Only ASCII blanks separate fields: other Unicode blanks may be part of words.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (words, probability) = match fields[..] {
            [] => continue,
            [from, to, probability] if file.amun && line.contains('\t') => {
                ((to, from), probability.parse::<f32>().ok())
            }
            [to, from, probability] => ((to, from), probability.parse::<f32>().ok()),
            _ => (("", ""), None),
        };
        let Some(probability) = probability else {
            let problem = format!("line {}: expected `target source probability`", number + 1);
            return Err(ModelError::invalid(&file.path, problem));
        };
        let (to, from) = words;
        if to == "NULL" || from == "NULL" {
            continue;
        }
        total += 1;
        known += usize::from(source.id(from).is_some() && target.id(to).is_some());
        if let (Some(from), Some(to)) = (id(source, from), id(target, to)) {
            table.entry(from).or_default().insert(to, probability);
        }
    }
    notes.extend(belonging::shortlist(&file.path, known, total));
    Ok(prune(table, source.size(), file))
}

/// The best translations of every source word, by descending probability and then descending id.
fn prune(table: Table, source_size: usize, file: &ShortlistFile) -> Vec<Vec<u32>> {
    let mut lists = vec![Vec::new(); source_size];
    for (source, translations) in table {
        let mut kept: Vec<(f32, u32)> = translations
            .into_iter()
            .map(|(target, probability)| (probability, target))
            .filter(|(probability, _)| *probability > file.prune)
            .filter(|(_, target)| !file.amun || *target as usize >= file.first)
            .collect();
        kept.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        kept.truncate(file.best);
        if let Some(list) = lists.get_mut(source as usize) {
            *list = kept.into_iter().map(|(_, target)| target).collect();
        }
    }
    lists
}

/// Reads CTranslate2's vocabulary map. Besides the end symbol, the unknown word and the start
/// symbol are always allowed, and selections are not filled up to a multiple. The library matches
/// source words by their text, before it adds an end symbol. Here ids are matched, so keys with the
/// end symbol or with words that the source vocabulary lacks are left out.
pub(super) fn read_vmap(
    path: &Path,
    mut rules: Rules,
    source: &Tokenizer,
    target: &Tokenizer,
    notes: &mut Vec<String>,
) -> Result<Parts, ModelError> {
    let file = Source::open(path)?;
    rules.first = 0;
    rules.multiple = 1;
    rules.include_source = false;
    let known = |word: &&str| source.id(word).filter(|&id| id != source.eos());
    let mut always = Vec::new();
    let mut lists = vec![Vec::new(); source.size()];
    let mut phrases = Phrases::default();
    let (mut matched, mut total) = (0, 0);
    for entry in peregrine_formats::vmap::read(&file)? {
        let id = |word: &&str| target.id(word).or_else(|| target.unk());
        let targets: Vec<u32> = entry.targets.iter().filter_map(id).collect();
        if entry.key.is_empty() {
            always = targets;
            continue;
        }
        total += 1;
        let Some(key) = entry.key.iter().map(known).collect::<Option<Vec<u32>>>() else { continue };
        matched += 1;
        match key[..] {
            [word] => {
                if let Some(list) = lists.get_mut(word as usize) {
                    *list = targets;
                }
            }
            _ => phrases.insert(key, targets),
        }
    }
    notes.extend(belonging::shortlist(path, matched, total));
    rules.always = always.into_iter().chain(target.unk()).chain(target.id("<s>")).collect();
    let (offsets, lists) = flatten(lists);
    Ok(Parts { rules, offsets, lists, phrases: phrases.to_numbers() })
}
