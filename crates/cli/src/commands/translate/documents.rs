//! Documents: read whole, translated by blocks, written with everything else as it was.

use std::ffi::OsStr;
use std::io::{Read, Write};

use anyhow::{Context, anyhow};
use peregrine::Line;
use peregrine::document::{
    BlockRequest, Document, DocumentOptions, Format, NoteKind, Translated, Written,
};
use peregrine_args::console::remark;
use peregrine_args::lines::is_standard;

use super::progress::Progress;
use super::{Args, Models};
use crate::io::output::Output;
use crate::io::signals::{self, Interrupted};

/// Blocks with markup to check that are named one by one.
const MOST_NOTES: usize = 5;

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
            InputFormat::Auto => {
                let name = self.io.input.as_deref()?.file_name().and_then(OsStr::to_str)?;
                Format::from_name(name).filter(|format| *format != Format::Text)
            }
        }
    }

    /// Translates a document.
    pub(super) fn work_on_document(
        &self,
        format: Format,
        models: &Models<'_>,
    ) -> anyhow::Result<()> {
        let file = self.io.input.as_deref().filter(|path| !is_standard(path));
        let name = file.map_or("standard input".to_owned(), |path| path.display().to_string());
        let mut bytes = Vec::new();
        let read = match file {
            Some(path) => {
                std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
            }
            None => std::io::stdin().read_to_end(&mut bytes),
        };
        read.with_context(|| name.clone())?;
        let mut options = DocumentOptions::default();
        options.attributes = self.io.attributes;
        let document = Document::read(bytes, format, &options).map_err(|error| {
            anyhow!("{name}: {error} (--format lines translates it line by line)")
        })?;
        let translated = self.translate_blocks(&document, models)?;
        let written = document.write(&translated);
        let mut output = Output::create(self.io.output.as_deref())?;
        output.write_all(&written.bytes)?;
        output.flush()?;
        self.say_what_moved(&document, &written);
        Ok(())
    }

    fn translate_blocks(
        &self,
        document: &Document,
        models: &Models<'_>,
    ) -> anyhow::Result<Vec<Translated>> {
        let blocks = document.blocks();
        let total = blocks.iter().map(|block| block.text.len() as u64).sum();
        let mut progress = Progress::new(self.io.quiet, self.io.output.is_some(), Some(total));
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
