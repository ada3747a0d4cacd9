//! How a document is read.

/// How a document is read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Whether attributes that people read are blocks too: `alt`, `title`, `placeholder`, `aria-label` and others.
    pub attributes: bool,
    /// Whether the lines of a paragraph are one block, in plain text and in the strings of tables. A line is a block of its own
    /// otherwise.
    pub wrapped: bool,
    /// What elements of HTML and XML are, where that is not what their names or their places say.
    pub elements: Elements,
    /// The most bytes a document may have.
    pub largest: usize,
    /// Whether entries of PO and XLIFF that have a translation get a new one. Only those without are filled otherwise.
    pub replace: bool,
    /// The language of the new text, for XLIFF that does not say it.
    pub target_language: Option<String>,
    /// The values of JSON and YAML that are translated, by their keys: `messages`, `*.title`. All of them if there is no pattern.
    pub keys: Vec<String>,
}

/// Names of elements that are treated in another way than usual.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Elements {
    /// Elements whose content stays as it is.
    pub keep: Vec<String>,
    /// Elements whose content is a block of its own.
    pub block: Vec<String>,
    /// Elements that are part of the text round them.
    pub inline: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            attributes: false,
            wrapped: false,
            elements: Elements::default(),
            largest: 256 << 20,
            replace: false,
            target_language: None,
            keys: Vec::new(),
        }
    }
}
