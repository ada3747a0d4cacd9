//! `peregrine translate`

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};
use peregrine::marian_format::{AlignmentStyle, Fields, best_line, n_best_lines};
use peregrine::{Dictionary, Options, Request, Translation, Translator};
use serde_json::json;

use crate::lines::{Lines, open_output};
use crate::model_args::ModelArgs;
use crate::search_args::SearchArgs;

/// Translate text, one line in, one line out
///
/// Reads standard input unless TEXT or a file is given. Every input line gives exactly one output
/// line, in order, whatever it holds; a line too long for the model is translated in parts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Lines to translate
    text: Vec<String>,

    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    search: SearchArgs,

    /// Read from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    input: Option<PathBuf>,

    /// Write to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// A file with the beginning of each translation, a line for each input line; an empty line
    /// forces nothing
    #[arg(long, value_name = "FILE")]
    prefix: Option<PathBuf>,

    /// Print all hypotheses in Marian's form: number ||| text ||| F0= sum ||| score
    #[arg(long)]
    n_best: bool,

    /// Print the log-probability of every token
    #[arg(long)]
    word_scores: bool,

    /// Print word alignments: `hard` (best source token), `soft` (all weights), or a threshold
    #[arg(long, value_name = "hard|soft|THRESHOLD", num_args = 0..=1, default_missing_value = "hard", value_parser = parse_alignment)]
    alignment: Option<AlignmentStyle>,

    /// Replace unknown words by the source word they attend to, or by its translation in a
    /// dictionary (lines `target source probability`)
    #[arg(long, value_name = "DICTIONARY", num_args = 0..=1)]
    replace_unknown: Option<Option<PathBuf>>,

    /// Print tokens instead of text
    #[arg(long)]
    tokens: bool,

    /// Print a JSON object for each line, with scores
    #[arg(long, conflicts_with_all = ["n_best", "word_scores", "tokens"])]
    json: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Lines read ahead for each batch of sentences, so that sentences of like length meet.
const READ_AHEAD: usize = 16;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let translator = args.model.open()?;
    if !args.quiet {
        for note in &translator.model().notes {
            eprintln!("peregrine: note: {note}");
        }
    }
    let options = args.options(&translator);
    let dictionary = args.dictionary()?;
    let mut input = args.lines()?;
    let mut prefixes = args.prefix.as_deref().map(|path| Lines::open(Some(path))).transpose()?;
    let mut output = open_output(args.output.as_ref())?;
    let mut progress = Progress::new(args, &input);
    let chunk = READ_AHEAD * args.search.batch_sentences() * options.threads;
    let mut number = 0;
    loop {
        let lines = input.next_chunk(chunk)?;
        if lines.is_empty() {
            break;
        }
        let prefixes = match &mut prefixes {
            Some(prefixes) => prefixes.next_chunk(lines.len())?,
            None => Vec::new(),
        };
        let mut translations = translator.translate_batch(&requests(&lines, &prefixes), &options);
        if let Some(dictionary) = &dictionary {
            for (line, translation) in lines.iter().zip(&mut translations) {
                translator.replace_unknown(line, translation, dictionary);
            }
        }
        for translation in &translations {
            args.note_cuts(number, translation);
            args.write(&mut output, number, translation)?;
            number += 1;
        }
        output.flush()?;
        progress.advance(&translations, input.bytes_read);
    }
    progress.finish();
    if !args.quiet && peregrine::narrowed_rows() > 0 {
        let rows = peregrine::narrowed_rows();
        eprintln!(
            "peregrine: note: {rows} rows did not fit 16-bit fixed point and were rounded to fewer bits"
        );
    }
    Ok(())
}

fn requests<'a>(lines: &'a [String], prefixes: &'a [String]) -> Vec<Request<'a>> {
    let prefixes = prefixes.iter().map(|p| Some(p.as_str()).filter(|p| !p.is_empty()));
    let prefixes = prefixes.chain(std::iter::repeat(None));
    lines.iter().zip(prefixes).map(|(text, prefix)| Request { text, prefix }).collect()
}

