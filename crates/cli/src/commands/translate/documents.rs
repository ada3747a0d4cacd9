//! Documents: translated by blocks, written with everything else as it was.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use peregrine::document::{
    BlockRequest, Document, DocumentError, DocumentOptions, Format, Note, NoteKind, Pieces,
    Translated,
};
use peregrine::model::write_whole_from;
use peregrine::registry::Pair;
use peregrine::{Line, Summary};
use peregrine_args::console::remark;
use peregrine_args::lines::is_standard;

use super::languages::beginning;
use super::progress::Progress;
use super::{Args, Models};
use crate::io::feed::Feed;
use crate::io::output::Output;
use crate::io::signals::{self, Interrupted};

/// Blocks with markup to check that are named one by one.
const MOST_NOTES: usize = 5;

/// Blocks of a document that tell its language.
const SAMPLE_BLOCKS: usize = 100;

/// How the input is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputFormat {
    /// As its name says.
    Auto,
    /// One line in, one line out.
    Lines,
    /// As a document.
    Document(Format),
}

impl std::str::FromStr for InputFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<InputFormat, String> {
        match name {
            "auto" => Ok(InputFormat::Auto),
            "lines" => Ok(InputFormat::Lines),
            name => name.parse().map(InputFormat::Document),
        }
    }
}

impl Args {
    /// The format of the input, if it is a document.
    pub(super) fn document_format(&self) -> Option<Format> {
        match self.io.format {
            InputFormat::Lines => None,
            InputFormat::Document(format) => Some(format),
            InputFormat::Auto => self.format_of(self.input_file()?),
        }
    }

    /// The format of a file, if it is a document; none if it is lines.
    pub(super) fn format_of(&self, path: &Path) -> Option<Format> {
        match self.io.format {
            InputFormat::Lines => None,
            InputFormat::Document(format) => Some(format),
            InputFormat::Auto => {
                let name = path.file_name().and_then(OsStr::to_str)?;
                Format::from_name(name).filter(|format| *format != Format::Text)
            }
        }
    }

    /// Translates the document that is the input.
    pub(super) fn work_on_document(
        &self,
        format: Format,
        models: &Models<'_>,
    ) -> anyhow::Result<()> {
        let input = self.input_file().unwrap_or(Path::new("-"));
        let begun = Instant::now();
        let translate = |to: &mut dyn Write| self.translate_document(input, format, models, to);
        let summary = match self.io.output.as_deref().filter(|path| !is_standard(path)) {
            None => translate(&mut Output::create(None)?)?,
            Some(path) => {
                let mut summary = Summary::default();
                write_whole_from(path, |to| {
                    summary = translate(to)?;
                    anyhow::Ok(())
                })?;
                summary
            }
        };
        self.report(&summary, summary.lines, begun)
    }

    /// Refuses what is said of lines.
    pub(super) fn refuse_line_options(&self) -> anyhow::Result<()> {
        let io = &self.io;
        let given = [
            ("--json", io.json),
            ("--n-best", io.n_best),
            ("--tokens", io.tokens),
            ("--word-scores", io.word_scores),
            ("--alignment", io.alignment.is_some()),
            ("--quality", io.quality.is_some()),
            ("--prefix", io.prefix.is_some()),
            ("--resume", io.resume),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((name, _)) => bail!("{name} is for lines: add --format lines"),
            None => Ok(()),
        }
    }

    /// Translates a document. What is done is written while the rest is being translated, as far as the format allows.
    pub(super) fn translate_document(
        &self,
        file: &Path,
        format: Format,
        models: &Models<'_>,
        output: &mut dyn Write,
    ) -> anyhow::Result<Summary> {
        self.refuse_line_options()?;
        let Source { name, total, mut pieces } =
            self.source(file, format, models.translator.languages())?;
        let explain = move |error: DocumentError| match error {
            DocumentError::Unreadable(problem) => anyhow!("{name}: {problem}"),
            error => anyhow!("{name}: {error} (--format lines translates it line by line)"),
        };
        let first = pieces.next().context("a piece")?.map_err(&explain)?;
        let mut options = models.options.clone();
        options.n_best = 1;
        options.alignments |=
            !pieces.is_at_end() || first.blocks().iter().any(|block| !block.spans.is_empty());
        let models = Models { options: &options, ..*models };
        let stop = signals::begin_work();
        let blocks = Feed::new(Blocks::new(first, pieces, explain), stop);
        let mut progress = Progress::new(self.io.quiet, self.writes_files(), total);
        let mut writing = Writing { args: self, output, new: Vec::new(), blocks: 0, notes: 0 };
        let summary = models.stream(self, blocks, stop, |answer| {
            progress.advance(&answer.translation, answer.tag.bytes);
            writing.add(&answer.tag, BlockRequest::finish(&answer.translation))?;
            if !answer.more {
                writing.output.flush()?;
            }
            anyhow::Ok(())
        })?;
        progress.finish();
        if summary.stopped {
            remark!("stopped: the document is not complete");
            return Err(Interrupted.into());
        }
        writing.finish()?;
        Ok(summary)
    }

