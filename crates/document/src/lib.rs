//! Documents as blocks of text with spans, and back.
//!
//! A [`Document`] is read from bytes. It keeps those bytes, and finds in them [blocks](Block): stretches of text to translate,
//! such as the content of a paragraph. Markup inside a block is remembered as [spans](Span) of its text. Everything else is
//! copied when the document is written, and markup is never printed anew: a tag is the bytes it was, put where its words went.
//!
//! The crate knows no models and opens no files. Whoever translates takes each block's text, keeps the ranges that
//! [`Block::keep`] lists as they are, and hands back a [`Translated`] with the words' alignment, along which the spans
//! are projected. A document whose blocks come back as they were is written byte for byte as it was read.
//!
//! ```
//! use peregrine_document::{Document, Format, Link, Options, Translated};
//!
//! let page = "<p>The <b>red</b> house</p>";
//! let document = Document::read(page.into(), Format::Html, &Options::default())?;
//! assert_eq!(document.blocks()[0].text, "The red house");
//!
//! let copy: Vec<_> = document.blocks().iter().map(Translated::copy).collect();
//! assert_eq!(document.write(&copy).bytes, page.as_bytes());
//!
//! let translated = Translated {
//!     text: "A casa vermelha".to_owned(),
//!     links: vec![Link::new(0..3, 0..1, 1.0), Link::new(4..7, 7..15, 1.0), Link::new(8..13, 2..6, 1.0)],
//!     ..Translated::default()
//! };
//! let written = document.write(&[translated]);
//! assert_eq!(String::from_utf8_lossy(&written.bytes), "<p>A casa <b>vermelha</b></p>");
//! # Ok::<(), peregrine_document::Error>(())
//! ```

#![forbid(unsafe_code)]

mod align;
mod block;
mod body;
mod builder;
mod document;
mod encoding;
mod error;
mod escape;
mod format;
mod html;
mod icu;
mod json;
mod markdown;
mod markup;
mod office;
mod options;
mod pieces;
mod placeholder;
mod po;
mod project;
mod quoting;
mod splice;
mod strings;
mod subtitles;
mod text;
mod xliff;
mod xml;
mod yaml;

pub use block::{Block, Kind, Link, Span, Translated};
pub use body::{Note, NoteKind, Written};
pub use document::Document;
pub use error::Error;
pub use format::Format;
pub use options::{Elements, Options};
pub use pieces::Pieces;

/// The examples of the page about documents.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/documents.md")]
struct Documents;
