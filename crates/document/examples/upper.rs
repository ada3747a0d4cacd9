//! Writes a document with its text in capitals, word by word: `cargo run -p peregrine-document --example upper IN OUT`.
//! With `--turn` the words of each block stand in the opposite order, so that formatting has to move.

use peregrine_document::{Block, Document, Format, Link, Options, Translated};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let [from, to] = names.as_slice() else { return Err("usage: upper [--turn] IN OUT".into()) };
    let bytes = std::fs::read(from)?;
    let format = Format::detect(Some(from), &bytes[..bytes.len().min(4096)]);
    let document = Document::read(bytes, format, &Options::default())?;
    let turn = options.iter().any(|option| option == "--turn");
    let new: Vec<Translated> = document.blocks().iter().map(|block| upper(block, turn)).collect();
    let written = document.write(&new);
    for note in &written.report {
        println!("{note:?}");
    }
    std::fs::write(to, written.bytes)?;
    Ok(())
}

/// A block in capitals. What is kept stays as it is.
fn upper(block: &Block, turn: bool) -> Translated {
    let copy = Translated::copy(block);
    let keeps = block.keep();
    let mut words: Vec<_> = copy.links.into_iter().map(|link| link.source).collect();
    if turn {
        words.reverse();
    }
    let mut new = Translated::default();
    for word in words {
        if !new.text.is_empty() {
            new.text.push(' ');
        }
        let start = new.text.len();
        let is_kept = keeps.iter().any(|keep| keep.start < word.end && word.start < keep.end);
        match is_kept {
            true => new.text.push_str(&block.text[word.clone()]),
            false => new.text.push_str(&block.text[word.clone()].to_uppercase()),
        }
        new.links.push(Link::new(word, start..new.text.len(), 1.0));
    }
    new
}
