//! The choice of mask styles that a model returns, by a trial on a few sentences when the first
//! mask is needed.

use std::sync::{Arc, OnceLock};

use peregrine_decode::{Done, Job, WordEdges};
use peregrine_text::carry::{MaskStyle, Speller};

use crate::Translator;

/// Sentences with a placeholder for a mask, a list for each language. The trial uses the list that
/// the model's vocabulary encodes in the fewest tokens.
const CARRIERS: [[&str; 6]; 6] = [
    [
        "Please open {} and read the first page.",
        "The name of the file is {}.",
        "Send the letter to {} before Friday.",
        "We met {} at the station yesterday.",
        "{} is not available at the moment.",
        "Have you seen {} and the new house?",
    ],
    [
        "Abra {} e leia a primeira página.",
        "O nome do arquivo é {}.",
        "Envie a carta para {} antes de sexta-feira.",
        "Encontramos {} na estação ontem.",
        "{} não está disponível no momento.",
        "Você viu {} e a casa nova?",
    ],
    [
        "Abra {} y lea la primera página.",
        "El nombre del archivo es {}.",
        "Envíe la carta a {} antes del viernes.",
        "Ayer vimos {} en la estación.",
        "{} no está disponible en este momento.",
        "¿Ha visto {} y la casa nueva?",
    ],
    [
        "Ouvrez {} et lisez la première page.",
        "Le nom du fichier est {}.",
        "Envoyez la lettre à {} avant vendredi.",
        "Nous avons vu {} à la gare hier.",
        "{} n'est pas disponible pour le moment.",
        "Avez-vous vu {} et la nouvelle maison ?",
    ],
    [
        "Bitte öffnen Sie {} und lesen Sie die erste Seite.",
        "Der Name der Datei ist {}.",
        "Schicken Sie den Brief vor Freitag an {}.",
        "Wir haben gestern {} am Bahnhof getroffen.",
        "{} ist im Moment nicht verfügbar.",
        "Haben Sie {} und das neue Haus gesehen?",
    ],
    [
        "请打开 {} 并阅读第一页。",
        "文件的名字是 {} 。",
        "请在星期五之前把信寄给 {} 。",
        "我们昨天在车站看到了 {} 。",
        "{} 目前不可用。",
        "你看到 {} 和新房子了吗？",
    ],
];

/// What a model can spell, computed on first use.
#[derive(Debug, Default)]
pub(crate) struct Spelling {
    speller: OnceLock<Speller>,
    /// Mask styles in the order of use.
    styles: OnceLock<Vec<MaskStyle>>,
    /// The tokens at which words begin and end.
    edges: OnceLock<Arc<WordEdges>>,
}

impl Translator {
    /// The speller of the vocabularies.
    pub(crate) fn speller(&self) -> &Speller {
        let model = self.model();
        self.spelling().speller.get_or_init(|| Speller::new(&model.source, &model.target))
    }

    /// The tokens of the target vocabulary at which words begin and end.
    pub(crate) fn word_edges(&self) -> Arc<WordEdges> {
        let target = &self.model().target;
        let edges = || {
            let ids = || 0..target.size() as u32;
            Arc::new(WordEdges {
                continues: ids().map(|id| target.continues_word(id)).collect(),
                unfinished: ids().map(|id| target.is_unfinished(id)).collect(),
            })
        };
        Arc::clone(self.spelling().edges.get_or_init(edges))
    }

    /// The mask style of a first or second attempt, of those that the model returns.
    pub(super) fn mask_style(&self, attempt: usize) -> Option<MaskStyle> {
        let styles = self.speller().styles();
        let order = match styles.len() {
            0 | 1 => styles,
            // The trial would depend on the languages of the request that comes first.
            _ if self.model().languages.is_some() => styles,
            _ => self.spelling().styles.get_or_init(|| self.try_styles(styles)),
        };
        order.get(attempt).copied()
    }

    /// The styles in the order of use: the first that the model always returns, then the others.
    fn try_styles(&self, styles: &[MaskStyle]) -> Vec<MaskStyle> {
        let mut order = styles.to_vec();
        if let Some(best) = styles.iter().position(|&style| self.always_returns(style)) {
            order[..=best].rotate_right(1);
        }
        order
    }

    /// Whether the model returns a mask in every sentence of the trial.
    fn always_returns(&self, style: MaskStyle) -> bool {
        let model = self.model();
        let mask = style.mask(1);
        let tokens = |text: &str| model.source.encode(text).ids.len() as f32 / text.len() as f32;
        let length = |list: &[&str; 6]| list.iter().map(|text| tokens(text)).sum::<f32>();
        let carriers = CARRIERS.iter().min_by(|a, b| length(a).total_cmp(&length(b)));
        let options = self.options();
        let Ok(common) = self.common(&options, None) else { return false };
        let allowed = model.target.encode(&mask).ids;
        let job = |carrier: &&str| {
            let ids = model.source.encode(&carrier.replace("{}", &mask)).ids;
            let job = common.framing.job(&ids, &common.settings, &common.call);
            let words = self.words(&job.source, &allowed, &options);
            Job { words, ..job }
        };
        let jobs = carriers.into_iter().flatten().map(job).collect();
        let returned = |done: &Done| {
            let best = done.hypotheses.first().map(|best| model.target.decode(&best.tokens));
            best.is_some_and(|text| text.matches(&mask).count() == 1)
        };
        let done = self.run(jobs, &self.workers(), None);
        done.is_ok_and(|done| done.iter().all(returned))
    }
}
