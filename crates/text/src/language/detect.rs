//! Which language a text is in.
//!
//! First the script: many are written by one language only. Then whatlang's trigrams, among the languages that
//! are allowed; where these are in doubt, whichlang, which is better with short text but knows 16 languages. Icelandic, which
//! neither knows, has letters of its own.

use std::sync::LazyLock;

use whatlang::{Detector, Lang};

use super::{Language, main_script};

/// Characters of a text that are looked at.
const MOST_CHARACTERS: usize = 1000;

/// The confidence in an answer that whatlang doubts and whichlang shares, and in one that they do not share. Shares of right
/// answers in lines of 20 and 40 characters (`crates/text/tests/text/languages.rs` prints them).
const AGREED: f32 = 0.9;
const DISPUTED: f32 = 0.6;

/// The most languages that are named beside the answer.
const MOST_OTHERS: usize = 3;

/// Characters that are written differently in simplified and in traditional Chinese, of the most frequent ones.
const SIMPLIFIED: &str =
    "们这国会来时说对发过还进经现没问学见长让样关点听动实车话买东开头气业员电间无书机种体";
const TRADITIONAL: &str =
    "們這國會來時說對發過還進經現沒問學見長讓樣關點聽動實車話買東開頭氣業員電間無書機種體";

/// The language of a text, as far as it can be told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Detection {
    /// The code of the language, one of those allowed; none if the text has no letters, or none that an allowed language is
    /// written in.
    pub language: Option<&'static str>,
    /// How sure that is, from 0 to 1.
    pub confidence: f32,
    /// Whether it can be relied on. Of such answers hardly one in a hundred is wrong.
    pub reliable: bool,
    /// Other languages that it may be, most likely first; none if the answer is reliable.
    pub others: Vec<&'static str>,
    /// The script of most letters (ISO 15924), see [`main_script`].
    pub script: Option<&'static str>,
}

/// The language of a text, among those allowed; all that can be told apart if `allowed` is empty. Codes and
/// names are those of [`Language::find`]. It is decided on the first 1,000 characters: give it a document, not a line.
///
/// ```
/// use peregrine_text::detect;
///
/// let found = detect("Two dogs play in the snow, and nobody minds.", &["en", "pt", "ru"]);
/// assert_eq!(found.language, Some("en"));
/// // A text in another script is none of the languages.
/// let found = detect("Две собаки играют в снегу.", &["en", "pt"]);
/// assert_eq!((found.language, found.script), (None, Some("Cyrl")));
/// assert_eq!(detect("Мы не знаем, почему вы ещё ждёте.", &[]).language, Some("ru"));
/// ```
pub fn detect(text: &str, allowed: &[&str]) -> Detection {
    let text = text.trim_start();
    let end = text.char_indices().nth(MOST_CHARACTERS).map_or(text.len(), |(at, _)| at);
    let text = &text[..end];
    let script = main_script(text);
    let none =
        Detection { language: None, confidence: 0.0, reliable: false, others: Vec::new(), script };
    let Some(script) = script else { return none };
    let candidates = candidates(allowed, script);
    if candidates.is_empty() {
        return none;
    }
    let sure = |language: &'static Language| Detection {
        language: Some(form(language, &candidates, text).code),
        confidence: 1.0,
        reliable: true,
        ..none.clone()
    };
    if let Some(only) = only_language(script) {
        return sure(only);
    }
    if let Some(icelandic) = candidates.iter().find(|l| l.code == "is" && is_icelandic(text)) {
        return sure(icelandic);
    }
    let Some(answer) = ask(text, &candidates) else { return none };
    Detection {
        language: Some(form(answer.language, &candidates, text).code),
        confidence: answer.confidence,
        reliable: answer.reliable,
        others: answer.others.iter().map(|other| form(other, &candidates, text).code).collect(),
        ..none
    }
}

/// Whether a text is reliably in one language and not in another. It is [`detect`] among the two, and costs a tenth of it where
/// the answer is no and whichlang knows the language.
///
/// ```
/// use peregrine_text::is_rather;
///
/// assert!(is_rather("Two dogs play in the snow, and nobody minds.", "en", "pt"));
/// assert!(!is_rather("Dois cães brincam na neve, e ninguém se importa.", "en", "pt"));
/// ```
pub fn is_rather(text: &str, language: &str, other: &str) -> bool {
    let (Some(language), Some(other)) = (Language::find(language), Language::find(other)) else {
        return false;
    };
    if SECOND.iter().any(|(_, known)| *known == language) {
        let second = whichlang::detect_language(text);
        if !SECOND.iter().any(|(lang, known)| *lang == second && *known == language) {
            return false;
        }
    }
    let found = detect(text, &[language.code, other.code]);
    found.reliable && found.language == Some(language.code)
}

