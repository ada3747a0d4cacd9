//! How the words of multilingual models are numbered, for checkpoints whose files do not list them.
//!
//! Models trained with fairseq count in their own way: four control words come first, and codes of
//! languages behind all pieces, in an order that belongs to the family. Hugging Face's classes know it by heart, so a
//! directory may come without it.
//!
//! | family | words |
//! |---|---|
//! | NLLB-200 | [`fairseq_words`] with [`NLLB`] and `<mask>` |
//! | mBART-50, mBART-25 | [`fairseq_words`] with [`MBART_50`] or [`MBART_25`] and `<mask>` |
//! | M2M-100, its WMT21 models | [`m2m100_words`] with [`M2M_100`] or [`WMT21`] |

use crate::{Error, SentencePiece, Vocabulary};

/// fairseq's own words, before all pieces.
const FIRST: [&str; 4] = ["<s>", "<pad>", "</s>", "<unk>"];

/// What takes their place in a SentencePiece model.
const FIRST_PIECES: [&str; 3] = ["<unk>", "<s>", "</s>"];

/// M2M-100's dictionary is filled up with words that have no text.
const MADE_UP: usize = 8;

/// All words by id of a model that fairseq trained with `model`'s pieces: `<s> <pad> </s> <unk>`, every piece
/// one above its own number, then `extra`: codes of languages and `<mask>`.
///
/// `name` is that of the SentencePiece model, which must begin with `<unk> <s> </s>`.
pub fn fairseq_words<'a>(
    name: &str,
    model: &'a SentencePiece,
    extra: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<String>, Error> {
    let pieces = || model.pieces();
    if !pieces().take(FIRST_PIECES.len()).eq(FIRST_PIECES) {
        let found: Vec<&str> = pieces().take(FIRST_PIECES.len()).collect();
        let problem = format!("they begin with {found:?}, expected {FIRST_PIECES:?}");
        return Err(Error::new(name, "pieces", problem));
    }
    let words = FIRST.into_iter().chain(pieces().skip(FIRST_PIECES.len())).chain(extra);
    Ok(words.map(str::to_owned).collect())
}

/// All words by id of M2M-100: those of its `vocab.json`, then `codes` written `__en__`, then eight words that
/// fairseq made up.
///
/// ```
/// use peregrine_text::{Vocabulary, multilingual};
///
/// let vocabulary = Vocabulary::from_json("vocab.json", br#"{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, ".": 4}"#)?;
/// let words = multilingual::m2m100_words(&vocabulary, &multilingual::M2M_100);
/// assert_eq!(words[4..6], [".", "__af__"]);
/// assert_eq!(words.len(), vocabulary.len() + 108);
/// # Ok::<(), peregrine_text::Error>(())
/// ```
pub fn m2m100_words(vocabulary: &Vocabulary, codes: &[&str]) -> Vec<String> {
    let pieces = vocabulary.tokens().map(str::to_owned);
    let languages = codes.iter().map(|code| format!("__{code}__"));
    let made_up = (0..MADE_UP).map(|number| format!("madeupword{number}"));
    pieces.chain(languages).chain(made_up).collect()
}

