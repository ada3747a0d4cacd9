//! Parts: what one speaker says in one cue, without what stands round it.

use std::ops::Range;

use super::cue::Line;
use crate::builder::Builder;
use crate::markup::reference::References;

/// Text of one cue and one speaker.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) cue: usize,
    /// Its bytes, without tags, dashes and notes of music at its ends.
    pub(super) range: Range<usize>,
    /// The number of lines it has.
    pub(super) lines: usize,
    /// What is read of it.
    pub(super) text: String,
    tokens: Vec<Token>,
    /// Whether it cannot go on with what came before: a dash, a bracket, music, another place on the screen.
    pub(super) anew: bool,
    /// Whether what comes behind it begins anew: a remark in brackets, the end of a song.
    pub(super) closed: bool,
    /// The tags before it that say who speaks and where it is shown.
    pub(super) setting: Vec<Vec<u8>>,
    /// Whether it has times inside, which belong to this cue.
    pub(super) timed: bool,
}

#[derive(Debug, Clone)]
struct Token {
    what: What,
    raw: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Text,
    Open(String),
    Close(String),
    Point,
}

/// Tags that SubRip knows. Other text in angle brackets is text.
const TAGS: [&str; 10] = ["b", "c", "em", "font", "i", "s", "strong", "u", "v", "span"];

/// The parts of the lines, in order.
pub(super) fn parts(document: &[u8], lines: &[Line], is_vtt: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut start = 0;
    while start < lines.len() {
        let mut end = start + 1;
        while end < lines.len() && goes_on(document, &lines[end - 1], &lines[end], is_vtt) {
            end += 1;
        }
        let anew = start > 0 && lines[start - 1].cue == lines[start].cue;
        parts.push(part(document, &lines[start..end], anew, is_vtt));
        start = end;
    }
    parts
}

/// Whether a line belongs to the same part as the line before it.
fn goes_on(document: &[u8], last: &Line, line: &Line, is_vtt: bool) -> bool {
    let read = |line: &Line| tokens(document, line.range.clone(), is_vtt);
    let is_new = |tokens: &[Token]| {
        let start = tokens.iter().take_while(|token| token.what != What::Text);
        let mut names = start.filter_map(|token| match &token.what {
            What::Open(name) => Some(name.as_str()),
            _ => None,
        });
        names.any(|name| name == "v") || begins_anew(&shown(document, tokens))
    };
    last.cue == line.cue
        && !line.apart
        && !is_new(&read(line))
        && !is_closed(&shown(document, &read(last)))
}

fn begins_anew(text: &str) -> bool {
    let text = text.trim_start();
    dash(text) > 0 || text.starts_with(['[', '(', '♪', '♫'])
}

/// Whether a line is a remark or ends a song.
fn is_closed(text: &str) -> bool {
    let text = text.trim();
    text.starts_with('[') && text.ends_with(']')
        || text.starts_with('(') && text.ends_with(')')
        || text.ends_with(['♪', '♫'])
}

/// The bytes of the dash with which a speaker begins, and of the blanks behind it.
fn dash(text: &str) -> usize {
    let Some(first) = text.chars().next() else { return 0 };
    let rest = text[first.len_utf8()..].trim_start();
    let is_dash = matches!(first, '-' | '\u{2010}'..='\u{2015}' | '−');
    let blank = text.len() - rest.len() > first.len_utf8();
    let speaks = match rest.chars().next() {
        None => true,
        Some(c) => c != '-' && c != '>' && (blank || !c.is_ascii_digit()),
    };
    if is_dash && speaks { text.len() - rest.len() } else { 0 }
}

fn part(document: &[u8], lines: &[Line], anew: bool, is_vtt: bool) -> Part {
    let whole = lines[0].range.start..lines[lines.len() - 1].range.end;
    let mut tokens = tokens(document, whole.clone(), is_vtt);
    let shown = shown(document, &tokens);
    let timed = tokens.iter().any(|token| is_time(&document[token.raw.clone()]));
    let setting = trim(document, &mut tokens);
    let text = text_of(document, &tokens);
    let range = match (tokens.first(), tokens.last()) {
        (Some(first), Some(last)) => first.raw.start..last.raw.end,
        _ => whole.end..whole.end,
    };
    Part {
        cue: lines[0].cue,
        range,
        lines: lines.len(),
        text,
        tokens,
        anew: anew || begins_anew(&shown),
        closed: is_closed(&shown),
        setting,
        timed,
    }
}

/// A tag that is a time.
fn is_time(raw: &[u8]) -> bool {
    raw.starts_with(b"<") && raw.get(1).is_some_and(u8::is_ascii_digit)
}

/// The text of some tokens, as it stands in the document.
fn text_of(document: &[u8], tokens: &[Token]) -> String {
    let texts = tokens.iter().filter(|token| token.what == What::Text);
    texts.map(|token| String::from_utf8_lossy(&document[token.raw.clone()])).collect()
}

/// The text of some tokens and the notes of songs.
fn shown(document: &[u8], tokens: &[Token]) -> String {
    let raws = tokens.iter().map(|token| &document[token.raw.clone()]);
    let seen = raws.filter(|raw| !raw.starts_with(b"<") && !raw.starts_with(b"{"));
    seen.map(String::from_utf8_lossy).collect()
}

