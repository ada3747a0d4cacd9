//! Shows the blocks of a document: `cargo run -p peregrine-document --example blocks FILE`.

use peregrine_document::{Document, Format, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).ok_or("usage: blocks FILE")?;
    let bytes = std::fs::read(&name)?;
    let format = Format::detect(Some(&name), &bytes[..bytes.len().min(1024)]);
    let mut options = Options::default();
    options.attributes = true;
    let document = Document::read(bytes, format, &options)?;
    println!("{format}, {} blocks", document.blocks().len());
    for block in document.blocks() {
        println!("{:?}", block.text);
        for span in &block.spans {
            println!("    {:?} {:?}", span.kind, &block.text[span.text.clone()]);
        }
    }
    Ok(())
}
