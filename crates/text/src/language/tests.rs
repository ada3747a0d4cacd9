use std::collections::HashSet;

use super::*;

fn code(name: &str) -> Option<&'static str> {
    Language::find(name).map(|language| language.code)
}

#[test]
fn the_table_is_in_order_and_complete() {
    let codes: HashSet<&str> = LANGUAGES.iter().map(|language| language.code).collect();
    assert_eq!(codes.len(), LANGUAGES.len());
    assert!(
        LANGUAGES.windows(2).all(|pair| pair[0].code.to_lowercase() < pair[1].code.to_lowercase())
    );
    let mut names = HashSet::new();
    for language in LANGUAGES {
        assert!(names.insert(language.name), "{}", language.name);
        assert_eq!((language.iso3.len(), language.script.len()), (3, 4), "{}", language.code);
        // Every code and name of a language finds it, or the form of it that stands for all.
        assert_eq!(code(language.code), Some(language.code));
        assert_eq!(code(language.name), Some(language.code));
        let found = Language::find(language.iso3).unwrap();
        assert!(found.is_form_of(language), "{} {}", language.code, found.code);
        // A language's own name is written in its own script.
        let script = main_script(language.native).unwrap();
        assert!(language.uses_script(script), "{}: {script}", language.code);
    }
    // What the models in the field translate.
    let m2m = "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha \
               he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my \
               ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi \
               wo xh yi yo zh zu";
    for name in m2m.split_whitespace() {
        assert!(Language::find(name).is_some(), "{name}");
    }
}

#[test]
fn aliases_mean_languages_of_the_table_and_hide_none() {
    for line in ALIASES {
        let mut names = line.split(' ');
        let meant = names.next().unwrap();
        assert_eq!(code(meant), Some(meant));
        for alias in names {
            assert!(Language::of_code(alias).is_none(), "{alias}");
            assert_eq!(code(alias), Some(meant), "{alias}");
        }
    }
    for (hint, meant) in HINTS {
        assert!(Language::find(hint).is_none(), "{hint}");
        assert_eq!(Language::near_misses(hint)[0].code, *meant);
    }
}

#[test]
fn names_in_every_form() {
    let cases = [
        ("EN", "en"),
        (" en ", "en"),
        ("en-US", "en"),
        ("en_GB.UTF-8", "en"),
        ("eng", "en"),
        ("English", "en"),
        ("english", "en"),
        ("pt", "pt"),
        ("pt_BR", "pt-BR"),
        ("pt-br", "pt-BR"),
        ("pt-PT", "pt-PT"),
        ("pt-AO", "pt"),
        ("pb", "pt-BR"),
        ("por", "pt"),
        ("Português", "pt"),
        ("jp", "ja"),
        ("cn", "zh"),
        ("zh-CN", "zh-Hans"),
        ("zh_TW", "zh-Hant"),
        ("zh-Hant-HK", "zh-Hant"),
        ("zh-Hans-CN", "zh-Hans"),
        ("zt", "zh-Hant"),
        ("cmn", "zh"),
        ("zho_Hans", "zh-Hans"),
        ("zho_Hant", "zh-Hant"),
        ("Chinese (Traditional)", "zh-Hant"),
        ("nb", "nb"),
        ("no", "no"),
        ("nb_NO", "nb"),
        ("sr", "sr"),
        ("sr-Latn", "sr-Latn"),
        ("sr-Latn-RS", "sr-Latn"),
        ("srp_Cyrl", "sr"),
        ("srp_Latn", "sr-Latn"),
        ("eng_Latn", "en"),
        ("arb_Arab", "ar"),
        ("pes", "fa"),
        ("iw", "he"),
        ("ger", "de"),
        ("es-419", "es"),
        ("de-CH-1996", "de"),
        ("fil", "tl"),
        ("日本語", "ja"),
    ];
    for (name, expected) in cases {
        assert_eq!(code(name), Some(expected), "{name}");
    }
    for name in ["", "-", "x", "xx", "tlh", "en-Cyrl", "ru-Latn", "de-foo", "e n", "enpt", "🦀"] {
        assert_eq!(code(name), None, "{name}");
    }
}

#[test]
fn near_misses_are_near() {
    let nearest = |name| Language::near_misses(name).first().map(|language| language.code);
    assert_eq!(nearest("Portugese"), Some("pt"));
    assert_eq!(nearest("germn"), Some("de"));
    assert_eq!(nearest("Ukranian"), Some("uk"));
    assert_eq!(nearest("kr"), Some("ko"));
    assert_eq!(nearest("deutsh"), Some("de"));
    assert!(Language::near_misses("").is_empty());
    assert!(Language::near_misses("xqzvw").is_empty());
    assert!(Language::near_misses("a").len() <= 3);
}

#[test]
fn words_differ_by_so_many_letters() {
    assert_eq!(edits("", "abc"), 3);
    assert_eq!(edits("abc", "abc"), 0);
    assert_eq!(edits("abc", "acb"), 1);
    assert_eq!(edits("kitten", "sitting"), 3);
}

#[test]
fn right_to_left() {
    let directions: Vec<&str> =
        LANGUAGES.iter().filter(|l| l.is_right_to_left()).map(|l| l.code).collect();
    assert_eq!(directions, ["ar", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"]);
}
