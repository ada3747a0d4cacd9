//! `peregrine detect`

use std::path::PathBuf;

use anyhow::bail;
use peregrine::text::{Detection, Language, detect};
use peregrine_args::console::show;
use peregrine_args::lines::Lines;
use serde_json::{Value, json};

/// Tell which language a text is in
///
/// Reads standard input unless TEXT or a file is given. The text is one document, and its first 1,000 characters decide. Prints
/// code, confidence and name of the language; where it is in doubt, other languages that it may be. `und` is none.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Lines of the text
    text: Vec<String>,

    /// Read from a file; `-` is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    input: Option<PathBuf>,

    /// Choose among these languages only, by codes or English names, e.g. en,pt,de
    #[arg(long, value_name = "LANGUAGES", value_delimiter = ',')]
    among: Vec<String>,

    /// Take every line for a text of its own
    #[arg(long)]
    lines: bool,

    /// Print a JSON object for each text
    #[arg(long)]
    json: bool,
}

/// Bytes of a document that are read: some white space, and 1,000 characters of four bytes.
const MOST_BYTES: usize = 1 << 16;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    for name in &args.among {
        known(name)?;
    }
    let among: Vec<&str> = args.among.iter().map(String::as_str).collect();
    let mut lines = match args.text.is_empty() {
        true => Lines::open(args.input.as_deref())?,
        false => Lines::of_text(&args.text),
    };
    let mut document = String::new();
    while let Some(fragment) = lines.next_fragment()? {
        document.push_str(&fragment.text);
        if args.lines && fragment.ends {
            args.show(&detect(&document, &among));
            document.clear();
        } else if fragment.ends {
            document.push('\n');
        }
        if document.len() >= MOST_BYTES && !args.lines {
            break;
        }
        // The rest of a long line tells nothing more.
        let kept = document.floor_char_boundary(MOST_BYTES);
        document.truncate(kept);
    }
    if !args.lines {
        args.show(&detect(&document, &among));
    }
    Ok(())
}

/// Refuses what is the name of no language.
fn known(name: &str) -> anyhow::Result<()> {
    if Language::find(name).is_some() {
        return Ok(());
    }
    let meant: Vec<String> =
        Language::near_misses(name).iter().map(|l| format!("{} ({})", l.code, l.name)).collect();
    match meant.is_empty() {
        true => bail!("--among: no language has the name {name:?}"),
        false => bail!("--among: no language has the name {name:?}; is it {}?", meant.join(" or ")),
    }
}

impl Args {
    fn show(&self, found: &Detection) {
        match self.json {
            true => show!("{}", object(found)),
            false => show!("{}", line(found)),
        }
    }
}

fn name(code: &str) -> &'static str {
    Language::find(code).map_or("", |language| language.name)
}

fn object(found: &Detection) -> Value {
    json!({
        "language": found.language,
        "name": found.language.map(name),
        "confidence": (f64::from(found.confidence) * 1000.0).round() / 1000.0,
        "reliable": found.reliable,
        "others": found.others,
        "script": found.script,
    })
}

fn line(found: &Detection) -> String {
    let Some(code) = found.language else { return "und\t0.00\tunknown".to_owned() };
    let others = match found.others.is_empty() {
        true => String::new(),
        false => format!("\tor {}", found.others.join(", ")),
    };
    format!("{code}\t{:.2}\t{}{others}", found.confidence, name(code))
}
