//! Documents: each block of text is translated as a text of its own, everything else is unchanged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::stream::FuturesOrdered;
use peregrine::Priority;
use peregrine::document::{Block, BlockRequest, Document, DocumentOptions, Format};

use crate::access::Client;
use crate::app::App;
use crate::dispatch::{Dispatch, Translated, TranslationJob, before, unchanged};
use crate::files::TranslatedFile;
use crate::params::Upload;
use crate::problem::{Kind, Outcome, Problem};
use crate::wanted::Wanted;

/// The most blocks of a document in the queue at a time, enough to fill any batch.
const BLOCKS_AT_A_TIME: usize = 1024;

/// The time before a block that found the queue full is submitted again.
const NO_ROOM: Duration = Duration::from_millis(50);

/// The timeout of a file.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// Parses texts as documents.
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

/// The format of a file. A file of unknown format is refused.
fn format_of(file: &Upload) -> Outcome<Format> {
    match Format::detect(Some(&file.name), &file.bytes) {
        Format::Text if Format::from_name(&file.name).is_none() => {
            Err(Problem::not_supported("This kind of file"))
        }
        format => Ok(format),
    }
}

/// The name of a translated file: `notes.txt` with the mark `_pt` becomes `notes_pt.txt`.
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
        mut job: TranslationJob,
        documents: &[Document],
    ) -> Outcome<Vec<Translated>> {
        job.texts = documents.iter().map(plain).collect();
        let dispatches = self.dispatch(client, &job).await?;
        let mut translated = Vec::with_capacity(documents.len());
        let mut writing = FuturesOrdered::new();
        for (document, dispatch) in documents.iter().zip(&dispatches) {
            writing.push_back(self.write(document, dispatch, &job.wanted));
        }
        let written: Vec<Vec<u8>> = writing.try_collect().await?;
        for (bytes, dispatch) in written.into_iter().zip(dispatches) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let model = dispatch.model_name();
            let Dispatch { from, to, detected, .. } = dispatch;
            translated.push(Translated { translation: unchanged(text), from, to, model, detected });
        }
        Ok(translated)
    }

    /// Translates a file. `job` has no texts.
    pub(crate) async fn translate_file(
        self: &Arc<Self>,
        client: Client,
        mut job: TranslationJob,
        file: &Upload,
    ) -> Outcome<TranslatedFile> {
        let format = format_of(file)?;
        let mut options = DocumentOptions::default();
        options.largest = self.config.max_file;
        options.target_language = Some(job.to.clone());
        let read = || Document::read(file.bytes.to_vec(), format, &options);
        let document = tokio::task::block_in_place(read);
        let document = document.map_err(|error| Problem::bad(error.to_string()))?;
        let blocks = document.blocks().iter();
        let characters = blocks.map(|block| block.text.chars().count()).sum();
        job.texts = vec![plain(&document)];
        job.priority = job.priority.or(Some(Priority::Bulk));
        let work = async {
            let dispatches = self.dispatch(client, &job).await?;
            self.write(&document, &dispatches[0], &job.wanted).await
        };
        let bytes = before(Instant::now() + job.timeout.max(LONGEST), work).await?;
        Ok(TranslatedFile { bytes: bytes.into(), format, characters })
    }

    /// Translates a document and returns its bytes.
    async fn write(
        self: &Arc<Self>,
        document: &Document,
        dispatch: &Dispatch,
        wanted: &Wanted,
    ) -> Outcome<Vec<u8>> {
        let mut running = FuturesOrdered::new();
        let mut translated = Vec::with_capacity(document.blocks().len());
        for block in document.blocks() {
            if running.len() == BLOCKS_AT_A_TIME {
                translated.extend(running.try_next().await?);
            }
            running.push_back(self.translate_block(block, dispatch, wanted));
        }
        while let Some(block) = running.try_next().await? {
            translated.push(block);
        }
        Ok(tokio::task::block_in_place(|| document.write(&translated).bytes))
    }

    async fn translate_block(
        self: &Arc<Self>,
        block: &Block,
        dispatch: &Dispatch,
        wanted: &Wanted,
    ) -> Outcome<peregrine::document::Translated> {
        let alignments = !block.spans.is_empty();
        let wanted = Wanted { keep: block.keep(), alignments, n_best: 1, ..wanted.clone() };
        loop {
            match self.start(&block.text, dispatch, &wanted) {
                Ok(shared) => return Ok(BlockRequest::finish(&*shared.await?)),
                // A document may have more blocks than the queue has room for.
                Err(problem) if problem.kind == Kind::Busy => tokio::time::sleep(NO_ROOM).await,
                Err(problem) => return Err(problem),
            }
        }
    }
}
