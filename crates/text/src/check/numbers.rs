//! Detection of changed numbers.

use crate::carry::numbers;

/// The largest number that is often a word or Roman numerals, such as that of a century.
const OFTEN_A_WORD: u64 = 21;

/// The most numbers of a text that are compared.
const MOST: usize = 500;

/// The zero digit of each script with its own digits.
const ZEROS: [u32; 18] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66,
    0xe50, 0xed0, 0xf20, 0x1040, 0xff10,
];

/// Whether a translation has the numbers of its source, however they are separated.
///
/// Small and round numbers may become words (*3 dogs*, *1,000 people*, *15th century*), and zeros too (*330,000*, *330 mil*). Hours
/// may be counted to 12 or to 24, and years may be written with two digits or four.
///
/// ```
/// use peregrine_text::check::numbers_agree;
/// let source = "1,250 people and 3 dogs came in 1987 at 7 pm.";
/// assert!(numbers_agree(source, "Em 1987, 1.250 pessoas e três cães vieram às 19h."));
/// assert!(!numbers_agree(source, "Em 1978, 1.250 pessoas e três cães vieram às 19h."));
/// assert!(!numbers_agree("12 people", "13 pessoas"));
/// ```
pub fn numbers_agree(source: &str, translation: &str) -> bool {
    let (source, translation) = (Number::all(source), Number::all(translation));
    // A table of numbers is not a sentence.
    if source.is_empty() || source.len().max(translation.len()) > MOST {
        return true;
    }
    let (mut missing, mut invented) = (source.clone(), translation.clone());
    pair_off(&mut missing, &mut invented, |a, b| a.digits == b.digits);
    pair_off(&mut missing, &mut invented, Number::agrees);
    // Digits may be grouped differently.
    missing.retain(|number| !number.is_within(&translation));
    invented.retain(|number| !number.is_within(&source));
    let gone = |number: &Number| {
        !number.may_be_a_word() && !translation.iter().any(|other| other.digits == number.digits)
    };
    !missing.iter().any(gone) && (missing.is_empty() || invented.is_empty())
}

/// Removes matching pairs from two lists.
fn pair_off(
    left: &mut Vec<Number>,
    right: &mut Vec<Number>,
    same: impl Fn(&Number, &Number) -> bool,
) {
    left.retain(|number| {
        let place = right.iter().position(|other| same(number, other));
        place.map(|place| right.remove(place)).is_none()
    });
}

/// A number of a text.
#[derive(Debug, Clone)]
struct Number {
    /// The digits without leading zeros.
    digits: String,
    /// Whether trailing zeros are not significant: the number has a separator, or a word such as 万
    /// after it.
    scaled: bool,
}

impl Number {
    /// The numbers of a text, in digits of any script.
    fn all(text: &str) -> Vec<Number> {
        if !text.contains(char::is_numeric) {
            return Vec::new();
        }
        let text: String = text.chars().map(plain).collect();
        let number = |range: std::ops::Range<usize>| {
            let digits: String = text[range.clone()].chars().filter(char::is_ascii_digit).collect();
            let behind = text[range.end..].trim_start().chars().next();
            let scaled = digits.len() < range.len()
                || behind.is_some_and(|c| "百千万萬亿億兆만억조".contains(c));
            let digits = digits.trim_start_matches('0');
            let digits = if digits.is_empty() { "0" } else { digits };
            Number { digits: digits.to_owned(), scaled }
        };
        numbers(&text).into_iter().map(number).collect()
    }

    /// The value; `None` if it does not fit.
    fn value(&self) -> Option<u64> {
        self.digits.parse().ok()
    }

    /// The digits without trailing zeros.
    fn significant(&self) -> &str {
        self.digits.trim_end_matches('0')
    }

    fn zeros(&self) -> usize {
        self.digits.len() - self.significant().len()
    }

    /// Whether two numbers may be the same.
    fn agrees(&self, other: &Number) -> bool {
        let (a, b) = (&self.digits, &other.digits);
        let hours = |a: u64, b: u64| a.max(b) <= 24 && a.abs_diff(b) == 12;
        let is_hour = self.value().zip(other.value()).is_some_and(|(a, b)| hours(a, b));
        let is_year =
            |long: &str, short: &str| long.len() == 4 && short.len() == 2 && long.ends_with(short);
        // Thousands and millions may be words, so three or more zeros may be missing, but not one
        // or two.
        let same_zeros = self.scaled || other.scaled || self.zeros().abs_diff(other.zeros()) >= 3;
        a == b
            || is_hour
            || is_year(a, b)
            || is_year(b, a)
            || self.significant() == other.significant() && same_zeros
    }

    /// Whether the digits are consecutive in other numbers, within one or across several.
    fn is_within(&self, others: &[Number]) -> bool {
        let all: String = others.iter().map(|other| other.digits.as_str()).collect();
        let is_one = others.iter().any(|other| other.digits == self.digits);
        self.digits.len() >= 3 && !is_one && all.contains(&self.digits)
    }

    fn may_be_a_word(&self) -> bool {
        self.significant().len() <= 1 || self.value().is_some_and(|value| value <= OFTEN_A_WORD)
    }
}

/// The ASCII equivalent of a digit or separator of any script.
fn plain(c: char) -> char {
    let code = c as u32;
    let digit = ZEROS.iter().find(|&&zero| (zero..zero + 10).contains(&code));
    match (digit, c) {
        (Some(zero), _) => char::from(b'0' + (code - zero) as u8),
        (_, '\u{a0}' | '\u{202f}' | '\u{2009}') => ' ',
        (_, '٬' | '，' | '\'' | '’') => ',',
        (_, '٫' | '．') => '.',
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_change() {
        for (source, translation) in [
            ("12/25/2024: 1,234.56", "25/12/2024: 1.234,56"),
            ("in the '90s", "nos anos 1990"),
            ("3 dogs", "três cães"),
            ("at 11 p.m., 15th century", "às 23h, século XV"),
            ("330,000 of 6,000,000", "330 mil de 6 milhões"),
            ("1.5 million people", "1.500.000 pessoas"),
            ("30 million people", "3000万人"),
            ("10:08 p.m.", "22h08"),
            ("1'250 m", "1 250 m"),
            ("في عام ١٩٨٧", "in 1987"),
            ("２０２４年", "2024"),
            ("two dogs", "2 cães"),
            ("1,000 people", "mil pessoas"),
            ("no numbers", "aqui não"),
            ("call 555 12345", "ligue para 55512345"),
            ("in 1990, and 1990 only", "só em 1990"),
        ] {
            assert!(numbers_agree(source, translation), "{source} / {translation}");
        }
    }

    #[test]
    fn what_may_not() {
        for (source, translation) in [
            ("147 dogs", "122 cães"),
            ("45 dogs", "cães"),
            ("In 1987", "Em 1978"),
            ("100 dogs", "10 cães"),
            ("8 dogs", "9 cães"),
            ("pi is 3.14159", "pi é 3,14519"),
            ("a tie at 6-6", "empate em 1-6"),
            ("0 or 1", "1 ou 1"),
            ("nearly 7,000 islands, the 7th", "cerca de 7.030 ilhas, a 7ª"),
            ("802.11a, 802.11b and 802.11g", "802.11a, 802.11b e 803.11g"),
        ] {
            assert!(!numbers_agree(source, translation), "{source} / {translation}");
        }
    }
}
