//! Multilingual models: M2M-100, NLLB and mBART need a language token before each source, an end
//! symbol after it and a language token as the first target word.
//!
//! The library leaves all three to its caller, and only the language tokens in the vocabulary show
//! it. Text without them would be translated into nonsense, so these models are refused.

use std::path::Path;

use peregrine_text::Tokenizer;

use crate::ctranslate2::config::Config;
use crate::{ModelError, Start};

/// A family of models and the form of its language tokens.
struct Family {
    name: &'static str,
    is_language: fn(&str) -> bool,
}

const FAMILIES: [Family; 3] = [
    Family { name: "an M2M-100", is_language: is_m2m },
    Family { name: "an NLLB", is_language: is_nllb },
    Family { name: "an mBART", is_language: is_mbart },
];

/// Refuses a multilingual model; the error says what can be done.
pub(super) fn refuse(
    path: &Path,
    config: &Config,
    vocabulary: &Tokenizer,
    start: Start,
) -> Result<(), ModelError> {
    // OpenNMT's models start with `<s>` and Marian's with nothing; neither has such language
    // tokens.
    let is_plain = match start {
        Start::Zero => true,
        Start::Token(id) => vocabulary.token(id) == "<s>",
    };
    // Only fairseq's converter adds the end symbol, and of its models only M2M-100 is multilingual.
    let families = if config.add_source_eos { &FAMILIES[..1] } else { &FAMILIES };
    for family in families.iter().filter(|_| !is_plain) {
        let tokens = (0..vocabulary.size() as u32).map(|id| vocabulary.token(id));
        let languages: Vec<&str> = tokens.filter(|token| (family.is_language)(token)).collect();
        if let [first, second, ..] = languages[..] {
            let (name, count) = (family.name, languages.len());
            let what = format!(
                "{name} model of {count} languages, for which plain text is not supported yet: with \
                 --compat raw-source, lines of pieces such as `{first} \u{2581}Hello </s>` are \
                 translated into the language of a --prefix file with lines such as `{second}`"
            );
            return Err(ModelError::unsupported(path, what));
        }
    }
    Ok(())
}

/// `__en__`, `__ast__`
fn is_m2m(token: &str) -> bool {
    let inner = token.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    inner.is_some_and(|code| (2..=3).contains(&code.len()) && is_lower(code))
}

/// `eng_Latn`
fn is_nllb(token: &str) -> bool {
    token.split_once('_').is_some_and(|(language, script)| {
        let (first, rest) = script.split_at_checked(1).unwrap_or_default();
        language.len() == 3
            && is_lower(language)
            && is_upper(first)
            && rest.len() == 3
            && is_lower(rest)
    })
}

/// `en_XX`
fn is_mbart(token: &str) -> bool {
    token.split_once('_').is_some_and(|(language, country)| {
        language.len() == 2 && is_lower(language) && country.len() == 2 && is_upper(country)
    })
}

fn is_lower(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase())
}

fn is_upper(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase())
}
