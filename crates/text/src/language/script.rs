//! Scripts: which one a text is written in.

/// The first character of each script's blocks, the last one, and the script (ISO 15924), in order. Chinese characters
/// are `Hani`, Japanese syllables `Jpan`.
const BLOCKS: &[(u32, u32, &str)] = &[
    (0x41, 0x5A, "Latn"),
    (0x61, 0x7A, "Latn"),
    (0xC0, 0x24F, "Latn"),
    (0x250, 0x2AF, "Latn"),
    (0x370, 0x3FF, "Grek"),
    (0x400, 0x52F, "Cyrl"),
    (0x531, 0x58F, "Armn"),
    (0x591, 0x5F4, "Hebr"),
    (0x620, 0x6FF, "Arab"),
    (0x700, 0x74F, "Syrc"),
    (0x750, 0x77F, "Arab"),
    (0x780, 0x7BF, "Thaa"),
    (0x7C0, 0x7FF, "Nkoo"),
    (0x8A0, 0x8FF, "Arab"),
    (0x900, 0x97F, "Deva"),
    (0x980, 0x9FF, "Beng"),
    (0xA00, 0xA7F, "Guru"),
    (0xA80, 0xAFF, "Gujr"),
    (0xB00, 0xB7F, "Orya"),
    (0xB80, 0xBFF, "Taml"),
    (0xC00, 0xC7F, "Telu"),
    (0xC80, 0xCFF, "Knda"),
    (0xD00, 0xD7F, "Mlym"),
    (0xD80, 0xDFF, "Sinh"),
    (0xE00, 0xE7F, "Thai"),
    (0xE80, 0xEFF, "Laoo"),
    (0xF00, 0xFFF, "Tibt"),
    (0x1000, 0x109F, "Mymr"),
    (0x10A0, 0x10FF, "Geor"),
    (0x1100, 0x11FF, "Hang"),
    (0x1200, 0x139F, "Ethi"),
    (0x13A0, 0x13FF, "Cher"),
    (0x1400, 0x167F, "Cans"),
    (0x1780, 0x17FF, "Khmr"),
    (0x1800, 0x18AF, "Mong"),
    (0x1C50, 0x1C7F, "Olck"),
    (0x1C90, 0x1CBF, "Geor"),
    (0x1E00, 0x1EFF, "Latn"),
    (0x1F00, 0x1FFF, "Grek"),
    (0x2D00, 0x2D2F, "Geor"),
    (0x2D30, 0x2D7F, "Tfng"),
    (0x2D80, 0x2DDF, "Ethi"),
    (0x2DE0, 0x2DFF, "Cyrl"),
    (0x3005, 0x3007, "Hani"),
    (0x3041, 0x30FF, "Jpan"),
    (0x3105, 0x312F, "Hani"),
    (0x3131, 0x318E, "Hang"),
    (0x31F0, 0x31FF, "Jpan"),
    (0x3400, 0x4DBF, "Hani"),
    (0x4E00, 0x9FFF, "Hani"),
    (0xA640, 0xA69F, "Cyrl"),
    (0xA720, 0xA7FF, "Latn"),
    (0xAC00, 0xD7A3, "Hang"),
    (0xF900, 0xFAFF, "Hani"),
    (0xFB1D, 0xFB4F, "Hebr"),
    (0xFB50, 0xFDFF, "Arab"),
    (0xFE70, 0xFEFC, "Arab"),
    (0xFF21, 0xFF5A, "Latn"),
    (0xFF66, 0xFF9D, "Jpan"),
    (0x20000, 0x3FFFF, "Hani"),
];

/// The script of a letter; none for digits, marks and symbols.
fn script_of(c: char) -> Option<&'static str> {
    let code = c as u32;
    let (first, last, script) = BLOCKS[BLOCKS.partition_point(|block| block.1 < code)..].first()?;
    ((first..=last).contains(&&code) && c.is_alphabetic()).then_some(script)
}

/// The script of most letters of a text (ISO 15924); none if it has no letters. Japanese is `Jpan`, other text in Chinese
/// characters `Hani`, Korean `Hang`.
///
/// ```
/// use peregrine_text::main_script;
/// assert_eq!(main_script("Привет, Anna!"), Some("Cyrl"));
/// assert_eq!(main_script("彼は東京大学に行く。"), Some("Jpan"));
/// assert_eq!(main_script("12:30"), None);
/// ```
pub fn main_script(text: &str) -> Option<&'static str> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for script in text.chars().filter_map(script_of) {
        match counts.iter_mut().find(|(known, _)| *known == script) {
            Some((_, count)) => *count += 1,
            None => counts.push((script, 1)),
        }
    }
    let count = |wanted: &str| counts.iter().find(|(s, _)| *s == wanted).map_or(0, |(_, n)| *n);
    let (syllables, characters) = (count("Jpan"), count("Hani"));
    // Japanese has more Chinese characters than syllables at times; Chinese quotes a syllable now and then.
    let japanese = syllables * 20 > syllables + characters;
    for (script, count) in &mut counts {
        match *script {
            "Jpan" if japanese => *count = syllables + characters,
            "Hani" if japanese => *count = 0,
            _ => {}
        }
    }
    // The first of several that are equal.
    let most = counts.iter().map(|(_, count)| *count).max()?;
    counts.iter().find(|(_, count)| *count == most).map(|(script, _)| *script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_in_order() {
        assert!(BLOCKS.windows(2).all(|pair| pair[0].1 < pair[1].0));
        assert!(BLOCKS.iter().all(|(first, last, _)| first <= last));
    }

    #[test]
    fn scripts_of_texts() {
        let cases = [
            ("Olá, mundo", Some("Latn")),
            ("Ελληνικά", Some("Grek")),
            ("Українська", Some("Cyrl")),
            ("שלום", Some("Hebr")),
            ("سلام", Some("Arab")),
            ("नमस्ते", Some("Deva")),
            ("한국어", Some("Hang")),
            ("我爱你", Some("Hani")),
            ("東京へ行く", Some("Jpan")),
            ("他说“こ”是日文字母，这里写的都是中文而不是日文", Some("Hani")),
            ("ສະບາຍດີ", Some("Laoo")),
            ("ქართული", Some("Geor")),
            ("GPT и другие модели", Some("Cyrl")),
            ("¿? 123 🦀", None),
            ("", None),
        ];
        for (text, script) in cases {
            assert_eq!(main_script(text), script, "{text}");
        }
    }
}
