//! XLIFF 1.2 and 2. A source without a target gets one: the source is copied there, where it is a block, and marked for review.
//! What is translated already, or must not be, is copied.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Error;
use crate::block::Block;
use crate::body::Parsed;
use crate::builder::Builder;
use crate::escape::Escape;
use crate::markup::attributes::Attributes;
use crate::markup::reference::References;
use crate::markup::{Token, What};
use crate::options::Options;
use crate::splice::Places;
use crate::text::refuse_utf16;
use crate::xml;
use peregrine_text::carry;

pub(crate) fn read(bytes: Vec<u8>, options: &Options) -> Result<Parsed, Error> {
    refuse_utf16(&bytes)?;
    let file = File::new(&bytes)?;
    let edits = Filling { file: &file, options, edits: Vec::new(), holder: None }.fill();
    let (filled, targets) = apply(&bytes, edits);
    let mut places = Places::default();
    let file = File::new(&filled)?;
    for (number, token) in file.tokens.iter().enumerate() {
        if targets.contains(&token.raw.start) {
            for (block, escape) in file.blocks(number + 1..file.ends[number]) {
                places.add(block, escape);
            }
        }
    }
    Ok(places.finish(filled))
}

/// A file as tags and text.
struct File<'a> {
    bytes: &'a [u8],
    tokens: Vec<Token>,
    ends: Vec<usize>,
    /// Whether it is of version 2.
    is_second: bool,
}

/// A change to a file. `is_target` says that what is put in begins with a target to be translated.
struct Edit {
    at: Range<usize>,
    new: Vec<u8>,
    is_target: bool,
}

/// The file with changes, and where the new targets are.
fn apply(bytes: &[u8], mut edits: Vec<Edit>) -> (Vec<u8>, BTreeSet<usize>) {
    edits.sort_by_key(|edit| edit.at.start);
    let (mut out, mut targets) = (Vec::new(), BTreeSet::new());
    let mut from = 0;
    for edit in edits {
        out.extend_from_slice(&bytes[from..edit.at.start]);
        if edit.is_target {
            let blanks = edit.new.len() - edit.new.trim_ascii_start().len();
            targets.insert(out.len() + blanks);
        }
        out.extend(edit.new);
        from = edit.at.end;
    }
    out.extend_from_slice(&bytes[from..]);
    (out, targets)
}

/// The name of a tag without the prefix of its namespace.
fn local(name: &str) -> &str {
    name.rsplit(':').next().unwrap_or(name)
}

