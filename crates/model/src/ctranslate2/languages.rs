//! The languages of CTranslate2 models. The library leaves language tokens and end symbols to its
//! caller, so only the vocabulary shows what a model needs.

use peregrine_text::Tokenizer;

use crate::ctranslate2::config::Config;
use crate::languages::Family;
use crate::{LanguageToken, Languages, SourcePlace, Start, TargetPlace};

/// The languages of a model: M2M-100, NLLB, mBART, or MarianMT of several target languages.
pub(super) fn find(config: &Config, vocabulary: &Tokenizer, start: Start) -> Option<Languages> {
    // OpenNMT's models start with `<s>` and Marian's with nothing; neither has such language
    // tokens. Only fairseq's converter adds the end symbol, and of its models only M2M-100 is
    // multilingual.
    let families: &[Family] = match start {
        Start::Zero => return Languages::marian_mt(vocabulary),
        Start::Token(id) if vocabulary.token(id) == "<s>" => &[],
        _ if config.add_source_eos => &[Family::M2m100],
        _ => &[Family::M2m100, Family::Nllb, Family::Mbart],
    };
    let (source, target) = match is_mbart25(config, vocabulary) {
        true => (SourcePlace::AfterEnd, TargetPlace::Start),
        false => (SourcePlace::Begin, TargetPlace::First),
    };
    families.iter().find_map(|family| {
        let list = tokens(*family, vocabulary)?;
        Some(Languages { list, source, target, default_target: None })
    })
}

/// Whether a model starts its decoder with the target language.
pub(super) fn is_mbart25(config: &Config, vocabulary: &Tokenizer) -> bool {
    config.decoder_start_token.is_none() && tokens(Family::Mbart, vocabulary).is_some()
}

/// The language tokens of a family. One such word is a word.
fn tokens(family: Family, vocabulary: &Tokenizer) -> Option<Vec<LanguageToken>> {
    Some(family.tokens(vocabulary)).filter(|list| list.len() > 1)
}
