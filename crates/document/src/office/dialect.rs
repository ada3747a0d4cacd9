//! The vocabularies whose text stands in runs: those of Word, of drawings (slides, charts, diagrams) and of workbooks.

/// A vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `w:p`, `w:r`, `w:t`.
    Word,
    /// `a:p`, `a:r`, `a:t`.
    Drawing,
    /// `si` or `is`, `r`, `t`.
    Sheet,
}

/// What an element is, by its name and by what it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// Outside of paragraphs, or inside of something that is copied: only paragraphs are looked for.
    Outside,
    /// Nothing in it is looked at.
    Closed,
    Paragraph,
    /// It goes round runs, as a link does.
    Container,
    /// A content control: properties, and a body that goes round runs.
    Control,
    ControlBody,
    /// The properties of a container, which stay with its start tag.
    Header,
    Run,
    /// The properties of a run.
    Style,
    Text,
    /// Part of the text, with all that is in it.
    Whole(Class),
    /// About the old words: it is left out when there are new ones.
    Noise,
}

/// What something without text of its own is for the text round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// It ends a block: a line break, a tab.
    Break,
    /// It stands as a word.
    Object,
    /// It is between two characters.
    Point,
    /// Its text comes back as it is: a field with its result.
    Keep,
    /// A hyphen at which no line ends.
    Hyphen,
    /// The begin, the separator or the end of a field.
    FieldMark,
    /// What a field does.
    FieldCode,
}

use Class::{Break, FieldCode, FieldMark, Hyphen, Keep, Object, Point};
use Element::{Closed, Container, Control, Header, Noise, Run, Style, Text, Whole};

impl Dialect {
    /// The names of the vocabulary.
    pub(crate) fn namespaces(self) -> [&'static str; 2] {
        match self {
            Dialect::Word => [
                "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
                "http://purl.oclc.org/ooxml/wordprocessingml/main",
            ],
            Dialect::Drawing => [
                "http://schemas.openxmlformats.org/drawingml/2006/main",
                "http://purl.oclc.org/ooxml/drawingml/main",
            ],
            Dialect::Sheet => [
                "http://schemas.openxmlformats.org/spreadsheetml/2006/main",
                "http://purl.oclc.org/ooxml/spreadsheetml/main",
            ],
        }
    }

    pub(crate) fn is_paragraph(self, name: &str) -> bool {
        match self {
            Dialect::Word | Dialect::Drawing => name == "p",
            Dialect::Sheet => matches!(name, "si" | "is" | "text"),
        }
    }

    /// Whether an element marks a change that is neither accepted nor rejected.
    pub(crate) fn is_tracked_change(self, name: &str) -> bool {
        let is_change = matches!(
            name,
            "ins" | "del" | "moveFrom" | "moveTo" | "cellIns" | "cellDel" | "cellMerge"
        );
        self == Dialect::Word && is_change
    }

    /// Whether white space at the ends of a text only counts where the text says so.
    pub(crate) fn strips_text(self) -> bool {
        self != Dialect::Drawing
    }

    /// What an element in a paragraph is; one of another vocabulary has no name.
    pub(crate) fn in_paragraph(self, name: Option<&str>) -> Element {
        match (self, name) {
            (_, Some("r")) => Run,
            (Dialect::Word | Dialect::Drawing, Some("pPr" | "endParaRPr")) => Closed,
            (Dialect::Word, Some(name)) => match name {
                "hyperlink" | "smartTag" | "customXml" | "dir" | "bdo" => Container,
                "smartTagPr" | "customXmlPr" => Header,
                "sdt" => Control,
                "fldSimple" => Whole(Keep),
                "proofErr" => Noise,
                name if name.contains("Range") || name.ends_with("Start") => Whole(Point),
                name if name.ends_with("End") => Whole(Point),
                _ => Whole(Object),
            },
            (Dialect::Drawing, Some("br")) => Whole(Break),
            (Dialect::Drawing, Some("fld")) => Whole(Keep),
            (Dialect::Sheet, Some("t")) => Text,
            // How to say the old words.
            (Dialect::Sheet, Some("rPh" | "phoneticPr")) => Noise,
            _ => Whole(Object),
        }
    }

    /// What an element in a run is.
    pub(crate) fn in_run(self, name: Option<&str>) -> Element {
        match name {
            Some("rPr") => Style,
            Some("t") => Text,
            Some(name) if self == Dialect::Word => match name {
                "tab" | "ptab" | "br" | "cr" => Whole(Break),
                "noBreakHyphen" => Whole(Hyphen),
                "softHyphen" | "lastRenderedPageBreak" => Noise,
                "fldChar" => Whole(FieldMark),
                "instrText" => Whole(FieldCode),
                "footnoteReference" | "endnoteReference" | "commentReference" => Whole(Point),
                _ => Whole(Object),
            },
            _ => Whole(Object),
        }
    }

    /// Whether a property of a run says nothing about how its words look.
    pub(crate) fn is_noise(self, name: &str) -> bool {
        match self {
            Dialect::Word => matches!(name, "lang" | "noProof"),
            // Attributes of the properties.
            Dialect::Drawing => {
                matches!(name, "lang" | "altLang" | "dirty" | "err" | "smtClean" | "noProof")
            }
            Dialect::Sheet => false,
        }
    }
}
