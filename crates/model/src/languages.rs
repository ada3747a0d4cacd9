//! The languages of a multilingual model, and where their tokens belong.
//!
//! M2M-100, NLLB-200 and mBART have a token for each language: one goes around the source, one is
//! the first word of the translation. MarianMT's models of several target languages have tokens
//! `>>xx<<` before the source.

use peregrine_text::{Language, Tokenizer};
use serde::{Deserialize, Serialize};

use crate::SourceFrame;

/// The languages of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Languages {
    /// The languages, in the order of the vocabulary.
    pub list: Vec<LanguageToken>,
    /// The place of the source language's token.
    pub source: SourcePlace,
    /// The place of the target language's token.
    pub target: TargetPlace,
    /// The id of the target language for requests that name none, if the model's configuration has
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_target: Option<u32>,
}

/// A language of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanguageToken {
    /// The model's own code: `pt`, `por_Latn`, `pt_XX`.
    pub code: String,
    /// The token's id, in the vocabulary of the side it belongs to.
    pub id: u32,
}

/// The place of the source language's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourcePlace {
    /// There is none: the model is not told the source language.
    None,
    /// In front of the source.
    Begin,
    /// Behind the source's end symbol.
    AfterEnd,
}

/// The place of the target language's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetPlace {
    /// The first word of the translation. It costs nothing, but counts in the length.
    First,
    /// The decoder's first input, in place of the start symbol.
    Start,
    /// In front of the source. A source may bring it along, so it need not be given.
    SourceBegin,
}

/// The form of a family's language tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// `__pt__`
    M2m100,
    /// `por_Latn`
    Nllb,
    /// `pt_XX`
    Mbart,
    /// `>>por<<`
    Marian,
}

impl Family {
    /// The code in a language token; `None` for other tokens.
    pub(crate) fn code(self, token: &str) -> Option<&str> {
        let lower = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase());
        let upper = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase());
        match self {
            Family::M2m100 => {
                let code = token.strip_prefix("__")?.strip_suffix("__")?;
                ((2..=3).contains(&code.len()) && lower(code)).then_some(code)
            }
            Family::Nllb => {
                let (language, script) = token.split_once('_')?;
                let (first, rest) = script.split_at_checked(1)?;
                let fits = language.len() == 3 && lower(language) && script.len() == 4;
                (fits && upper(first) && lower(rest)).then_some(token)
            }
            Family::Mbart => {
                let (language, country) = token.split_once('_')?;
                let fits = language.len() == 2 && lower(language) && country.len() == 2;
                (fits && upper(country)).then_some(token)
            }
            Family::Marian => {
                let code = token.strip_prefix(">>")?.strip_suffix("<<")?;
                (!code.is_empty()).then_some(code)
            }
        }
    }

    /// The language tokens of a vocabulary.
    pub(crate) fn tokens(self, vocabulary: &Tokenizer) -> Vec<LanguageToken> {
        let token = |id| {
            let code = self.code(vocabulary.token(id))?.to_owned();
            Some(LanguageToken { code, id })
        };
        (0..vocabulary.size() as u32).filter_map(token).collect()
    }
}

impl Languages {
    /// The target languages of a MarianMT model; `None` for a model of one.
    pub(crate) fn marian_mt(source: &Tokenizer) -> Option<Languages> {
        let list = Family::Marian.tokens(source);
        (!list.is_empty()).then_some(Languages {
            list,
            source: SourcePlace::None,
            target: TargetPlace::SourceBegin,
            default_target: None,
        })
    }

