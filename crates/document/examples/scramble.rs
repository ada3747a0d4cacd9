//! Stands in for the command in checks of documents: `scramble translate -i IN -o OUT` writes a document whose words are longer, in
//! another order and partly dropped. Other arguments are passed over.
//!
//! ```sh
//! cargo run -p peregrine-document --example scramble -- translate -i film.srt -o film.new.srt
//! python tests/documents/tables.py --binary target/debug/examples/scramble --model none
//! ```

use std::process::ExitCode;

use peregrine_document::{Block, Document, Format, Link, Options, Translated};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |flag: &str| arguments.windows(2).find(|pair| pair[0] == flag).map(|pair| &pair[1]);
    let (Some(input), Some(output)) = (value("-i"), value("-o")) else {
        eprintln!("usage: scramble translate -i IN -o OUT");
        return ExitCode::from(2);
    };
    let result = std::fs::read(input).map_err(|error| error.to_string()).and_then(|bytes| {
        let format = Format::detect(Some(input), &bytes);
        let mut options = Options::default();
        options.target_language = Some("pt".to_owned());
        let document =
            Document::read(bytes, format, &options).map_err(|error| error.to_string())?;
        let new: Vec<Translated> = document.blocks().iter().map(scrambled).collect();
        std::fs::write(output, document.write(&new).bytes).map_err(|error| error.to_string())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{input}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Every other pair of words changes places, words get another ending, and one in nine is dropped. What is kept stays a word.
fn scrambled(block: &Block) -> Translated {
    let keeps = block.keep();
    let is_kept = |at: usize| keeps.iter().any(|keep| keep.start < at && at < keep.end);
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in block.text.char_indices().chain([(block.text.len(), ' ')]) {
        match (start, c.is_whitespace() && !is_kept(at)) {
            (None, false) => start = Some(at),
            (Some(from), true) => {
                words.push(from..at);
                start = None;
            }
            _ => {}
        }
    }
    for pair in words.chunks_exact_mut(2).step_by(2) {
        pair.swap(0, 1);
    }
    let mut new = Translated::default();
    let count = words.len();
    for (number, word) in words.into_iter().enumerate() {
        let keep = keeps.iter().find(|keep| word.start <= keep.start && keep.end <= word.end);
        if keep.is_none() && number % 9 == 8 && count > 9 {
            continue;
        }
        if !new.text.is_empty() {
            new.text.push(' ');
        }
        let start = new.text.len();
        new.text.push_str(&block.text[word.clone()]);
        match keep {
            Some(_) => {
                for keep in keeps.iter().filter(|k| word.start <= k.start && k.end <= word.end) {
                    let to = keep.start - word.start + start..keep.end - word.start + start;
                    new.kept.push((keep.clone(), to));
                }
            }
            None => new.text.push_str("ão"),
        }
        new.links.push(Link::new(word, start..new.text.len(), 1.0));
    }
    new
}
