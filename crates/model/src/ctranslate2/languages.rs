//! The languages of CTranslate2 models. The library leaves language tokens and end symbols to its
//! caller, so only the vocabulary shows what a model needs.

use peregrine_text::Tokenizer;

use crate::ctranslate2::config::Config;
use crate::languages::Family;
use crate::{Languages, SourcePlace, Start, TargetPlace};

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
    families.iter().find_map(|family| {
        let list = family.tokens(vocabulary);
        // One such word is a word.
        (list.len() > 1).then_some(Languages {
            list,
            source: SourcePlace::Begin,
            target: TargetPlace::First,
            default_target: None,
        })
    })
}
