//! Writes learned tables, in the format given by the file name.

use std::fmt::Write;
use std::path::Path;

use peregrine_formats::{shortlist as binary, write_whole};
use peregrine_text::Tokenizer;

use crate::ModelError;
use crate::shortlist::ShortlistFile;
use crate::shortlist::learn::Lexicon;

/// Writes a table for a pair of vocabularies: Marian's binary form (`.bin`), CTranslate2's vocabulary
/// map (`vmap*.txt` or `.vmap`), or lines `target source probability`. The first words, which are
/// always allowed, are part of the first two only. Words that a text form cannot hold are left out.
pub fn write_shortlist(
    path: &Path,
    lexicon: &Lexicon,
    first: usize,
    source: &Tokenizer,
    target: &Tokenizer,
) -> Result<(), ModelError> {
    let file = ShortlistFile::new(path);
    if file.is_binary() {
        let sorted = |list: &Vec<(u32, f32)>| {
            let mut ids: Vec<u32> = list.iter().map(|&(target, _)| target).collect();
            ids.sort_unstable();
            ids
        };
        let lists: Vec<Vec<u32>> = lexicon.iter().map(sorted).collect();
        let best = lists.iter().map(Vec::len).max().unwrap_or_default();
        return Ok(binary::write(path, &binary::Shortlist::new(first, best, &lists))?);
    }
    let is_word = |token: &&str| {
        !token.is_empty() && *token != "NULL" && !token.contains(|c: char| c.is_ascii_whitespace())
    };
    let word = |id: u32| Some(target.token(id)).filter(is_word);
    let mut text = String::new();
    if file.is_vmap() && first > 0 {
        let always = (0..first.min(target.size()) as u32).filter_map(word);
        let _ = writeln!(text, "\t{}", always.collect::<Vec<_>>().join(" "));
    }
    for (id, list) in lexicon.iter().enumerate() {
        let Some(source) = Some(source.token(id as u32)).filter(is_word) else { continue };
        let words = list.iter().filter_map(|&(id, probability)| Some((word(id)?, probability)));
        if file.is_vmap() {
            let words: Vec<&str> = words.map(|(word, _)| word).collect();
            if !words.is_empty() {
                let _ = writeln!(text, "{source}\t{}", words.join(" "));
            }
            continue;
        }
        for (word, probability) in words {
            let _ = writeln!(text, "{word} {source} {probability}");
        }
    }
    Ok(write_whole(path, text.as_bytes())?)
}
