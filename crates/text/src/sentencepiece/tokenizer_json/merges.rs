//! Scores of BPE pieces from the order of their merges.
//!
//! SentencePiece joins *any* two neighbours that make a piece, best score first. `tokenizers` joins the pairs that are
//! listed, first one first. Both are the same if every pair that makes a piece is listed, as it is where the list was
//! derived from a SentencePiece model: then a piece's score is the place of its first merge.
//!
//! Versions of `transformers` up to 2023 took the score zero for none and left out all merges of the best piece (their
//! issue 24233). It is known by that.

use super::super::file::Kind;
use super::quote;
use super::read::Merge;
use crate::Error;
use crate::trie::{ROOT, Trie};

/// Longer pieces are not checked for missing merges. Real ones have up to 50 bytes, and the check takes quadratic time.
const LONGEST_CHECKED: usize = 128;

/// The scores by id: minus the number of better pieces.
pub(super) fn scores(
    name: &str,
    merges: &[Merge<'_>],
    words: &[&str],
    kinds: &[Kind],
    index: &Trie,
) -> Result<Vec<f32>, Error> {
    let is_normal = |id: u32| kinds[id as usize] == Kind::Normal;
    let mut ranks = vec![None; words.len()];
    let mut found = 1;
    // A piece's id and the length of its left part.
    let mut seams: Vec<(u32, u32)> = Vec::with_capacity(merges.len());
    for (place, Merge(left, right)) in merges.iter().enumerate() {
        let known =
            |word: &str| index.get(word.as_bytes()).ok_or_else(|| unknown(name, place, word));
        let parts = [known(left)?, known(right)?];
        let joined = index
            .walk(ROOT, left.as_bytes())
            .and_then(|node| index.walk(node, right.as_bytes()))
            .and_then(|node| index.value(node))
            .ok_or_else(|| unknown(name, place, &[&**left, &**right].concat()))?;
        // Names such as `</s>` can be joined from pieces, but no text matches them.
        if is_normal(joined) && parts.into_iter().all(is_normal) {
            if ranks[joined as usize].is_none() {
                ranks[joined as usize] = Some(found);
                found += 1;
            }
            seams.push((joined, left.len() as u32));
        }
    }
    seams.sort_unstable();
    seams.dedup();
    match left_out(&seams, words, index, is_normal) {
        Ok(None) => {}
        Ok(Some(best)) => ranks[best as usize] = Some(0),
        Err((left, right)) => {
            let (left, right) = (quote(left), quote(right));
            let problem = format!(
                "{left} and {right} make a piece, but are not listed: this is not SentencePiece's BPE"
            );
            return Err(Error::new(name, "merges", problem));
        }
    }
    Ok(ranks.into_iter().map(|rank| -(rank.unwrap_or(found) as f32)).collect())
}

/// The one piece without any merge that has two pieces to be made from. `seams` are sorted. If it is not the only one,
/// or some merges of a piece are missing: two pieces that have none.
fn left_out<'a>(
    seams: &[(u32, u32)],
    words: &[&'a str],
    index: &Trie,
    is_normal: impl Fn(u32) -> bool,
) -> Result<Option<u32>, (&'a str, &'a str)> {
    let mut rest = seams;
    let mut left_out = None;
    for (id, word) in (0..).zip(words) {
        let (listed, behind) = rest.split_at(rest.partition_point(|seam| seam.0 == id));
        rest = behind;
        if !is_normal(id) || word.len() > LONGEST_CHECKED {
            continue;
        }
        for (length, left) in index.prefixes(word.as_bytes()) {
            let right = index.get(&word.as_bytes()[length..]);
            let joins = is_normal(left) && right.is_some_and(&is_normal);
            if !joins || listed.iter().any(|seam| seam.1 == length as u32) {
                continue;
            }
            if !listed.is_empty() || left_out.is_some_and(|other| other != id) {
                return Err(word.split_at(length));
            }
            left_out = Some(id);
        }
    }
    Ok(left_out)
}

fn unknown(name: &str, place: usize, word: &str) -> Error {
    let problem = format!("{} is not in the vocabulary", quote(word));
    Error::new(name, format!("merge {place}"), problem)
}
