//! What `translate` reads and what it writes, as options.

use std::path::PathBuf;

use anyhow::Context;
use peregrine::marian_format::{AlignmentStyle, Fields};
use peregrine::{Carry, Dictionary, Glossary, GlossaryMode, Options, Split};

use super::answers::Form;
use super::documents::InputFormat;

/// What is read and what is written.
#[derive(clap::Args)]
#[command(next_help_heading = "Input and output")]
pub(super) struct InputOutput {
    /// Read from a file; `-` is standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    pub(super) input: Option<PathBuf>,

    /// Write to a file; `-` is standard output. Of several files: to a folder
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Put translations in the place of files, which are kept as FILE.orig
    ///
    /// SUFFIX is another ending for what is kept. `none` keeps nothing.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "SUFFIX",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ".orig",
        conflicts_with_all = ["output", "resume"],
        value_parser = parse_suffix
    )]
    pub(super) in_place: Option<String>,

    /// How the input is read: auto, lines, html, md and others [default: auto]
    ///
    /// The formats: text, html, xhtml, xml, md, srt, vtt, docx, pptx, xlsx, odt, epub, po, xliff, json, yaml.
    /// `lines`: one line in, one line out. Else it is a document: its text is translated, and everything else stays byte for byte
    /// (docs/documents.md). `auto` goes by the ending of the file's name; what is no known document is lines.
    #[arg(long, value_name = "NAME", default_value = "auto", hide_default_value = true)]
    pub(super) format: InputFormat,

    /// Translate attributes of a document that people read: alt, title, placeholder and others
    #[arg(long, hide_short_help = true)]
    pub(super) attributes: bool,

    /// Translate entries of PO and XLIFF files that have a translation too
    #[arg(long, hide_short_help = true)]
    pub(super) retranslate: bool,

    /// Translate only values of JSON and YAML files with such keys, e.g. messages or *.title
    #[arg(long, hide_short_help = true, value_name = "PATTERN", value_delimiter = ',')]
    pub(super) keys: Vec<String>,

    /// Split lines: none, sentence or paragraph [default: sentence]
    ///
    /// Sentences are translated each for itself and joined again. `none`: a line is a sentence. `sentence`: a line may hold several.
    /// `paragraph`: sentences may go on over lines; an empty line ends a paragraph, and a sentence's translation stands where it
    /// began. The default is `none` with --compat, for models that take prepared lines (words and marks apart, or subwords), and where
    /// tokens, scores, alignments or n-best lists are printed as Marian does.
    #[arg(long, value_name = "HOW")]
    pub(super) split: Option<Split>,

    /// Keep what the model cannot spell: addresses, placeholders, emoji [default: on]
    ///
    /// It is carried through the translation. Capitals, typographic characters and white space are kept too. `off` gives what the original tool would give; it is the
    /// default where that of --split is `none`.
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"], hide_possible_values = true)]
    pub(super) carry: Option<String>,

    /// Translate terms as a file says: lines `source<TAB>target`, or CSV
    ///
    /// Several forms of a target are divided by `|`, and an empty one keeps the source as it is. Flags in a third column: case, keep,
    /// forbid, prefix. What came of each term is in --json; a summary is on standard error.
    #[arg(long, value_name = "FILE")]
    pub(super) glossary: Option<PathBuf>,

    /// How terms get into a translation: constrain, mask or replace [default: constrain]
    ///
    /// `constrain` searches for a translation with the terms. `mask` hides them from the model, which suits names and codes. `replace`
    /// puts them in place of the words that the model has chosen.
    #[arg(
        long,
        hide_short_help = true,
        requires = "glossary",
        value_name = "HOW",
        default_value = "constrain",
        hide_default_value = true
    )]
    pub(super) glossary_mode: GlossaryMode,

    /// A file with the beginning of each translation, a line for each input line
    ///
    /// An empty line forces nothing.
    #[arg(long, value_name = "FILE")]
    pub(super) prefix: Option<PathBuf>,

    /// Print all hypotheses in Marian's form: number ||| text ||| F0= sum ||| score
    #[arg(long)]
    pub(super) n_best: bool,

    /// Print the log-probability of every token
    #[arg(long, hide_short_help = true)]
    pub(super) word_scores: bool,

    /// Print how sure the model is, from 0 to 1, and what seems wrong
    ///
    /// The score is the share of ordinary sentences of which the model is less sure, by the table that `peregrine calibrate` has
    /// stored beside the model, or by TABLE. Flags: looped, endless, cut, untranslated, numbers, length, unknown, terms, lost.
    #[arg(long, value_name = "TABLE", num_args = 0..=1, require_equals = true)]
    pub(super) quality: Option<Option<PathBuf>>,

    /// Print word alignments: hard (best source token), soft (all weights), or a threshold
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "hard", value_parser = parse_alignment)]
    pub(super) alignment: Option<AlignmentStyle>,

    /// Replace unknown words by the source word they attend to, or by its translation in a
    /// dictionary (lines `target source probability`)
    #[arg(long, hide_short_help = true, value_name = "DICTIONARY", num_args = 0..=1, require_equals = true)]
    pub(super) replace_unknown: Option<Option<PathBuf>>,

    /// Print tokens instead of text
    #[arg(long)]
    pub(super) tokens: bool,

    /// Print a JSON object for each line, with tokens and scores
    ///
    /// With --n-best it has all hypotheses, with --alignment their attention.
    #[arg(long)]
    pub(super) json: bool,

    /// Go on with an interrupted job from one file to another
    #[arg(long, requires_all = ["input", "output"])]
    pub(super) resume: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl InputOutput {
    /// The form in which translations are written.
    pub(super) fn form(&self, options: &Options) -> Form {
        let fields = Fields {
            alignment: self.alignment,
            word_scores: self.word_scores,
            tokens: self.tokens,
            quality: self.quality.is_some(),
        };
        match (self.json, self.n_best) {
            (true, _) => {
                let (alignment, carry) = (options.alignments, options.carry == Carry::On);
                Form::Json { alignment, carry, terms: options.glossary.is_some() }
            }
            (false, true) => Form::NBest(fields),
            (false, false) if fields == Fields::default() => Form::Text,
            (false, false) => Form::Best(fields),
        }
    }

    /// The dictionary of unknown words, if they are replaced.
    pub(super) fn dictionary(&self) -> anyhow::Result<Option<Dictionary>> {
        Ok(match &self.replace_unknown {
            None => None,
            Some(None) => Some(Dictionary::default()),
            Some(Some(path)) => Some(Dictionary::read(path)?),
        })
    }

    /// The glossary that is named.
    pub(super) fn glossary(&self) -> anyhow::Result<Option<Glossary>> {
        let Some(path) = &self.glossary else { return Ok(None) };
        let name = path.display().to_string();
        let bytes = std::fs::read(path).with_context(|| name.clone())?;
        Ok(Some(Glossary::read(&name, &bytes)?))
    }
}

fn parse_suffix(text: &str) -> Result<String, String> {
    match text.contains(['/', std::path::MAIN_SEPARATOR]) || text.is_empty() {
        true => Err("expected the end of a name, such as .orig".into()),
        false => Ok(text.to_owned()),
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