/// The languages allowed that are written in this script.
fn candidates(allowed: &[&str], script: &str) -> Vec<&'static Language> {
    let known: Vec<&Language> = match allowed.is_empty() {
        // Of several forms of a language the one that stands for all.
        true => {
            Language::all().iter().filter(|l| !l.code.contains('-') && l.code != "nb").collect()
        }
        false => allowed.iter().filter_map(|name| Language::find(name)).collect(),
    };
    known.into_iter().filter(|language| language.uses_script(script)).collect()
}

/// The one language of the table that is written in a script.
fn only_language(script: &str) -> Option<&'static Language> {
    let mut users = Language::all().iter().filter(|language| language.uses_script(script));
    let first = users.next()?;
    users.all(|other| other.is_form_of(first)).then_some(first)
}

/// The form of a language that is allowed. Of simplified and traditional Chinese the one that the text is in.
fn form(
    language: &'static Language,
    candidates: &[&'static Language],
    text: &str,
) -> &'static Language {
    let forms: Vec<&Language> =
        candidates.iter().copied().filter(|l| l.is_form_of(language)).collect();
    let count = |list: &str| text.chars().filter(|&c| list.contains(c)).count();
    let of_script = |script: &str| forms.iter().find(|l| l.code.ends_with(script)).copied();
    let (simplified, traditional) = (of_script("-Hans"), of_script("-Hant"));
    if simplified.or(traditional).is_some() {
        let chosen = match count(TRADITIONAL) > count(SIMPLIFIED) {
            true => traditional,
            false => simplified,
        };
        if let Some(chosen) = chosen {
            return chosen;
        }
    }
    let exact = forms.iter().find(|l| l.code == language.code);
    exact.or(forms.first()).copied().unwrap_or(language)
}

/// Whether letters are Icelandic's own, at least one in a hundred.
fn is_icelandic(text: &str) -> bool {
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let (own, foreign) = text.chars().fold((0, 0), |(own, foreign), c| match c {
        'þ' | 'Þ' => (own + 2, foreign),
        'ð' | 'Ð' => (own + 1, foreign),
        'ø' | 'Ø' => (own, foreign + 1),
        _ => (own, foreign),
    });
    own > foreign && own * 100 >= letters
}

/// The languages of whatlang.
static TRIGRAMS: LazyLock<Vec<(Lang, &Language)>> = LazyLock::new(|| {
    let known = |&lang: &Lang| Some((lang, Language::find(lang.code())?));
    Lang::all().iter().filter_map(known).collect()
});

/// The languages of whichlang.
static SECOND: LazyLock<Vec<(whichlang::Lang, &Language)>> = LazyLock::new(|| {
    let known = |&lang: &whichlang::Lang| Some((lang, Language::find(lang.three_letter_code())?));
    whichlang::LANGUAGES.iter().filter_map(known).collect()
});

struct Answer {
    language: &'static Language,
    confidence: f32,
    reliable: bool,
    others: Vec<&'static Language>,
}