impl Args {
    fn options(&self, translator: &Translator) -> Options {
        let mut options = self.search.options(translator);
        options.scores = self.n_best || self.word_scores || self.json;
        options.alignments = self.alignment.is_some() || self.replace_unknown.is_some();
        if self.n_best {
            options.n_best = options.search.beam;
        }
        options
    }

    fn dictionary(&self) -> anyhow::Result<Option<Dictionary>> {
        Ok(match &self.replace_unknown {
            None => None,
            Some(None) => Some(Dictionary::default()),
            Some(Some(path)) => Some(Dictionary::read(path)?),
        })
    }

    fn lines(&self) -> anyhow::Result<Lines> {
        if !self.text.is_empty() {
            if let Some(line) = self.text.iter().find(|line| line.contains('\n')) {
                bail!("{line:?}: a text argument is one line");
            }
            return Ok(Lines::of_text(&self.text));
        }
        Lines::open(self.input.as_deref())
    }

    fn note_cuts(&self, number: usize, translation: &Translation) {
        if !self.quiet && translation.segments > 1 {
            let (line, parts) = (number + 1, translation.segments);
            eprintln!(
                "peregrine: note: line {line} is too long for the model: translated in {parts} parts"
            );
        }
    }

    fn write(
        &self,
        output: &mut dyn Write,
        number: usize,
        translation: &Translation,
    ) -> std::io::Result<()> {
        let fields = Fields {
            alignment: self.alignment,
            word_scores: self.word_scores,
            tokens: self.tokens,
        };
        if self.json {
            writeln!(output, "{}", self.json_line(translation))
        } else if self.n_best {
            let lines = n_best_lines(number, translation, &fields);
            lines.iter().try_for_each(|line| writeln!(output, "{line}"))
        } else {
            writeln!(output, "{}", best_line(translation, &fields))
        }
    }

    fn json_line(&self, translation: &Translation) -> serde_json::Value {
        let alternative = |a: &peregrine::Alternative| {
            let mut object = json!({
                "text": a.text,
                "score": a.score,
                "tokens": a.tokens,
                "token_scores": a.token_scores,
                "ended": a.ended,
            });
            if self.alignment.is_some() {
                object["alignment"] = json!(a.alignment);
            }
            object
        };
        json!({
            "text": translation.text(),
            "source_tokens": translation.source_tokens,
            "parts": translation.segments,
            "alternatives": translation.alternatives.iter().map(alternative).collect::<Vec<_>>(),
        })
    }
}

fn parse_alignment(text: &str) -> Result<AlignmentStyle, String> {
    match text {
        "hard" | "1" => Ok(AlignmentStyle::Hard),
        "soft" => Ok(AlignmentStyle::Soft),
        _ => match text.parse::<f32>() {
            Ok(threshold) if (0.0..1.0).contains(&threshold) => {
                Ok(AlignmentStyle::Above(threshold))
            }
            _ => Err("expected hard, soft or a number from 0 to 1".into()),
        },
    }
}

/// A line on the terminal: lines, tokens a second, time left.
struct Progress {
    bar: Option<ProgressBar>,
    start: Instant,
    lines: usize,
    tokens: usize,
}

impl Progress {
    fn new(args: &Args, input: &Lines) -> Progress {
        // Where translations scroll by on the same terminal, they are progress enough.
        let visible = std::io::stderr().is_terminal()
            && !args.quiet
            && (args.output.is_some() || !std::io::stdout().is_terminal());
        let bar = visible.then(|| match input.total_bytes {
            Some(total) => ProgressBar::new(total).with_style(style("{bar:24} {msg}, {eta} left")),
            None => ProgressBar::no_length().with_style(style("{spinner} {msg}")),
        });
        Progress { bar, start: Instant::now(), lines: 0, tokens: 0 }
    }

    fn advance(&mut self, translations: &[Translation], bytes_read: u64) {
        let Some(bar) = &self.bar else { return };
        self.lines += translations.len();
        let best = translations.iter().filter_map(|t| t.alternatives.first());
        self.tokens += best.map(|a| a.tokens.len() + 1).sum::<usize>();
        let speed = self.tokens as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        bar.set_message(format!("{} lines, {speed:.0} tokens/s", self.lines));
        bar.set_position(bytes_read);
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
