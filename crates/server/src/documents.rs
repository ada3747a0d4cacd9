//! Documents: each block of text is a text of its own, everything else stays as it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::FuturesOrdered;
use peregrine::Priority;
use peregrine::document::{Block, BlockRequest, Document, DocumentOptions, Format};

use crate::access::Client;
use crate::app::App;
use crate::params::Upload;
use crate::problem::{Kind, Outcome, Problem};
use crate::translate::{Ask, Course, Translated, before, unchanged};
use crate::wanted::Wanted;

/// Blocks of a document that are translated at a time: enough for any batch.
const BLOCKS_AT_A_TIME: usize = 1024;

/// How long a block waits before it asks again for room among those that wait.
const NO_ROOM: Duration = Duration::from_millis(50);

/// How long a file may take.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// A translated file.
#[derive(Debug, Clone)]
pub(crate) struct TranslatedFile {
    pub(crate) bytes: Bytes,
    pub(crate) format: Format,
    /// Characters of text in it, before they were translated.
    pub(crate) characters: usize,
}

/// Texts as documents.
pub(crate) fn read_texts(
    texts: &[String],
    format: Format,
    options: &DocumentOptions,
) -> Outcome<Vec<Document>> {
    let read = |text: &String| {
        Document::read(text.clone().into_bytes(), format, options)
            .map_err(|error| Problem::bad(error.to_string()))
    };
    texts.iter().map(read).collect()
}

/// The format of a file. One that nothing tells is refused: it may be anything.
fn format_of(file: &Upload) -> Outcome<Format> {
    match Format::detect(Some(&file.name), &file.bytes) {
        Format::Text if Format::from_name(&file.name).is_none() => {
            Err(Problem::not_supported("This kind of file"))
        }
        format => Ok(format),
    }
}

/// A name for a translated file: `notes.txt` becomes `notes_pt.txt` with `_pt`.
pub(crate) fn name_with(name: &str, mark: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, ending)) => format!("{stem}{mark}.{ending}"),
        None => format!("{name}{mark}"),
    }
}

/// The text of all blocks.
fn plain(document: &Document) -> String {
    document.blocks().iter().flat_map(|block| [block.text.as_str(), "\n"]).collect()
}

impl App {
    /// Translates texts with markup.
    pub(crate) async fn translate_markup(
        self: &Arc<Self>,
        client: Client,
        mut ask: Ask,
        documents: &[Document],
    ) -> Outcome<Vec<Translated>> {
        ask.texts = documents.iter().map(plain).collect();
        let courses = self.courses(client, &ask).await?;
        let mut translated = Vec::with_capacity(documents.len());
        let mut writing = FuturesOrdered::new();
        for (document, course) in documents.iter().zip(&courses) {
            writing.push_back(self.write(document, course, &ask.wanted));
        }
        let written: Vec<Vec<u8>> = writing.try_collect().await?;
        for (bytes, course) in written.into_iter().zip(courses) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let model = course.model_name();
            let Course { from, to, detected, .. } = course;
            translated.push(Translated { translation: unchanged(text), from, to, model, detected });
        }
        Ok(translated)
    }

    /// Translates a file. `ask` has no texts.
    pub(crate) async fn translate_file(
        self: &Arc<Self>,
        client: Client,
        mut ask: Ask,
        file: &Upload,
    ) -> Outcome<TranslatedFile> {
        let format = format_of(file)?;
        let mut options = DocumentOptions::default();
        options.largest = self.config.max_file;
        options.target_language = Some(ask.to.clone());
        let read = || Document::read(file.bytes.to_vec(), format, &options);
        let document = tokio::task::block_in_place(read);
        let document = document.map_err(|error| Problem::bad(error.to_string()))?;
        let blocks = document.blocks().iter();
        let characters = blocks.map(|block| block.text.chars().count()).sum();
        ask.texts = vec![plain(&document)];
        ask.priority = ask.priority.or(Some(Priority::Bulk));
        let work = async {
            let courses = self.courses(client, &ask).await?;
            self.write(&document, &courses[0], &ask.wanted).await
        };
        let bytes = before(Instant::now() + ask.timeout.max(LONGEST), work).await?;
        Ok(TranslatedFile { bytes: bytes.into(), format, characters })
    }

    /// The bytes of a document with new texts.
    async fn write(
        self: &Arc<Self>,
        document: &Document,
        course: &Course,
        wanted: &Wanted,
    ) -> Outcome<Vec<u8>> {
        let mut running = FuturesOrdered::new();
        let mut translated = Vec::with_capacity(document.blocks().len());
        for block in document.blocks() {
            if running.len() == BLOCKS_AT_A_TIME {
                translated.extend(running.try_next().await?);
            }
            running.push_back(self.translate_block(block, course, wanted));
        }
        while let Some(block) = running.try_next().await? {
            translated.push(block);
        }
        Ok(tokio::task::block_in_place(|| document.write(&translated).bytes))
    }

    async fn translate_block(
        self: &Arc<Self>,
        block: &Block,
        course: &Course,
        wanted: &Wanted,
    ) -> Outcome<peregrine::document::Translated> {
        let alignments = !block.spans.is_empty();
        let wanted = Wanted { keep: block.keep(), alignments, n_best: 1, ..wanted.clone() };
        loop {
            match self.start(&block.text, course, &wanted) {
                Ok(flight) => return Ok(BlockRequest::finish(&*flight.await?)),
                // A document may have more blocks than there is room for.
                Err(problem) if problem.kind == Kind::Busy => tokio::time::sleep(NO_ROOM).await,
                Err(problem) => return Err(problem),
            }
        }
    }
}