impl<'a> File<'a> {
    fn new(bytes: &'a [u8]) -> Result<File<'a>, Error> {
        let tokens = xml::tokens(bytes)?;
        let ends = xml::ends(&tokens);
        let mut file = File { bytes, tokens, ends, is_second: false };
        let root = (0..file.tokens.len()).find(|&number| file.name(number).is_some());
        let Some(root) = root.filter(|&root| file.name(root) == Some("xliff")) else {
            return Err(Error::whole("an xliff element was expected"));
        };
        file.is_second =
            file.attribute(root, "version").is_some_and(|version| version.starts_with(b"2"));
        Ok(file)
    }

    /// The name of a start tag.
    fn name(&self, number: usize) -> Option<&str> {
        match &self.tokens[number].what {
            What::Start { name, .. } => Some(local(name)),
            _ => None,
        }
    }

    fn attribute(&self, number: usize, name: &str) -> Option<&[u8]> {
        let raw = &self.tokens[number].raw;
        Attributes::new(&self.bytes[raw.clone()], raw.start).get(name, self.bytes)
    }

    fn is(&self, number: usize, name: &str, value: &[u8]) -> bool {
        self.attribute(number, name) == Some(value)
    }

    /// The bytes inside of an element.
    fn inside(&self, number: usize) -> Range<usize> {
        let (start, end) = (&self.tokens[number], &self.tokens[self.ends[number]]);
        start.raw.end..end.raw.start.max(start.raw.end)
    }

    /// The elements directly inside of another.
    fn children(&self, number: usize) -> impl Iterator<Item = usize> {
        let mut next = number + 1;
        let end = self.ends[number];
        std::iter::from_fn(move || {
            while next < end && self.name(next).is_none() {
                next += 1;
            }
            let child = next;
            next = self.ends.get(child).map_or(end, |&last| last + 1);
            (child < end).then_some(child)
        })
    }

    /// The blocks of some tokens. Segments are blocks of their own.
    fn blocks(&self, tokens: Range<usize>) -> Vec<((Block, Range<usize>), Escape)> {
        let mut blocks = Vec::new();
        let mut builder = Builder::new(false);
        let flush = |builder: &mut Builder, blocks: &mut Vec<_>| {
            blocks.extend(builder.finish().map(|block| (block, Escape::Xml)));
        };
        let mut segment_ends = BTreeSet::new();
        let mut number = tokens.start;
        while number < tokens.end {
            let token = &self.tokens[number];
            let raw = token.raw.clone();
            match &token.what {
                What::Text => self.add_text(raw, &mut builder),
                What::Cdata if builder.is_empty() && raw.end >= raw.start + 12 => {
                    flush(&mut builder, &mut blocks);
                    let inside = raw.start + 9..raw.end - 3;
                    builder.bytes(&self.bytes[inside.clone()], inside.start);
                    blocks.extend(builder.finish().map(|block| (block, Escape::Cdata)));
                }
                What::Cdata => builder.object(raw),
                What::Comment | What::Prologue => builder.point(raw),
                What::End { .. } if segment_ends.contains(&number) => {
                    flush(&mut builder, &mut blocks);
                }
                What::End { name } => builder.close(name, raw),
                What::Start { name, closed } => {
                    let end = self.ends[number];
                    let all = raw.start..self.tokens[end].raw.end;
                    match local(name) {
                        "mrk" if self.is(number, "mtype", b"seg") => {
                            segment_ends.insert(end);
                            flush(&mut builder, &mut blocks);
                        }
                        "mrk" | "g" | "pc"
                            if self.is(number, "translate", b"no")
                                || self.is(number, "mtype", b"protected") =>
                        {
                            builder.keep(&self.text(number + 1..end), all);
                            number = end;
                        }
                        "mrk" | "g" | "pc" if !closed => builder.open(name, raw),
                        "mrk" | "g" | "pc" | "bx" | "ex" | "bpt" | "ept" | "it" | "sc" | "ec"
                        | "sm" | "em" => {
                            builder.point(all);
                            number = end;
                        }
                        _ => {
                            builder.object(all);
                            number = end;
                        }
                    }
                }
            }
            number += 1;
        }
        flush(&mut builder, &mut blocks);
        blocks
    }

    /// Adds text, in which placeholders are kept.
    fn add_text(&self, raw: Range<usize>, builder: &mut Builder) {
        let mut at = raw.start;
        let text = std::str::from_utf8(&self.bytes[raw.clone()]).unwrap_or_default();
        for range in
            carry::placeholders(text).into_iter().filter(|r| !text[r.clone()].contains('&'))
        {
            let place = raw.start + range.start..raw.start + range.end;
            References::Xml.add(self.bytes, at..place.start, builder);
            at = place.end;
            builder.keep(&text[range], place);
        }
        References::Xml.add(self.bytes, at..raw.end, builder);
    }

    /// The text of some tokens.
    fn text(&self, tokens: Range<usize>) -> String {
        let mut text = String::new();
        for token in &self.tokens[tokens.start..tokens.end.max(tokens.start)] {
            if token.what == What::Text {
                References::Xml.decode(&self.bytes[token.raw.clone()], &mut text);
            }
        }
        text
    }
}

/// Finds what is to be put into a file.
struct Filling<'a> {
    file: &'a File<'a>,
    options: &'a Options,
    edits: Vec<Edit>,
    /// The last element that names a target language and has a new target.
    holder: Option<usize>,
}