/// What the two identifiers say.
fn ask(text: &str, candidates: &[&'static Language]) -> Option<Answer> {
    let allowed = TRIGRAMS.iter().filter(|(_, language)| is_among(language, candidates));
    let mut allowed: Vec<Lang> = allowed.map(|(lang, _)| *lang).collect();
    let known = |lang: Lang, allowed: &[Lang]| {
        let found = TRIGRAMS.iter().find(|(other, _)| *other == lang)?;
        allowed.contains(&lang).then_some(found.1)
    };
    let first = Detector::with_allowlist(allowed.clone()).detect(text)?;
    let language = known(first.lang(), &allowed)?;
    let mut answer = Answer {
        language,
        confidence: first.confidence().clamp(0.0, 1.0) as f32,
        reliable: first.is_reliable(),
        others: Vec::new(),
    };
    if answer.reliable {
        return Some(answer);
    }
    // The next best ones, by asking again without those before.
    let mut last = first.lang();
    while answer.others.len() < MOST_OTHERS {
        allowed.retain(|lang| *lang != last);
        let Some(next) = Detector::with_allowlist(allowed.clone()).detect(text) else { break };
        let Some(other) = known(next.lang(), &allowed) else { break };
        last = next.lang();
        answer.others.push(other);
    }
    second_opinion(text, candidates, &mut answer);
    Some(answer)
}

/// Whether a language, or a form of it, is among others.
fn is_among(language: &Language, others: &[&Language]) -> bool {
    others.iter().any(|other| other.is_form_of(language))
}

/// Asks whichlang, if the doubtful answer is one of its languages.
fn second_opinion(text: &str, candidates: &[&'static Language], answer: &mut Answer) {
    if !SECOND.iter().any(|(_, language)| *language == answer.language) {
        return;
    }
    let second = whichlang::detect_language(text);
    let second = SECOND.iter().find(|(lang, _)| *lang == second).map(|(_, language)| *language);
    let Some(second) = second.filter(|l| is_among(l, candidates)) else { return };
    if second == answer.language {
        answer.confidence = answer.confidence.max(AGREED);
        return;
    }
    answer.others.retain(|other| *other != second);
    answer.others.insert(0, answer.language);
    answer.others.truncate(MOST_OTHERS);
    answer.language = second;
    answer.confidence = DISPUTED;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_one_language_are_enough() {
        let cases = [("Ναι", "el"), ("예", "ko"), ("ใช่", "th"), ("ແມ່ນ", "lo"), ("დიახ", "ka")];
        for (text, code) in cases {
            let found = detect(text, &[]);
            assert_eq!((found.language, found.reliable), (Some(code), true), "{text}");
            assert!(found.others.is_empty());
        }
    }

    #[test]
    fn nothing_is_said_of_text_without_letters() {
        for text in ["", " \n", "123 + 456", "🦀 ...", "\u{301}"] {
            let found = detect(text, &[]);
            assert_eq!((found.language, found.confidence, found.reliable), (None, 0.0, false));
        }
    }

    #[test]
    fn answers_are_among_those_allowed() {
        let text = "O cão e o gato dormem na mesma cama todas as noites.";
        assert_eq!(detect(text, &["en", "pt-BR"]).language, Some("pt-BR"));
        assert_eq!(detect(text, &["Portuguese", "fr"]).language, Some("pt"));
        let other = detect(text, &["ru", "zh"]);
        assert_eq!((other.language, other.script), (None, Some("Latn")));
        let norwegian = "Jeg vet ikke hvorfor han ikke kommer hjem i kveld, men vi venter.";
        assert_eq!(detect(norwegian, &["no", "en"]).language, Some("no"));
        assert_eq!(detect(norwegian, &["nb", "en"]).language, Some("nb"));
        assert_eq!(detect(text, &["nonsense"]).language, None);
    }

    #[test]
    fn chinese_in_both_forms() {
        let both = ["zh-Hans", "zh-Hant", "en"];
        assert_eq!(detect("这是我们的国家。", &both).language, Some("zh-Hans"));
        assert_eq!(detect("這是我們的國家。", &both).language, Some("zh-Hant"));
        assert_eq!(detect("這是我們的國家。", &["zh", "ja"]).language, Some("zh"));
        assert_eq!(detect("這是我們的國家。", &[]).language, Some("zh"));
        assert_eq!(detect("これは私たちの国です。", &["zh", "ja"]).language, Some("ja"));
        assert_eq!(SIMPLIFIED.chars().count(), TRADITIONAL.chars().count());
    }

    #[test]
    fn icelandic_by_its_letters() {
        let text = "Það er gott veður í dag og við förum út að ganga.";
        assert_eq!(detect(text, &["is", "da", "en"]).language, Some("is"));
        assert_ne!(detect(text, &["da", "en"]).language, Some("is"));
    }

    #[test]
    fn a_long_text_is_judged_by_its_beginning() {
        let text = format!("{} {}", "This is plain English text. ".repeat(50), "и ".repeat(99_999));
        assert_eq!(detect(&text, &[]).language, Some("en"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_an_answer(text: String) {
            for allowed in [&[][..], &["en", "ru", "zh", "is"]] {
                let found = detect(&text, allowed);
                proptest::prop_assert!((0.0..=1.0).contains(&found.confidence));
                proptest::prop_assert!(!found.reliable || found.language.is_some());
                let known = |code: &&str| allowed.is_empty() || allowed.contains(code);
                proptest::prop_assert!(found.language.iter().chain(&found.others).all(known));
            }
        }
    }
}