    /// The ids of the language tokens.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.list.iter().map(|language| language.id).collect()
    }

    /// The language of a name: the model's own code, or a name that [`Language::find`] knows. Where the
    /// model tells several forms of a language apart, the one in the usual script is found.
    ///
    /// ```
    /// use peregrine_model::{LanguageToken, Languages, SourcePlace, TargetPlace};
    ///
    /// let codes = ["arb_Arab", "por_Latn", "zho_Hans", "zho_Hant"];
    /// let token = |(id, code): (u32, &&str)| LanguageToken { code: code.to_string(), id };
    /// let list = (0..).zip(&codes).map(token).collect();
    /// let languages = Languages {
    ///     list,
    ///     source: SourcePlace::Begin,
    ///     target: TargetPlace::First,
    ///     default_target: None,
    /// };
    /// let find = |name| languages.find(name).map(|language| language.code.as_str());
    /// assert_eq!(find("zho_Hant"), Some("zho_Hant"));
    /// assert_eq!((find("pt-BR"), find("Arabic")), (Some("por_Latn"), Some("arb_Arab")));
    /// assert_eq!((find("zh"), find("zh-TW")), (Some("zho_Hans"), Some("zho_Hant")));
    /// assert_eq!(find("de"), None);
    /// ```
    pub fn find(&self, name: &str) -> Option<&LanguageToken> {
        let exact = |l: &&LanguageToken| l.code.eq_ignore_ascii_case(name);
        if let Some(language) = self.list.iter().find(exact) {
            return Some(language);
        }
        let wanted = Language::find(name)?;
        // The lower the better; of equals the first of the model's list.
        let distance = |token: &LanguageToken| {
            let known = Language::find(&token.code)?;
            let iso3 = token.code.split('_').next() == Some(wanted.iso3);
            match known == wanted {
                true => Some(usize::from(!iso3)),
                false if !known.is_form_of(wanted) => None,
                false => Some(if known.script == wanted.script { 2 } else { 3 }),
            }
        };
        let near = self.list.iter().filter_map(|token| Some((distance(token)?, token)));
        near.min_by_key(|(distance, _)| *distance).map(|(_, token)| token)
    }

    /// The codes that a name which is not found may have meant, at most three.
    pub fn near_misses(&self, name: &str) -> Vec<&str> {
        let folded = name.to_lowercase();
        let begins = |l: &&LanguageToken| l.code.to_lowercase().starts_with(&folded);
        let named = Language::near_misses(name);
        let named = named.iter().filter_map(|language| self.find(language.code));
        let mut codes: Vec<&str> = Vec::new();
        let alike = self.list.iter().filter(|_| folded.len() > 1).filter(begins);
        for token in alike.chain(named) {
            if codes.len() < 3 && !codes.contains(&token.code.as_str()) {
                codes.push(&token.code);
            }
        }
        codes
    }

    /// A description in JSON.
    pub(crate) fn describe(&self) -> serde_json::Value {
        let default = self.default_target;
        let default = self.list.iter().find(|language| Some(language.id) == default);
        serde_json::json!({
            "source_token": self.source,
            "target_token": self.target,
            "default_target": default.map(|language| &language.code),
            "codes": self.list.iter().map(|language| &language.code).collect::<Vec<_>>(),
        })
    }

    /// Whether a request must name both languages. If not, a source may bring its token along.
    pub fn are_required(&self) -> bool {
        self.target != TargetPlace::SourceBegin
    }

    /// Whether a request must name the source language.
    pub fn needs_source(&self) -> bool {
        self.source != SourcePlace::None
    }

    /// The frame of a source between two languages. The language tokens are added to `frame`.
    pub fn frame(
        &self,
        frame: SourceFrame,
        from: Option<&LanguageToken>,
        to: Option<&LanguageToken>,
    ) -> SourceFrame {
        let (from, to) = (from.map(|from| from.id), to.map(|to| to.id));
        let mut framed = frame;
        match self.source {
            SourcePlace::None => {}
            SourcePlace::Begin => framed.begin = from,
            SourcePlace::AfterEnd => framed.after_end = from,
        }
        if self.target == TargetPlace::SourceBegin {
            framed.begin = to;
        }
        framed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn languages(codes: &[&str]) -> Languages {
        let token = |(id, code): (u32, &&str)| LanguageToken { code: code.to_string(), id };
        let list = (0..).zip(codes).map(token).collect();
        Languages {
            list,
            source: SourcePlace::Begin,
            target: TargetPlace::First,
            default_target: None,
        }
    }

    #[test]
    fn tokens_of_families_are_told_apart() {
        let all = [Family::M2m100, Family::Nllb, Family::Mbart, Family::Marian];
        for (token, expected) in [
            ("__ast__", [Some("ast"), None, None, None]),
            ("zho_Hans", [None, Some("zho_Hans"), None, None]),
            ("pt_XX", [None, None, Some("pt_XX"), None]),
            (">>pt_BR<<", [None, None, None, Some("pt_BR")]),
            ("__e__", [None; 4]),
            ("eng_latn", [None; 4]),
            ("en_us", [None; 4]),
            (">><<", [None; 4]),
        ] {
            assert_eq!(all.map(|family| family.code(token)), expected, "{token}");
        }
    }

    #[test]
    fn the_nearest_form_of_a_language_is_found() {
        let nllb =
            languages(&["aka_Latn", "pes_Arab", "prs_Arab", "twi_Latn", "nno_Latn", "nob_Latn"]);
        for (name, code) in
            [("tw", "twi_Latn"), ("fa", "pes_Arab"), ("no", "nob_Latn"), ("PRS_arab", "prs_Arab")]
        {
            assert_eq!(nllb.find(name).map(|l| l.code.as_str()), Some(code), "{name}");
        }
        let m2m = languages(&["no", "ns", "pt", "zh"]);
        for (name, code) in [("nb", "no"), ("Portuguese", "pt"), ("zh-Hant", "zh"), ("nso", "ns")] {
            assert_eq!(m2m.find(name).map(|l| l.code.as_str()), Some(code), "{name}");
        }
        assert_eq!(m2m.near_misses("Portugese"), ["pt"]);
        assert_eq!(nllb.near_misses("pe"), ["pes_Arab"]);
    }

    #[test]
    fn frames_have_the_tokens_in_their_places() {
        let mut languages = languages(&["a", "b"]);
        let plain = SourceFrame { end: Some(9), ..SourceFrame::default() };
        let (a, b) = (languages.list[0].clone(), languages.list[1].clone());
        let framed = |languages: &Languages| languages.frame(plain, Some(&a), Some(&b)).frame(&[5]);
        assert_eq!(framed(&languages), [0, 5, 9]);
        languages.source = SourcePlace::AfterEnd;
        assert_eq!(framed(&languages), [5, 9, 0]);
        (languages.source, languages.target) = (SourcePlace::None, TargetPlace::SourceBegin);
        assert_eq!(framed(&languages), [1, 5, 9]);
    }
}