impl Filling<'_> {
    fn fill(mut self) -> Vec<Edit> {
        let file = self.file;
        // Elements that are open: whether they are to be translated.
        let mut open: Vec<(usize, bool)> = Vec::new();
        // The element that names the target language.
        let mut holder: Option<usize> = None;
        // The end of the last unit. There are none inside of another.
        let mut unit_end = 0;
        for number in 0..file.tokens.len() {
            while open.last().is_some_and(|&(end, _)| end < number) {
                open.pop();
            }
            let Some(name) = file.name(number) else { continue };
            let mut wanted = open.last().is_none_or(|&(_, wanted)| wanted);
            if let Some(value) = file.attribute(number, "translate") {
                wanted = value != b"no";
            }
            open.push((file.ends[number], wanted));
            match (name, file.is_second) {
                _ if number < unit_end => {}
                ("xliff", true) | ("file", false) => holder = Some(number),
                ("trans-unit", false) | ("segment", true) => {
                    unit_end = file.ends[number];
                    if wanted && !file.is(number, "approved", b"yes") {
                        self.fill_unit(number, holder);
                    }
                }
                _ => {}
            }
        }
        self.edits
    }

    /// Fills the target of a unit or a segment.
    fn fill_unit(&mut self, unit: usize, holder: Option<usize>) {
        let file = self.file;
        let child = |name: &str| file.children(unit).find(|&child| file.name(child) == Some(name));
        let Some(source) = child("source") else { return };
        // What is segmented already is translated segment by segment.
        let content = child("seg-source").unwrap_or(source);
        let target = child("target");
        let is_empty = |target: usize| file.bytes[file.inside(target)].trim_ascii().is_empty();
        let open = target.is_none_or(|target| self.options.replace || is_empty(target));
        if !open || file.blocks(content + 1..file.ends[content]).is_empty() {
            return;
        }
        let state = if file.is_second { "" } else { "needs-review-translation" };
        let prefix = match &file.tokens[source].what {
            What::Start { name, .. } => &name[..name.len() - "source".len()],
            _ => "",
        };
        let (at, mut new) = match target {
            Some(target) => {
                let tag = file.tokens[target].raw.clone();
                let all = tag.start..file.tokens[file.ends[target]].raw.end;
                (all, open_tag(&file.bytes[tag], &[("state", state)]))
            }
            None => {
                let end = file.tokens[file.ends[content]].raw.end;
                let before = content.checked_sub(1).map(|before| &file.tokens[before]);
                let blank = before.filter(|before| before.what == What::Text);
                let blank = blank.map(|blank| &file.bytes[blank.raw.clone()]).unwrap_or_default();
                let blank = if blank.trim_ascii().is_empty() { blank } else { b"" };
                let tag = open_tag(format!("<{prefix}target>").as_bytes(), &[("state", state)]);
                (end..end, [blank, tag.as_slice()].concat())
            }
        };
        new.extend_from_slice(&file.bytes[file.inside(content)]);
        new.extend_from_slice(format!("</{prefix}target>").as_bytes());
        self.edits.push(Edit { at, new, is_target: true });
        if file.is_second {
            // Translated, but by a machine: the states that follow are those of a review.
            let tag = file.tokens[unit].raw.clone();
            let states = [("state", "translated"), ("subState", "peregrine:unreviewed")];
            let new = open_tag(&file.bytes[tag.clone()], &states);
            self.edits.push(Edit { at: tag, new, is_target: false });
        }
        if let Some(holder) = holder.filter(|&holder| self.holder != Some(holder)) {
            self.holder = Some(holder);
            self.name_language(holder);
        }
    }

    /// Writes the language of the targets where it is missing.
    fn name_language(&mut self, holder: usize) {
        let file = self.file;
        let name = if file.is_second { "trgLang" } else { "target-language" };
        let has = file.attribute(holder, &name.to_ascii_lowercase()).is_some();
        if let Some(language) = self.options.target_language.as_ref().filter(|_| !has) {
            let tag = file.tokens[holder].raw.clone();
            let new = open_tag(&file.bytes[tag.clone()], &[(name, language)]);
            self.edits.push(Edit { at: tag, new, is_target: false });
        }
    }
}

/// A start tag with these values for some attributes. An empty value changes nothing.
fn open_tag(tag: &[u8], values: &[(&str, &str)]) -> Vec<u8> {
    let mut tag = tag.to_vec();
    if tag.ends_with(b"/>") {
        let end = tag.len() - 2;
        tag.truncate(end);
        tag = tag.trim_ascii_end().to_vec();
        tag.push(b'>');
    }
    for (name, value) in values.iter().filter(|(_, value)| !value.is_empty()) {
        let escaped = value.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        match Attributes::new(&tag, 0).range(&name.to_ascii_lowercase()) {
            Some(range) => {
                tag.splice(range, escaped.into_bytes());
            }
            None => {
                let end = tag[..tag.len() - 1].trim_ascii_end().len();
                tag.splice(end..end, format!(" {name}=\"{escaped}\"").into_bytes());
            }
        }
    }
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_set_in_start_tags() {
        let set = |tag: &str, values: &[(&str, &str)]| {
            String::from_utf8(open_tag(tag.as_bytes(), values)).expect("text")
        };
        assert_eq!(set("<a>", &[("b", "c\"")]), "<a b=\"c&quot;\">");
        assert_eq!(set("<a b='x' />", &[("b", "c"), ("d", "")]), "<a b='c'>");
        assert_eq!(set("<a\n  b='x'\n>", &[("state", "c")]), "<a\n  b='x' state=\"c\"\n>");
    }
}
