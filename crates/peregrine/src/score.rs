//! The probability of a given translation.

use std::sync::Arc;

use peregrine_decode::{Call, Done, Job, Settings};

use peregrine_nn::MOST_POSITIONS;

use crate::framing::Framing;
use crate::{Error, Options, Translator, Workers};

/// A given translation's score.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scored {
    /// The natural logarithm of its probability, end symbol included.
    pub score: f32,
    /// The log-probability of each token, the end symbol's last.
    pub token_scores: Vec<f32>,
    /// The attention of each token and the end symbol to the source; empty if alignments are off.
    pub alignment: Vec<Vec<f32>>,
    /// Whether a side was too long for the model and was cut.
    pub cut: bool,
}

impl Scored {
    pub(crate) fn new(done: Done, cut: bool) -> Scored {
        let best = done.hypotheses.into_iter().next().unwrap_or_default();
        Scored {
            score: best.path_score,
            token_scores: best.token_scores,
            alignment: best.alignment,
            cut,
        }
    }
}

impl Translator {
    /// Scores pairs of source and translation.
    ///
    /// ```
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = peregrine::Translator::builtin()?;
    /// let pairs = [("Thank you.", "Obrigado."), ("Thank you.", "Cachorro neve.")];
    /// let scores = translator.score(&pairs, &translator.options())?;
    /// assert!(scores[0].score > scores[1].score);
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn score(&self, pairs: &[(&str, &str)], options: &Options) -> Result<Vec<Scored>, Error> {
        self.score_with(pairs, options, &self.workers())
    }

    /// Scores pairs of source and translation on as many threads as `workers` says.
    pub fn score_with(
        &self,
        pairs: &[(&str, &str)],
        options: &Options,
        workers: &Workers,
    ) -> Result<Vec<Scored>, Error> {
        let settings = Arc::new(self.scoring(options));
        let call = Arc::default();
        let framing = self.framing(None, options)?;
        let job = |&pair: &(&str, &str)| self.score_job(pair, framing, options, &settings, &call);
        let scoring = pairs.iter().map(job);
        let (jobs, cut): (Vec<Job>, Vec<bool>) = scoring.unzip();
        let results = self.run(jobs, workers, None)?.into_iter().zip(cut);
        Ok(results.map(|(done, cut)| Scored::new(done, cut)).collect())
    }

    /// The job of a pair, and whether a side was too long and was cut.
    pub(crate) fn score_job(
        &self,
        (source, target): (&str, &str),
        framing: Framing,
        options: &Options,
        settings: &Arc<Settings>,
        call: &Arc<Call>,
    ) -> (Job, bool) {
        let model = self.model();
        let limit = self.max_source(options) - framing.frame.len();
        // The length limit of a search is not one of the network.
        let limits = model.members.iter().filter_map(|m| m.architecture.position_limit());
        let longest = limits.fold(MOST_POSITIONS, usize::min).max(3) - 2;
        let mut ids = self.source_tokens(source, options).ids;
        let mut prefix = self.target_tokens(target, options).ids;
        let cut = ids.len() > limit || prefix.len() > longest;
        ids.truncate(limit);
        prefix.truncate(longest);
        prefix.push(model.target.eos());
        (Job { prefix, ..framing.job(&ids, settings, call) }, cut)
    }

    /// A search that goes through a given translation.
    pub(crate) fn scoring(&self, options: &Options) -> Settings {
        let mut settings = self.settings(options);
        settings.scores = true;
        settings.n_best = 1;
        settings.search.beam = 1;
        settings.search.score_prefix = true;
        // A least length bans the end symbol at first, which would change the other words' probabilities.
        settings.search.min_length = 0;
        settings.guard = None;
        settings
    }
}
