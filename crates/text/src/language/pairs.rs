//! The language pair that a model's name tells.

use super::Language;

/// Words of models' names that are codes of languages too, or could be read as two of them.
const NO_LANGUAGES: &[&str] =
    &["tiny", "base", "test", "data", "lite", "been", "seen", "teen", "open", "omen"];

/// The languages that a model translates from and to, as its name has them, as codes of [`Language`]. None where the name
/// has none, or where it can be read in several ways.
///
/// A name is that of a file or folder; if the last part of a path has no pair, the folder around it is looked at.
///
/// ```
/// use peregrine_text::pair_from_name;
/// assert_eq!(pair_from_name("opus-mt-en-de"), Some(("en", "de")));
/// assert_eq!(pair_from_name("translate-zh_en-1_9"), Some(("zh", "en")));
/// assert_eq!(pair_from_name("model.enpt.intgemm.alphas.bin"), Some(("en", "pt")));
/// assert_eq!(pair_from_name("opus-mt-en-ROMANCE"), None);
/// assert_eq!(pair_from_name("my-model"), None);
/// ```
pub fn pair_from_name(name: &str) -> Option<(&'static str, &'static str)> {
    let parts = name.split(['/', '\\']).filter(|part| !part.is_empty());
    parts.rev().take(2).find_map(pair_of_part)
}

fn pair_of_part(name: &str) -> Option<(&'static str, &'static str)> {
    let words: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).collect();
    let languages = languages_of(&words);
    let mut pairs = languages.windows(2).filter_map(|pair| Some((pair[0]?, pair[1]?)));
    match (pairs.next(), pairs.next()) {
        (Some((from, to)), None) if from != to => Some((from.code, to.code)),
        (Some(_), _) => None,
        (None, _) => joined_pair(&words),
    }
}

/// The languages that words stand for. A code and its region, or its script, are one.
fn languages_of(words: &[&str]) -> Vec<Option<&'static Language>> {
    let mut languages = Vec::new();
    let mut at = 0;
    while let Some(&word) = words.get(at) {
        at += 1;
        // `opus-mt` is no Maltese.
        if word.eq_ignore_ascii_case("opus")
            && words.get(at).is_some_and(|w| w.eq_ignore_ascii_case("mt"))
        {
            at += 1;
            languages.push(None);
            continue;
        }
        let Some(language) = of_word(word) else {
            languages.push(None);
            continue;
        };
        let longer = words.get(at).and_then(|next| with_subtag(word, next));
        at += usize::from(longer.is_some());
        languages.push(Some(longer.unwrap_or(language)));
    }
    languages
}

/// The language of a code. Names of languages are words like others, and are not looked for.
fn of_word(word: &str) -> Option<&'static Language> {
    let is_code =
        matches!(word.len(), 2 | 3) && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    Language::find(word).filter(|_| is_code)
}

/// The language of a code and the region or script behind it.
fn with_subtag(word: &str, next: &str) -> Option<&'static Language> {
    let language = Language::find(&format!("{word}-{next}"));
    let is_form = language.is_some_and(|language| language.code.contains('-'));
    let is_form = is_form && language != of_word(word);
    // `en_US`: a region that makes no difference, unless it is written as a code of a language is.
    let is_region = next.len() == 2 && next.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_small = word.bytes().all(|byte| byte.is_ascii_lowercase());
    language.filter(|_| is_form || (is_region && is_small))
}

/// A pair written as one word, `enpt` or `engpor`. One side must be English: other words would be read as pairs.
fn joined_pair(words: &[&str]) -> Option<(&'static str, &'static str)> {
    let pair = |word: &&str| {
        let halves = matches!(word.len(), 4 | 6) && word.bytes().all(|b| b.is_ascii_lowercase());
        if !halves || NO_LANGUAGES.contains(word) {
            return None;
        }
        let (from, to) = word.split_at(word.len() / 2);
        let (from, to) = (of_word(from)?, of_word(to)?);
        ((from.code == "en") != (to.code == "en")).then_some((from.code, to.code))
    };
    let mut pairs = words.iter().filter_map(pair);
    let first = pairs.next()?;
    pairs.all(|other| other == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_in_the_field() {
        let cases = [
            ("opus-mt-en-de", "en de"),
            ("Helsinki-NLP/opus-mt-zh-en", "zh en"),
            ("opus-mt-mt-en", "mt en"),
            ("opus-mt-en-mt", "en mt"),
            ("opus-mt-tc-big-en-pt", "en pt"),
            ("opus-mt-tc-base-uk-de", "uk de"),
            ("opus-mt_tiny_eng-deu", "en de"),
            ("opus-tatoeba-en-ja", "en ja"),
            ("opus-mt-en-jap", ""),
            ("opus-mt-ine-ine", ""),
            ("opus-mt-en-ROMANCE", ""),
            ("opus-mt-sla-en", ""),
            ("opus-mt-mul-en", ""),
            ("translate-zh_en-1_9", "zh en"),
            ("translate-en_pb-1_0.argosmodel", "en pt-BR"),
            ("translate-zt_en-1_9", "zh-Hant en"),
            ("translate-en_nb-1_9", "en nb"),
            ("enpt", "en pt"),
            ("deen", "de en"),
            ("zhen", "zh en"),
            ("model.enpt.intgemm.alphas.bin", "en pt"),
            ("model.csen.intgemm8.bin", "cs en"),
            ("lex.50.50.enpt.s2t.bin", "en pt"),
            ("vocab.enpt.spm", "en pt"),
            ("en-pt.peregrine", "en pt"),
            ("en_pt", "en pt"),
            ("en-pt-BR.peregrine", "en pt-BR"),
            ("en-zh_TW", "en zh-Hant"),
            ("zh_Hans-en", "zh-Hans en"),
            ("en_US-de_DE", "en de"),
            ("ende.student.base", "en de"),
            ("ende.student.tiny11", "en de"),
            ("eten.student.tiny11.tar.gz", "et en"),
            ("esen.student.tiny11", "es en"),
            ("encs.student.tiny11", "en cs"),
            ("firefox/enpt/model.bin", "en pt"),
            ("quickmt-zh-en", "zh en"),
            ("wmt19-en-de", "en de"),
            ("ct2-opus-mt-en-de-int8", "en de"),
            ("eng-deu", "en de"),
            ("engdeu", "en de"),
            ("nb-en", "nb en"),
            ("pt-BR-en", "pt-BR en"),
            ("transformer.wmt13-en-fr", "en fr"),
            ("marian_ru_en_2021", "ru en"),
            ("C:\\models\\en-de\\model.npz", "en de"),
            ("m2m100_418M", ""),
            ("nllb-200-distilled-600M", ""),
            ("mbart-large-50-many-to-many-mmt", ""),
            ("model.npz", ""),
            ("model.npz.best-bleu-detok.npz", ""),
            ("tiny", ""),
            ("student.base", ""),
            ("en", ""),
            ("en-en", ""),
            ("pt-br", ""),
            ("en-de-fr", ""),
            ("de-en.fr-en", ""),
            ("my-model", ""),
            ("", ""),
            ("/", ""),
        ];
        for (name, expected) in cases {
            let found = pair_from_name(name).map(|(from, to)| format!("{from} {to}"));
            assert_eq!(found.unwrap_or_default(), expected, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_name_upsets_it(name: String) {
            pair_from_name(&name);
            Language::find(&name);
            Language::near_misses(&name);
        }
    }
}
