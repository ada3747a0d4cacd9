//! `normalizer` and `pre_tokenizer` as the settings of SentencePiece's one normaliser.

use super::quote;
use super::read::{File, Pattern, Stage};
use crate::Error;
use crate::sentencepiece::normalizer::ESCAPED_BLANK;

/// What all stages together do to a line.
#[derive(Default)]
pub(super) struct Rewriting {
    pub(super) charsmap: Vec<u8>,
    /// Whether a blank is put in front of the line.
    pub(super) adds_prefix: bool,
    /// Whether several blanks count as one, and those at both ends as none.
    pub(super) squeezes_blanks: bool,
    /// Whether blanks become U+2581.
    escapes_blanks: bool,
}

pub(super) fn read(name: &str, file: &File<'_>) -> Result<Rewriting, Error> {
    let mut rewriting = Rewriting::default();
    if let Some(stage) = &file.normalizer {
        rewriting.normalizer(stage).map_err(|problem| Error::new(name, "normalizer", problem))?;
    }
    if let Some(stage) = &file.pre_tokenizer {
        let fail = |problem| Error::new(name, "pre_tokenizer", problem);
        rewriting.pre_tokenizer(stage).map_err(fail)?;
    }
    if !rewriting.escapes_blanks {
        let problem = "nothing turns blanks into ▁, as SentencePiece does";
        return Err(Error::new(name, "pre_tokenizer", problem));
    }
    Ok(rewriting)
}

impl Rewriting {
    fn normalizer(&mut self, stage: &Stage<'_>) -> Result<(), String> {
        match &*stage.kind {
            "Sequence" => stage.normalizers.iter().try_for_each(|stage| self.normalizer(stage))?,
            "Precompiled" => {
                let map = stage.precompiled_charsmap.as_deref().unwrap_or_default();
                let bytes = base64(map).ok_or("`precompiled_charsmap` is not base64")?;
                if !self.charsmap.is_empty() {
                    return Err("a second `Precompiled` is not supported".into());
                }
                self.charsmap = bytes;
            }
            "Replace" => self.replace(stage)?,
            "Prepend" if stage.prepend.as_deref() == Some(ESCAPED_BLANK) => self.adds_prefix = true,
            // Comes with a `Replace` that squeezes blanks, which then go at both ends.
            "Strip" => {}
            kind => return Err(format!("{} is not supported", quote(kind))),
        }
        Ok(())
    }

    fn replace(&mut self, stage: &Stage<'_>) -> Result<(), String> {
        let content = stage.content.as_deref().unwrap_or_default();
        match (&stage.pattern, content) {
            (Some(Pattern::Regex(pattern)), " " | ESCAPED_BLANK) if &**pattern == " {2,}" => {
                self.squeezes_blanks = true;
            }
            (Some(Pattern::String(pattern)), ESCAPED_BLANK) if &**pattern == " " => {
                self.escapes_blanks = true;
            }
            (Some(Pattern::Regex(pattern) | Pattern::String(pattern)), _) => {
                let (pattern, content) = (quote(pattern), quote(content));
                return Err(format!("\"Replace\" of {pattern} by {content} is not supported"));
            }
            (None, _) => return Err("\"Replace\" without a pattern".into()),
        }
        Ok(())
    }

    fn pre_tokenizer(&mut self, stage: &Stage<'_>) -> Result<(), String> {
        match &*stage.kind {
            "Sequence" => {
                stage.pretokenizers.iter().try_for_each(|stage| self.pre_tokenizer(stage))?;
            }
            "WhitespaceSplit" => self.squeezes_blanks = true,
            "Metaspace" => {
                let mark = stage.replacement.as_deref().unwrap_or(ESCAPED_BLANK);
                if mark != ESCAPED_BLANK {
                    return Err(format!(
                        "\"Metaspace\" that writes {} is not supported",
                        quote(mark)
                    ));
                }
                self.escapes_blanks = true;
                // Older files have only the switch.
                self.adds_prefix |= match stage.prepend_scheme.as_deref() {
                    Some("always" | "first") => true,
                    Some("never") => false,
                    None => stage.add_prefix_space.unwrap_or(true),
                    Some(scheme) => {
                        return Err(format!("unknown `prepend_scheme` {}", quote(scheme)));
                    }
                };
            }
            kind => return Err(format!("{} is not supported", quote(kind))),
        }
        Ok(())
    }
}

/// The bytes of standard base64, with its `=` or without; `None` if it is something else.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let padding = text.len() - digits.len();
    if padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.chunks(4) {
        let mut bits = 0;
        for &digit in group {
            bits = bits << 6 | base64_digit(digit)?;
        }
        // Four digits are three bytes, three are two and two are one.
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

fn base64_digit(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_of_the_standard() {
        // The examples of RFC 4648, section 10.
        let examples = [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ];
        for (text, bytes) in examples {
            assert_eq!(base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
            assert_eq!(base64(text.trim_end_matches('=')).as_deref(), Some(bytes.as_bytes()));
        }
        assert_eq!(base64("+/+/"), Some(vec![0xFB, 0xFF, 0xBF]));
    }

    #[test]
    fn other_text_is_not_base64() {
        for text in ["Z", "Zg=", "Zg===", "====", "Zm9v=", "Z g=", "Zm9-", "Zm=v", "é", "Zm9v\n"] {
            assert_eq!(base64(text), None, "{text}");
        }
    }
}
