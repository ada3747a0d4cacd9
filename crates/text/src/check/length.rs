//! Detection of translations of unusual length.

/// Pairs with both texts shorter than this vary too much.
const LEAST: usize = 20;

/// The tolerance in characters beyond the range of ratios, because short texts vary most.
const SLACK: f32 = 8.0;

/// The usual ratios of a translation's length to its source's, by [`length_ratio`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LengthRange {
    /// The smallest usual ratio.
    pub least: f32,
    /// The largest usual ratio.
    pub greatest: f32,
}

impl Default for LengthRange {
    /// The range for all pairs of languages.
    fn default() -> LengthRange {
        LengthRange { least: 0.4, greatest: 2.5 }
    }
}

impl LengthRange {
    /// Whether the length of a translation is usual.
    ///
    /// ```
    /// use peregrine_text::check::LengthRange;
    /// let range = LengthRange { least: 0.8, greatest: 1.4 };
    /// let source = "Two dogs play in the snow while their owner looks for a third one.";
    /// assert!(range.fits(source, "Dois cães brincam na neve enquanto o dono procura um terceiro."));
    /// assert!(!range.fits(source, "Dois cães brincam na neve."));
    /// assert!(range.fits("Yes.", "Sim, é verdade."));
    /// ```
    pub fn fits(&self, source: &str, translation: &str) -> bool {
        let Some(ratio) = length_ratio(source, translation) else { return true };
        let slack = 1.0 + SLACK / length(source).max(1) as f32;
        (self.least / slack..=self.greatest * slack).contains(&ratio)
    }
}

/// The length of a translation divided by that of its source; `None` if both are shorter than
/// twenty characters. A Chinese character counts as three, a Japanese or Korean syllable as two,
/// white space not at all.
pub fn length_ratio(source: &str, translation: &str) -> Option<f32> {
    let (source, translation) = (length(source), length(translation));
    (source.max(translation) >= LEAST).then_some(translation as f32 / source.max(1) as f32)
}

fn length(text: &str) -> usize {
    let width = |c: char| match c {
        c if c.is_whitespace() => 0,
        '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}' => 3,
        '\u{3041}'..='\u{30ff}' | '\u{ac00}'..='\u{d7a3}' => 2,
        _ => 1,
    };
    text.chars().map(width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_their_own_widths() {
        let ratio =
            length_ratio("我们昨天在车站看到了他。", "Yesterday we saw him at the station.");
        assert!(ratio.is_some_and(|ratio| (0.7..1.1).contains(&ratio)), "{ratio:?}");
        assert_eq!(length_ratio("Yes, of course.", "Sim, claro."), None);
        assert_eq!(length_ratio("A sentence of some length.", ""), Some(0.0));
        assert_eq!(length_ratio("", "A sentence of some length."), Some(22.0));
    }

    #[test]
    fn usual_lengths_are_wide() {
        let range = LengthRange::default();
        let source = "a".repeat(100);
        assert!(range.fits(&source, &"b".repeat(50)) && range.fits(&source, &"b".repeat(240)));
        assert!(!range.fits(&source, &"b".repeat(30)) && !range.fits(&source, &"b".repeat(300)));
    }
}