/// The codes of NLLB-200.
#[rustfmt::skip]
pub const NLLB: [&str; 202] = [
    "ace_Arab", "ace_Latn", "acm_Arab", "acq_Arab", "aeb_Arab", "afr_Latn", "ajp_Arab", "aka_Latn",
    "amh_Ethi", "apc_Arab", "arb_Arab", "ars_Arab", "ary_Arab", "arz_Arab", "asm_Beng", "ast_Latn",
    "awa_Deva", "ayr_Latn", "azb_Arab", "azj_Latn", "bak_Cyrl", "bam_Latn", "ban_Latn", "bel_Cyrl",
    "bem_Latn", "ben_Beng", "bho_Deva", "bjn_Arab", "bjn_Latn", "bod_Tibt", "bos_Latn", "bug_Latn",
    "bul_Cyrl", "cat_Latn", "ceb_Latn", "ces_Latn", "cjk_Latn", "ckb_Arab", "crh_Latn", "cym_Latn",
    "dan_Latn", "deu_Latn", "dik_Latn", "dyu_Latn", "dzo_Tibt", "ell_Grek", "eng_Latn", "epo_Latn",
    "est_Latn", "eus_Latn", "ewe_Latn", "fao_Latn", "pes_Arab", "fij_Latn", "fin_Latn", "fon_Latn",
    "fra_Latn", "fur_Latn", "fuv_Latn", "gla_Latn", "gle_Latn", "glg_Latn", "grn_Latn", "guj_Gujr",
    "hat_Latn", "hau_Latn", "heb_Hebr", "hin_Deva", "hne_Deva", "hrv_Latn", "hun_Latn", "hye_Armn",
    "ibo_Latn", "ilo_Latn", "ind_Latn", "isl_Latn", "ita_Latn", "jav_Latn", "jpn_Jpan", "kab_Latn",
    "kac_Latn", "kam_Latn", "kan_Knda", "kas_Arab", "kas_Deva", "kat_Geor", "knc_Arab", "knc_Latn",
    "kaz_Cyrl", "kbp_Latn", "kea_Latn", "khm_Khmr", "kik_Latn", "kin_Latn", "kir_Cyrl", "kmb_Latn",
    "kon_Latn", "kor_Hang", "kmr_Latn", "lao_Laoo", "lvs_Latn", "lij_Latn", "lim_Latn", "lin_Latn",
    "lit_Latn", "lmo_Latn", "ltg_Latn", "ltz_Latn", "lua_Latn", "lug_Latn", "luo_Latn", "lus_Latn",
    "mag_Deva", "mai_Deva", "mal_Mlym", "mar_Deva", "min_Latn", "mkd_Cyrl", "plt_Latn", "mlt_Latn",
    "mni_Beng", "khk_Cyrl", "mos_Latn", "mri_Latn", "zsm_Latn", "mya_Mymr", "nld_Latn", "nno_Latn",
    "nob_Latn", "npi_Deva", "nso_Latn", "nus_Latn", "nya_Latn", "oci_Latn", "gaz_Latn", "ory_Orya",
    "pag_Latn", "pan_Guru", "pap_Latn", "pol_Latn", "por_Latn", "prs_Arab", "pbt_Arab", "quy_Latn",
    "ron_Latn", "run_Latn", "rus_Cyrl", "sag_Latn", "san_Deva", "sat_Beng", "scn_Latn", "shn_Mymr",
    "sin_Sinh", "slk_Latn", "slv_Latn", "smo_Latn", "sna_Latn", "snd_Arab", "som_Latn", "sot_Latn",
    "spa_Latn", "als_Latn", "srd_Latn", "srp_Cyrl", "ssw_Latn", "sun_Latn", "swe_Latn", "swh_Latn",
    "szl_Latn", "tam_Taml", "tat_Cyrl", "tel_Telu", "tgk_Cyrl", "tgl_Latn", "tha_Thai", "tir_Ethi",
    "taq_Latn", "taq_Tfng", "tpi_Latn", "tsn_Latn", "tso_Latn", "tuk_Latn", "tum_Latn", "tur_Latn",
    "twi_Latn", "tzm_Tfng", "uig_Arab", "ukr_Cyrl", "umb_Latn", "urd_Arab", "uzn_Latn", "vec_Latn",
    "vie_Latn", "war_Latn", "wol_Latn", "xho_Latn", "ydd_Hebr", "yor_Latn", "yue_Hant", "zho_Hans",
    "zho_Hant", "zul_Latn",
];

/// The codes of mBART-50. Its first 25 are those of mBART-25.
#[rustfmt::skip]
pub const MBART_50: [&str; 52] = [
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN",
    "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO",
    "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN", "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL",
    "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK", "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF",
    "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA",
    "gl_ES", "sl_SI",
];

/// The codes of mBART-25.
pub const MBART_25: &[&str] = MBART_50.first_chunk::<25>().unwrap();

/// The codes of M2M-100.
#[rustfmt::skip]
pub const M2M_100: [&str; 100] = [
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy",
    "da", "de", "el", "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha",
    "he", "hi", "hr", "ht", "hu", "hy", "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km",
    "kn", "ko", "lb", "lg", "ln", "lo", "lt", "lv", "mg", "mk", "ml", "mn", "mr", "ms", "my", "ne",
    "nl", "no", "ns", "oc", "or", "pa", "pl", "ps", "pt", "ro", "ru", "sd", "si", "sk", "sl", "so",
    "sq", "sr", "ss", "su", "sv", "sw", "ta", "th", "tl", "tn", "tr", "uk", "ur", "uz", "vi", "wo",
    "xh", "yi", "yo", "zh", "zu",
];

/// The codes of M2M-100's WMT21 models (`"language_codes": "wmt21"` in `tokenizer_config.json`).
pub const WMT21: [&str; 8] = ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"];
