//! Quotation marks, dashes and the ellipsis: replaced by plain characters for the model, and
//! restored in the translation.

use std::ops::Range;

/// The plain equivalent of a typographic character; empty for soft hyphens, joiners and the like.
pub(super) fn twin(c: char) -> Option<&'static str> {
    Some(match c {
        '“' | '”' | '„' | '‟' | '«' | '»' | '″' | '＂' => "\"",
        '‘' | '’' | '‚' | '‛' | '‹' | '›' | '′' | 'ʼ' => "'",
        '–' | '—' | '―' | '‒' | '‐' | '‑' | '−' => "-",
        '…' => "...",
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => " ",
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => "",
        _ => return None,
    })
}

/// The characters that have a plain equivalent.
pub(super) fn twinned() -> impl Iterator<Item = char> {
    ('\u{a0}'..='\u{20ff}')
        .chain(['\u{2bc}', '\u{3000}', '\u{feff}', '＂'])
        .filter(|&c| twin(c).is_some())
}

/// The kinds of marks that are restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Quote,
    Apostrophe,
    Dash,
    Ellipsis,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Quote, Kind::Apostrophe, Kind::Dash, Kind::Ellipsis];
}

/// The byte ranges of plain marks of a kind in a text, except within the ranges `left_out`.
pub(super) fn marks(text: &str, kind: Kind, left_out: &[Range<usize>]) -> Vec<Range<usize>> {
    let candidates: Vec<Range<usize>> = match kind {
        Kind::Ellipsis => text.match_indices("...").map(|(at, _)| at..at + 3).collect(),
        Kind::Dash => text.match_indices('-').map(|(at, _)| at..at + 1).collect(),
        Kind::Quote => text.match_indices(['"', '\'']).map(|(at, _)| at..at + 1).collect(),
        Kind::Apostrophe => text.match_indices('\'').map(|(at, _)| at..at + 1).collect(),
    };
    let wanted = |range: &Range<usize>| {
        let inside = |other: &Range<usize>| other.start <= range.start && range.end <= other.end;
        if left_out.iter().any(inside) {
            return false;
        }
        let between = in_word(text, range);
        match kind {
            Kind::Ellipsis => true,
            Kind::Dash => !between,
            Kind::Quote => !between || text[range.clone()].starts_with('"'),
            Kind::Apostrophe => between,
        }
    };
    candidates.into_iter().filter(wanted).collect()
}

/// Whether a mark is between two letters.
fn in_word(text: &str, range: &Range<usize>) -> bool {
    text[..range.start].ends_with(char::is_alphabetic)
        && text[range.end..].starts_with(char::is_alphabetic)
}

/// The plain marks of one kind in a text, and their originals.
pub(super) struct Marks<'a, 's> {
    pub(super) text: &'a str,
    pub(super) places: &'a [Range<usize>],
    pub(super) originals: &'a [&'s str],
}

impl<'s> Marks<'_, 's> {
    /// The original of the first similar mark: opening or closing as this one, preferably the same
    /// character.
    fn like(&self, mark: &str, opens: bool) -> Option<&'s str> {
        let fits = |same: bool| {
            self.places.iter().position(|place| {
                opens_quote(self.text, place) == opens
                    && (!same || &self.text[place.clone()] == mark)
            })
        };
        fits(true).or_else(|| fits(false)).map(|number| self.originals[number])
    }
}

/// Whether a mark opens a quotation.
fn opens_quote(text: &str, place: &Range<usize>) -> bool {
    let before = text[..place.start].chars().next_back();
    before.is_none_or(|c| c.is_whitespace() || matches!(c, '(' | '[' | '-' | '"' | '\''))
        && text[place.end..].starts_with(|c: char| !c.is_whitespace())
}

/// The original of each plain mark of a translation: in order if both texts have the same number,
/// otherwise that of a similar mark.
pub(super) fn originals<'s>(
    source: &Marks<'_, 's>,
    kind: Kind,
    translation: &str,
    found: &[Range<usize>],
) -> Vec<Option<&'s str>> {
    if source.places.len() == found.len() {
        return source.originals.iter().map(|mark| Some(*mark)).collect();
    }
    let same = source.originals.windows(2).all(|pair| pair[0] == pair[1]);
    let of = |place: &Range<usize>| match kind {
        _ if same => source.originals.first().copied(),
        Kind::Quote => source.like(&translation[place.clone()], opens_quote(translation, place)),
        _ => None,
    };
    found.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_within_words_are_not_quotes() {
        let text = "\"don't\" - well-known 'x' 1990-1995...";
        let of = |kind| marks(text, kind, &[]).into_iter().map(|r| r.start).collect::<Vec<_>>();
        assert_eq!(of(Kind::Quote), [0, 6, 21, 23]);
        assert_eq!(of(Kind::Apostrophe), [4]);
        assert_eq!(of(Kind::Dash), [8, 29]);
        assert_eq!(of(Kind::Ellipsis), [34]);
    }

    #[test]
    fn quotes_follow_their_place_if_there_are_more() {
        let text = "\"a\" e \"b\"";
        let found = marks(text, Kind::Quote, &[]);
        let places = marks("\"x\"", Kind::Quote, &[]);
        let source = Marks { text: "\"x\"", places: &places, originals: &["“", "”"] };
        let back = originals(&source, Kind::Quote, text, &found);
        assert_eq!(back, ["“", "”", "“", "”"].map(Some));
    }

    #[test]
    fn every_typographic_character_is_listed() {
        assert!(twinned().count() > 30);
        assert!(['—', '“', '…', '\u{feff}', '\u{3000}'].iter().all(|&c| twinned().any(|t| t == c)));
    }
}
