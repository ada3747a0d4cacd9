//! Documents: read whole, translated by blocks, written with everything else as it was.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use peregrine::Line;
use peregrine::document::{
    BlockRequest, Document, DocumentError, DocumentOptions, Format, NoteKind, Translated, Written,
};
use peregrine::registry::Pair;
use peregrine_args::console::remark;
use peregrine_args::lines::is_standard;

use super::languages::beginning;
use super::progress::Progress;
use super::{Args, Models};
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
        let bytes = self.translate_document(input, format, models)?;
        let mut output = Output::create(self.io.output.as_deref())?;
        output.write_all(&bytes)?;
        Ok(output.flush()?)
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

    /// The bytes of a document with new texts.
    pub(super) fn translate_document(
        &self,
        file: &Path,
        format: Format,
        models: &Models<'_>,
    ) -> anyhow::Result<Vec<u8>> {
        self.refuse_line_options()?;
        let (name, document) = self.read_document(file, format, models.translator.languages())?;
        let document = document.map_err(|error| {
            anyhow!("{name}: {error} (--format lines translates it line by line)")
        })?;
        let translated = self.translate_blocks(&document, models)?;
        let written = document.write(&translated);
        self.say_what_moved(&document, &written);
        Ok(written.bytes)
    }

    /// Reads a document; what it is called, too.
    fn read_document(
        &self,
        file: &Path,
        format: Format,
        languages: Option<&Pair>,
    ) -> anyhow::Result<(String, Result<Document, DocumentError>)> {
        let (name, bytes) = match is_standard(file) {
            true => {
                let mut bytes = Vec::new();
                let name = "standard input".to_owned();
                std::io::stdin().read_to_end(&mut bytes).with_context(|| name.clone())?;
                (name, bytes)
            }
            false => {
                let name = file.display().to_string();
                let bytes = std::fs::read(file).with_context(|| name.clone())?;
                (name, bytes)
            }
        };
        let mut options = DocumentOptions::default();
        options.attributes = self.io.attributes;
        options.replace = self.io.retranslate;
        options.keys.clone_from(&self.io.keys);
        options.target_language = languages.map(|pair| pair.to.clone());
        Ok((name, Document::read(bytes, format, &options)))
    }

    /// Text of the input, by which its language is told. Of standard input nothing is taken.
    pub(super) fn sample(&self) -> anyhow::Result<String> {
        let files = self.files();
        let file = files.iter().flatten().find(|path| path.is_file()).map(PathBuf::as_path);
        let file = file.or(self.input_file()).filter(|path| !is_standard(path));
        let format = file.and_then(|file| self.format_of(file));
        match (file, format) {
            (Some(file), Some(format)) => {
                let (_, document) = self.read_document(file, format, None)?;
                let blocks = document.iter().flat_map(Document::blocks).take(SAMPLE_BLOCKS);
                Ok(blocks.flat_map(|block| [block.text.as_str(), "\n"]).collect())
            }
            (None, _) if !self.text.is_empty() => Ok(self.text.join("\n")),
            (file, _) => beginning(file),
        }
    }

    fn translate_blocks(
        &self,
        document: &Document,
        models: &Models<'_>,
    ) -> anyhow::Result<Vec<Translated>> {
        let blocks = document.blocks();
        let total = blocks.iter().map(|block| block.text.len() as u64).sum();
        let mut progress = Progress::new(self.io.quiet, self.writes_files(), Some(total));
        let mut options = models.options.clone();
        options.n_best = 1;
        options.alignments |= blocks.iter().any(|block| !block.spans.is_empty());
        let mut read = 0;
        let lines = blocks.iter().map(|block| {
            read += block.text.len() as u64;
            let (text, keep) = (block.text.clone(), block.keep());
            anyhow::Ok(Line { text, prefix: None, tag: read, sentences: None, keep })
        });
        let mut translated = Vec::with_capacity(blocks.len());
        let models = Models { options: &options, ..*models };
        let summary = models.stream(self, lines, signals::begin_work(), |answer| {
            progress.advance(&answer.translation, answer.tag);
            translated.push(BlockRequest::finish(&answer.translation));
            anyhow::Ok(())
        })?;
        progress.finish();
        if summary.stopped {
            remark!("stopped: nothing is written");
            return Err(Interrupted.into());
        }
        Ok(translated)
    }

    /// Says what of the markup should be looked at.
    fn say_what_moved(&self, document: &Document, written: &Written) {
        for note in written.report.iter().take(MOST_NOTES) {
            let what = match note.kind {
                NoteKind::Moved => "a tag was put round a word nearby",
                NoteKind::Emptied => "a tag has lost its words",
                NoteKind::Lost => "what was to be kept was lost, and put beside its neighbours",
                NoteKind::Reencoded => {
                    "new characters do not fit the file's encoding: it is in UTF-8 now"
                }
                _ => "markup has changed",
            };
            let text: String = document.blocks()[note.block].text.chars().take(40).collect();
            self.say(format_args!("note: block {} ({text:?}): {what}", note.block + 1));
        }
        let more = written.report.len().saturating_sub(MOST_NOTES);
        if more > 0 {
            self.say(format_args!("note: {more} more notes on markup"));
        }
    }
}