fn tokens(document: &[u8], range: Range<usize>, is_vtt: bool) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut text = range.start;
    let mut at = range.start;
    while at < range.end {
        let rest = &document[at..range.end];
        let Some((what, length)) = tag(rest, is_vtt) else {
            at += 1;
            continue;
        };
        if text < at {
            tokens.push(Token { what: What::Text, raw: text..at });
        }
        tokens.push(Token { what, raw: at..at + length });
        at += length;
        text = at;
    }
    if text < at {
        tokens.push(Token { what: What::Text, raw: text..at });
    }
    tokens
}

/// The longest tag: one that is not closed must not be looked for over and over.
const LONGEST: usize = 1000;

/// The tag that a text begins with, and its length.
fn tag(rest: &[u8], is_vtt: bool) -> Option<(What, usize)> {
    let near = &rest[..rest.len().min(LONGEST)];
    let to = |end: u8| near.iter().position(|&byte| byte == end).map(|at| at + 1);
    match near {
        // The notes of a song stay where they are.
        [0xe2, 0x99, 0xaa | 0xab, ..] => Some((What::Point, 3)),
        [b'{', b'\\', ..] | [b'{', _, b':', ..] => Some((What::Point, to(b'}')?)),
        [b'<', ..] => {
            let length = to(b'>')?;
            let inside = &near[1..length - 1];
            let is_end = inside.first() == Some(&b'/');
            let name = &inside[usize::from(is_end)..];
            let is_name = |byte: &&u8| byte.is_ascii_alphanumeric();
            let name = &name[..name.iter().take_while(is_name).count()];
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            let what = match is_end {
                _ if name.starts_with(|c: char| c.is_ascii_digit()) && is_vtt => What::Point,
                _ if !is_vtt && !TAGS.contains(&name.as_str()) => return None,
                _ if name.is_empty() && !is_end => return None,
                true => What::Close(name),
                false => What::Open(name),
            };
            Some((what, length))
        }
        _ => None,
    }
}

/// Takes off what may stay where it is at both ends: tags round all of it, tags without a partner, dashes, white space. Gives the tags
/// that say who speaks, and where the text is shown.
fn trim(document: &[u8], tokens: &mut Vec<Token>) -> Vec<Vec<u8>> {
    let mates = mates(tokens);
    let mut setting = Vec::new();
    let (mut first, mut last) = (0, tokens.len());
    while first < last {
        let token = &mut tokens[first];
        let raw = &document[token.raw.clone()];
        let is_lone = mates[first] == first;
        let text = std::str::from_utf8(raw).unwrap_or("x");
        if token.what == What::Text {
            token.raw.start += raw.len() - raw.trim_ascii_start().len();
            token.raw.start += dash(text.trim_ascii_start());
            if token.raw.start < token.raw.end {
                break;
            }
        } else if !is_lone && mates[first] + 1 != last {
            break;
        } else {
            if raw.starts_with(b"{") || raw.starts_with(b"<v") {
                setting.push(raw.to_vec());
            }
            last -= usize::from(!is_lone);
        }
        first += 1;
    }
    while first < last {
        let token = &mut tokens[last - 1];
        let is_lone = mates[last - 1] == last - 1;
        if token.what == What::Text {
            token.raw.end = token.raw.start + document[token.raw.clone()].trim_ascii_end().len();
            if token.raw.start < token.raw.end {
                break;
            }
        } else if !is_lone {
            break;
        }
        last -= 1;
    }
    tokens.truncate(last);
    tokens.drain(..first.min(last));
    setting
}

/// For each token the number of its partner, or its own.
fn mates(tokens: &[Token]) -> Vec<usize> {
    let mut mates: Vec<usize> = (0..tokens.len()).collect();
    let mut open: Vec<usize> = Vec::new();
    for (number, token) in tokens.iter().enumerate() {
        match &token.what {
            What::Open(_) => open.push(number),
            What::Close(name) => {
                // Few are open; what is nested deeply is left alone.
                let low = open.len().saturating_sub(16);
                let fits = |start: &usize| tokens[*start].what == What::Open(name.clone());
                if let Some(at) = open[low..].iter().rposition(fits) {
                    let start = open[low + at];
                    open.truncate(low + at);
                    mates[start] = number;
                    mates[number] = start;
                }
            }
            _ => {}
        }
    }
    mates
}

impl Part {
    /// Adds its text and tags to a block. Tags belong together only within a part.
    pub(super) fn add(&self, document: &[u8], number: usize, is_vtt: bool, builder: &mut Builder) {
        if number > 0 {
            // A blank that has no bytes: what stands between two cues stays there.
            builder.spelled(" ", self.range.start..self.range.start);
        }
        for token in &self.tokens {
            let raw = token.raw.clone();
            match &token.what {
                What::Text if is_vtt => References::Html.add(document, raw, builder),
                What::Text => builder.bytes(&document[raw.clone()], raw.start),
                What::Open(name) => builder.open(&format!("{name} {number}"), raw),
                What::Close(name) => builder.close(&format!("{name} {number}"), raw),
                What::Point => builder.point(raw),
            }
        }
    }
}
