//! Documents: each block of text is a request, and what is written is the document with new texts.

use std::ops::Range;

pub use peregrine_document::{
    Block, Document, Error as DocumentError, Format, Kind, Link, Note, NoteKind,
    Options as DocumentOptions, Pieces, Span, Translated, Written,
};

use crate::{Error, Options, Request, Translation, Translator, Workers};

/// A block of a document as a request.
///
/// ```
/// use peregrine::document::{BlockRequest, Document, DocumentOptions, Format};
/// use peregrine::{Service, ServiceOptions, Translator};
///
/// # if cfg!(not(feature = "builtin")) { return Ok(()); }
/// let translator = Translator::builtin()?;
/// let service = Service::new(&translator, &ServiceOptions::new(translator.workers()));
/// let page = b"<p>Two <i>dogs</i> play in the snow.</p>".to_vec();
/// let document = Document::read(page, Format::Html, &DocumentOptions::default())?;
/// let options = translator.text_options();
/// let mut translated = Vec::new();
/// for block in document.blocks() {
///     let request = BlockRequest::new(block, &options);
///     translated.push(BlockRequest::finish(&service.submit(&request.request())?.wait()?));
/// }
/// let written = String::from_utf8(document.write(&translated).bytes)?;
/// assert_eq!(written, "<p>Dois <i>cães</i> brincam na neve.</p>");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BlockRequest<'a> {
    text: &'a str,
    keep: Vec<Range<usize>>,
    options: Options,
}

impl<'a> BlockRequest<'a> {
    /// A block and how it is translated. Where it has markup, attention is wanted too.
    pub fn new(block: &'a Block, options: &Options) -> BlockRequest<'a> {
        let options = options.clone().with_n_best(1);
        let alignments = options.alignments || !block.spans.is_empty();
        BlockRequest {
            text: &block.text,
            keep: block.keep(),
            options: options.with_alignments(alignments),
        }
    }

    /// The request.
    pub fn request(&self) -> Request<'_> {
        Request::new(self.text).with_options(&self.options).with_kept(&self.keep)
    }

    /// What the block became.
    pub fn finish(translation: &Translation) -> Translated {
        let links = translation.word_alignments(0).into_iter();
        let kept = translation.terms.iter();
        Translated {
            text: translation.text().to_owned(),
            links: links.map(|link| Link::new(link.source, link.target, link.weight)).collect(),
            kept: kept
                .filter_map(|term| Some((term.source.clone(), term.target.clone()?)))
                .collect(),
        }
    }
}

impl Translator {
    /// Translates a document on as many threads as `workers` says.
    ///
    /// ```
    /// use peregrine::Translator;
    /// use peregrine::document::{Document, DocumentOptions, Format};
    ///
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = Translator::builtin()?;
    /// let text = b"# Two dogs play in the snow.\n\nRun `cargo test` **now**.\n".to_vec();
    /// let document = Document::read(text, Format::Markdown, &DocumentOptions::default())?;
    /// let written = translator.translate_document(&document, &translator.text_options(), &translator.workers())?;
    /// let text = String::from_utf8(written.bytes)?;
    /// assert!(text.starts_with("# Dois cães brincam na neve.\n\n") && text.contains("`cargo test`"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn translate_document(
        &self,
        document: &Document,
        options: &Options,
        workers: &Workers,
    ) -> Result<Written, Error> {
        let blocks: Vec<_> =
            document.blocks().iter().map(|b| BlockRequest::new(b, options)).collect();
        let requests: Vec<Request<'_>> = blocks.iter().map(BlockRequest::request).collect();
        let translations = self.translate_batch_with(&requests, options, workers, None)?;
        let translated: Vec<_> = translations.iter().map(BlockRequest::finish).collect();
        Ok(document.write(&translated))
    }
}
