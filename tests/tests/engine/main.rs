//! The whole engine beside the originals: Marian, CTranslate2, `transformers`.

mod batches;
mod builtin;
mod docs;
mod enpt;
mod fixtures;
mod formats_agree;
mod golden;
mod golden_scores;
mod levels;
mod marianmt;
mod multilingual;
mod odd_text;
mod recurrent_amun;
mod recurrent_golden;
mod recurrent_plain;
mod recurrent_rnnfc;
mod word_lists;
mod zhen;
