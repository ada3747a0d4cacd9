//! The elements of HTML.

use super::Role;

/// What an element of HTML is. Names that HTML does not know are part of a text, as browsers have it.
pub(crate) fn role_in_html(name: &str) -> Role {
    match name {
        "pre" | "textarea" | "listing" => Role::Preserved,
        "address" | "article" | "aside" | "base" | "blockquote" | "body" | "br" | "button"
        | "caption" | "center" | "col" | "colgroup" | "dd" | "details" | "dialog" | "dir"
        | "div" | "dl" | "dt" | "fieldset" | "figcaption" | "figure" | "footer" | "form"
        | "frame" | "frameset" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "head" | "header"
        | "hgroup" | "hr" | "html" | "legend" | "li" | "main" | "menu" | "nav" | "noframes"
        | "ol" | "optgroup" | "option" | "p" | "search" | "section" | "select" | "summary"
        | "table" | "tbody" | "td" | "tfoot" | "th" | "thead" | "title" | "tr" | "ul" => {
            Role::Block
        }
        "code" | "kbd" | "samp" | "var" | "tt" | "math" => Role::Keep,
        "applet" | "audio" | "canvas" | "embed" | "iframe" | "img" | "input" | "meter"
        | "object" | "picture" | "progress" | "svg" | "video" => Role::Object,
        "area" | "basefont" | "bgsound" | "datalist" | "keygen" | "link" | "map" | "meta"
        | "noembed" | "noscript" | "param" | "plaintext" | "rp" | "rt" | "rtc" | "script"
        | "source" | "style" | "template" | "track" | "wbr" | "xmp" => Role::Point,
        _ => Role::Inline,
    }
}

/// Whether an element of HTML has no end tag.
pub(crate) fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "basefont"
            | "bgsound"
            | "br"
            | "col"
            | "embed"
            | "frame"
            | "hr"
            | "img"
            | "input"
            | "keygen"
            | "link"
            | "meta"
            | "param"
            | "source"
            | "track"
            | "wbr"
    )
}

/// Whether a start tag ends an element that stands open just before it: the end tags that HTML allows to be left out.
pub(crate) fn ends_before(open: &str, start: &str) -> bool {
    match open {
        "p" => role_in_html(start) == Role::Block && start != "br",
        "li" | "option" | "tr" => start == open,
        "dt" | "dd" => matches!(start, "dt" | "dd"),
        "td" | "th" => matches!(start, "td" | "th" | "tr"),
        "optgroup" => start == "optgroup",
        "rt" | "rp" => matches!(start, "rt" | "rp"),
        _ => false,
    }
}