    /// Opens a document.
    fn source(
        &self,
        file: &Path,
        format: Format,
        languages: Option<&Pair>,
    ) -> anyhow::Result<Source> {
        let mut options = DocumentOptions::default();
        options.attributes = self.io.attributes;
        options.replace = self.io.retranslate;
        options.keys.clone_from(&self.io.keys);
        options.target_language = languages.map(|pair| pair.to.clone());
        let (name, total, input): (_, _, Box<dyn Read + Send>) = match is_standard(file) {
            true => ("standard input".to_owned(), None, Box::new(io::stdin())),
            false => {
                let name = file.display().to_string();
                let file = File::open(file).with_context(|| name.clone())?;
                let total = file.metadata().ok().filter(|data| data.is_file()).map(|d| d.len());
                (name, total, Box::new(file))
            }
        };
        Ok(Source { name, total, pieces: Pieces::new(input, format, options) })
    }

    /// Text of the input, by which its language is told. Of standard input nothing is taken.
    pub(super) fn sample(&self) -> anyhow::Result<String> {
        let files = self.files();
        let file = files.iter().flatten().find(|path| path.is_file()).map(PathBuf::as_path);
        let file = file.or(self.input_file()).filter(|path| !is_standard(path));
        let format = file.and_then(|file| self.format_of(file));
        match (file, format) {
            (Some(file), Some(format)) => {
                let piece = self.source(file, format, None)?.pieces.next();
                let piece = piece.and_then(Result::ok);
                let blocks = piece.iter().flat_map(Document::blocks).take(SAMPLE_BLOCKS);
                Ok(blocks.flat_map(|block| [block.text.as_str(), "\n"]).collect())
            }
            (None, _) if !self.text.is_empty() => Ok(self.text.join("\n")),
            (file, _) => beginning(file),
        }
    }
}

/// A document that is being read.
struct Source {
    name: String,
    /// Its bytes, if that is known.
    total: Option<u64>,
    pieces: Pieces<Box<dyn Read + Send>>,
}

/// The blocks of a document as lines.
struct Blocks<E> {
    pieces: Pieces<Box<dyn Read + Send>>,
    explain: E,
    piece: Arc<Document>,
    /// The bytes before the piece.
    before: u64,
    /// The number of the next block of the piece. A piece without blocks has an empty one.
    next: usize,
}

/// The place of a block in a document.
struct BlockPlace {
    piece: Arc<Document>,
    number: usize,
    /// The bytes of the document up to its end, roughly.
    bytes: u64,
}

impl<E: Fn(DocumentError) -> anyhow::Error> Blocks<E> {
    fn new(first: Document, pieces: Pieces<Box<dyn Read + Send>>, explain: E) -> Blocks<E> {
        Blocks { pieces, explain, piece: Arc::new(first), before: 0, next: 0 }
    }
}

impl<E: Fn(DocumentError) -> anyhow::Error> Iterator for Blocks<E> {
    type Item = anyhow::Result<Line<BlockPlace>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.piece.blocks().len().max(1) {
            let before = self.pieces.position();
            match self.pieces.next()? {
                Ok(piece) => self.piece = Arc::new(piece),
                Err(error) => return Some(Err((self.explain)(error))),
            }
            (self.before, self.next) = (before, 0);
        }
        let number = self.next;
        self.next += 1;
        let blocks = self.piece.blocks();
        let done = self.next as f64 / blocks.len().max(1) as f64;
        let bytes = self.before + ((self.pieces.position() - self.before) as f64 * done) as u64;
        let tag = BlockPlace { piece: Arc::clone(&self.piece), number, bytes };
        let (text, keep) = match blocks.get(number) {
            Some(block) => (block.text.clone(), block.keep()),
            None => (String::new(), Vec::new()),
        };
        Some(Ok(Line { text, prefix: None, tag, sentences: None, keep }))
    }
}

/// Writes a document whose blocks come in order.
struct Writing<'a> {
    args: &'a Args,
    output: &'a mut dyn Write,
    /// What blocks became that are not written yet.
    new: Vec<Translated>,
    /// The number of blocks in the pieces that are written.
    blocks: usize,
    /// The number of notes on markup.
    notes: usize,
}

impl Writing<'_> {
    fn add(&mut self, place: &BlockPlace, new: Translated) -> io::Result<()> {
        let blocks = place.piece.blocks().len();
        let count = blocks.min(place.number + 1);
        if count > 0 {
            self.new.push(new);
        }
        if place.piece.ready(count) {
            let part = place.piece.write_part(count - self.new.len(), &self.new);
            self.new.clear();
            self.output.write_all(&part.bytes)?;
            part.report.iter().for_each(|note| self.say(&place.piece, note));
        }
        if count == blocks {
            self.blocks += blocks;
        }
        Ok(())
    }

    /// Says what of the markup should be looked at.
    fn say(&mut self, piece: &Document, note: &Note) {
        self.notes += 1;
        if self.notes > MOST_NOTES {
            return;
        }
        let what = match note.kind {
            NoteKind::Moved => "a tag was put round a word nearby",
            NoteKind::Emptied => "a tag has lost its words",
            NoteKind::Lost => "what was to be kept was lost, and put beside its neighbours",
            NoteKind::Reencoded => {
                "new characters do not fit the file's encoding: it is in UTF-8 now"
            }
            _ => "markup has changed",
        };
        let number = self.blocks + note.block + 1;
        let text: String = piece.blocks()[note.block].text.chars().take(40).collect();
        self.args.say(format_args!("note: block {number} ({text:?}): {what}"));
    }

    fn finish(self) -> io::Result<()> {
        let more = self.notes.saturating_sub(MOST_NOTES);
        if more > 0 {
            self.args.say(format_args!("note: {more} more notes on markup"));
        }
        self.output.flush()
    }
}
