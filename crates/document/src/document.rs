//! A document: read from bytes, written with new texts.

use crate::block::{Block, Translated};
use crate::body::{Body, Written};
use crate::options::Options;
use crate::{Error, Format, html, json, markdown, office, po, subtitles, text, xliff, xml, yaml};

/// A document, with the blocks of text that are to be translated.
#[derive(Debug)]
pub struct Document {
    format: Format,
    blocks: Vec<Block>,
    body: Box<dyn Body>,
}

impl Document {
    /// Reads a document.
    ///
    /// HTML, Markdown, text, subtitles, PO and YAML are not refused for what they hold, except for an encoding that is broken or
    /// not known. XML, XLIFF and JSON are if they are not well-formed. PDF and Office files of the old kind always are.
    pub fn read(bytes: Vec<u8>, format: Format, options: &Options) -> Result<Document, Error> {
        if bytes.len() > options.largest {
            let (size, largest) = (bytes.len(), options.largest);
            return Err(Error::whole(format!("{size} bytes, more than the limit of {largest}")));
        }
        let (blocks, body) = match format {
            Format::Text => text::read(bytes, options)?,
            Format::Html => html::read(bytes, options)?,
            Format::Markdown => markdown::read(bytes, options)?,
            Format::Srt => subtitles::read(bytes, false)?,
            Format::Vtt => subtitles::read(bytes, true)?,
            Format::Po => po::read(bytes, options)?,
            Format::Xliff => xliff::read(bytes, options)?,
            Format::Json => json::read(bytes, options)?,
            Format::Yaml => yaml::read(bytes, options)?,
            Format::Xml => xml::read(bytes, options)?,
            Format::Xhtml => xml::read_page(bytes, options)?,
            Format::Docx | Format::Pptx | Format::Xlsx => office::read(bytes, format, options)?,
            Format::Odt => office::read_open_document(bytes, options)?,
            Format::Epub => office::read_book(bytes, options)?,
            Format::Pdf => return Err(Error::whole("PDF has no text that could be put back")),
            Format::OldOffice => {
                let problem = "an Office file of the old kind or an encrypted one; save it as docx, pptx or xlsx";
                return Err(Error::whole(problem));
            }
        };
        Ok(Document { format, blocks, body })
    }

    /// Reads a piece of a document whose first piece is in UTF-8.
    pub(crate) fn read_more(
        bytes: Vec<u8>,
        format: Format,
        options: &Options,
    ) -> Result<Document, Error> {
        let (blocks, body) = match format {
            Format::Text => text::read_utf8(bytes, options),
            Format::Json => json::read_utf8(bytes, options)?,
            _ => return Document::read(bytes, format, options),
        };
        Ok(Document { format, blocks, body })
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What is to be translated, in an order in which it can be written.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The document with new texts, one for each block. A block without one stays as it is.
    pub fn write(&self, new: &[Translated]) -> Written {
        let mut written = Written::default();
        let known = new.len().min(self.blocks.len());
        let rest = self.blocks[known..].iter().map(Translated::copy);
        let all: Vec<Translated>;
        let new = match known == self.blocks.len() {
            true => &new[..known],
            false => {
                all = new[..known].iter().cloned().chain(rest).collect();
                &all
            }
        };
        self.body.write(&self.blocks, 0..self.blocks.len(), new, &mut written);
        written
    }

    /// Whether the first `count` blocks can be written before those behind them are translated. It is so behind most
    /// blocks of text and HTML, and only at the end in formats that are written as a whole.
    pub fn ready(&self, count: usize) -> bool {
        count >= self.blocks.len() || self.body.ready(count)
    }

    /// A part of the document: the blocks from `first` on for which there are new texts, and what is between them. It begins
    /// where the part before ended, and goes to the end of the document if its last block is the document's.
    ///
    /// The document must be [ready](Self::ready) for both ends, or some of it is written as it was.
    ///
    /// ```
    /// # use peregrine_document::{Document, Format, Options, Translated};
    /// let document = Document::read("one\ntwo\n".into(), Format::Text, &Options::default())?;
    /// let new = |text: &str| Translated { text: text.into(), ..Translated::default() };
    /// assert!(document.ready(1));
    /// assert_eq!(document.write_part(0, &[new("um")]).bytes, b"um");
    /// assert_eq!(document.write_part(1, &[new("dois")]).bytes, b"\ndois\n");
    /// # Ok::<(), peregrine_document::Error>(())
    /// ```
    pub fn write_part(&self, first: usize, new: &[Translated]) -> Written {
        let mut written = Written::default();
        let first = first.min(self.blocks.len());
        let count = new.len().min(self.blocks.len() - first);
        self.body.write(&self.blocks, first..first + count, &new[..count], &mut written);
        written
    }
}
