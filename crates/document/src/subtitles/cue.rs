//! Where the text of subtitles is. Nothing is refused: what is no text of a cue is copied.

use std::ops::Range;

/// A line of a cue's text, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) range: Range<usize>,
    /// The number of its cue.
    pub(super) cue: usize,
    /// Whether an empty line stands before it in its cue.
    pub(super) apart: bool,
}

/// From when to when a cue is shown, in thousandths of a second, if that can be read.
pub(super) type Times = Option<(u64, u64)>;

/// The lines of text, and the times of the cues.
pub(super) fn lines(document: &[u8], is_vtt: bool) -> (Vec<Line>, Vec<Times>) {
    let all = split(document);
    let text = |number: usize| document[all[number].clone()].trim_ascii();
    let is_number =
        |number: usize| !text(number).is_empty() && text(number).iter().all(u8::is_ascii_digit);
    let timings: Vec<(usize, Times)> =
        (0..all.len()).filter_map(|number| Some((number, times(text(number))?))).collect();
    let mut lines = Vec::new();
    for (cue, &(timing, _)) in timings.iter().enumerate() {
        let mut end = timings.get(cue + 1).map_or(all.len(), |next| next.0);
        // The number of the next cue.
        if end < all.len() && end > timing + 1 && is_number(end - 1) {
            end -= 1;
        }
        let mut apart = false;
        for line in &all[timing + 1..end.max(timing + 1)] {
            if document[line.clone()].trim_ascii().is_empty() {
                // Behind the empty line there are notes, styles, names of cues. SubRip has only stray text.
                if is_vtt {
                    break;
                }
                apart = true;
                continue;
            }
            lines.push(Line { range: line.clone(), cue, apart });
            apart = false;
        }
    }
    (lines, timings.into_iter().map(|(_, times)| times).collect())
}

/// The lines of a document. They end with a line feed, a carriage return, or both.
fn split(document: &[u8]) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut start = 0;
    while start < document.len() {
        let is_end = |&byte: &u8| byte == b'\n' || byte == b'\r';
        let end = document[start..].iter().position(is_end).map_or(document.len(), |at| start + at);
        lines.push(start..end);
        start = end + if document[end..].starts_with(b"\r\n") { 2 } else { 1 };
    }
    lines
}

/// The times of a line that has some: `00:01:02,500 --> 00:01:04,000`, with or without hours, with a comma or a stop.
fn times(line: &[u8]) -> Option<Times> {
    let line = std::str::from_utf8(line).ok()?.trim_start_matches('\u{feff}');
    let (start, end) = line.split_once("-->")?;
    let end = end.split_ascii_whitespace().next()?;
    let begins = |text: &str| text.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let is_timing = begins(start) && begins(end) && start.contains(':');
    is_timing.then(|| Some((time(start.trim())?, time(end)?)))
}

fn time(text: &str) -> Option<u64> {
    let (whole, thousandths) = match text.find([',', '.']) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, "0"),
    };
    let number = |part: &str| part.trim().parse::<u32>().ok().map(u64::from);
    let seconds = whole
        .split(':')
        .try_fold(0_u64, |sum, part| sum.checked_mul(60)?.checked_add(number(part)?))?;
    seconds.checked_mul(1000)?.checked_add(number(thousandths)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let read = |text: &str| times(text.as_bytes());
        assert_eq!(read("00:00:01,000 --> 00:00:02,500"), Some(Some((1000, 2500))));
        assert_eq!(read("1:02.5-->01:03,000 align:start"), Some(Some((62_005, 63_000))));
        assert_eq!(read("a --> b"), None);
        assert_eq!(read("see 1 --> 2"), None);
        assert_eq!(read("99999999999:1 --> 2"), Some(None));
    }

    #[test]
    fn text_is_found_in_broken_files() {
        let found = |text: &str, is_vtt: bool| -> Vec<(usize, String, bool)> {
            let (lines, _) = lines(text.as_bytes(), is_vtt);
            lines.into_iter().map(|l| (l.cue, text[l.range].to_owned(), l.apart)).collect()
        };
        let line = |cue: usize, text: &str, apart: bool| (cue, text.to_owned(), apart);
        let text = "junk\n1\n0:1 --> 0:2\na\nb\n2\r\n0:3 --> 0:4\r\nc\r\n\r\nstray\r\n\r\n0:5 --> 0:6\n\n4\n0:7 --> 0:8";
        assert_eq!(
            found(text, false),
            [line(0, "a", false), line(0, "b", false), line(1, "c", false), line(1, "stray", true)]
        );
        let text = "WEBVTT\n\nNOTE x\n\nname\n00:01.000 --> 00:02.000 line:0\na\n\nNOTE y\n\nb\n00:03.000 --> 00:04.000\nc\rd";
        assert_eq!(
            found(text, true),
            [line(0, "a", false), line(1, "c", false), line(1, "d", false)]
        );
    }
}
