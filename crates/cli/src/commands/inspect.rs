//! `peregrine inspect`

use std::path::PathBuf;

use peregrine::Model;
use peregrine::model::{Member, verify};
use serde_json::{Value, json};

use peregrine_args::console::{self, show};
use peregrine_args::model::OpenArgs;

/// Show what a model is: architecture, sizes, vocabularies, search settings, every tensor
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model file or directory of any format; several are an ensemble; without one, the built-in model
    #[arg(value_name = "MODEL")]
    model: Vec<PathBuf>,

    #[command(flatten)]
    open: OpenArgs,

    /// Print a JSON object
    #[arg(long)]
    json: bool,

    /// Check the model instead: compare the checksums of its files, where the format has some, and look
    /// whether every weight is a finite number. Prints what was checked; what is damaged ends with code 2
    #[arg(long, conflicts_with = "json")]
    verify: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let model = args.open.read(&args.model)?;
    if args.verify {
        // All of it before anything is printed: what is damaged is one line.
        let checked = [verify::checksums(&model)?, verify::numbers(&model)?].concat();
        show!("{}", checked.join("\n"));
    } else if args.json {
        show!("{}", describe(&model));
    } else {
        console::print(format_args!("{}", text(&model)));
    }
    Ok(())
}

fn describe(model: &Model) -> Value {
    let mut description = model.describe();
    for (i, member) in model.members.iter().enumerate() {
        description["members"][i]["tensors"] = member.weights.iter().map(tensor).collect();
    }
    description
}

fn tensor((name, weight): (&str, &peregrine::model::Weight)) -> Value {
    json!({ "name": name, "shape": weight.shape, "precision": weight.precision })
}

fn text(model: &Model) -> String {
    let description = model.describe();
    let mut out = String::new();
    section(&mut out, "", &description, 0);
    for member in &model.members {
        out.push_str(&tensors(member));
    }
    out
}

/// A JSON value as indented `name: value` lines.
fn section(out: &mut String, name: &str, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth.saturating_sub(1));
    let label = if name.is_empty() { String::new() } else { format!("{indent}{name}:") };
    match value {
        Value::Object(fields) => {
            if !label.is_empty() {
                out.push_str(&format!("{label}\n"));
            }
            fields.iter().for_each(|(name, value)| section(out, name, value, depth + 1));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (i, item) in items.iter().enumerate() {
                section(out, &format!("{name} {i}"), item, depth);
            }
        }
        Value::Null => {}
        Value::String(text) => out.push_str(&format!("{label} {text}\n")),
        other => out.push_str(&format!("{label} {other}\n")),
    }
}

fn tensors(member: &Member) -> String {
    let mut out = format!("tensors of {}:\n", member.path.display());
    for (name, weight) in member.weights.iter() {
        let shape = weight.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ");
        out.push_str(&format!("  {name:40} {shape:16} {}\n", weight.precision.name()));
    }
    out
}
