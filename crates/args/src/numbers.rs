//! Numbers with a range.

use std::ops::RangeInclusive;

/// Parses a number that must lie in a range. NaN is in no range.
pub fn number(
    range: RangeInclusive<f32>,
) -> impl Fn(&str) -> Result<f32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_in_its_range() {
        let parse = number(-1.0..=2.0);
        assert_eq!((parse("-1"), parse("2"), parse("1e-3")), (Ok(-1.0), Ok(2.0), Ok(0.001)));
        for text in ["NaN", "inf", "-inf", "2.1", "-1.1", "", "x", "1e40"] {
            assert_eq!(parse(text), Err("expected a number from -1 to 2".to_owned()), "{text}");
        }
    }
}
