//! The probability of a given translation.

use peregrine_decode::Job;

use crate::{Options, Translator};

/// A given translation's score.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scored {
    /// Natural logarithm of its probability, end symbol included.
    pub score: f32,
    /// The same for each token, the end symbol last.
    pub token_scores: Vec<f32>,
    /// For each token and the end symbol its attention to the source (if asked for).
    pub alignment: Vec<Vec<f32>>,
    /// Whether a side was too long for the model and was cut.
    pub cut: bool,
}

impl Translator {
    /// Scores pairs of source and translation.
    ///
    /// ```
    /// # if cfg!(not(feature = "builtin")) { return Ok(()); }
    /// let translator = peregrine::Translator::builtin()?;
    /// let pairs = [("Thank you.", "Obrigado."), ("Thank you.", "Cachorro neve.")];
    /// let scores = translator.score(&pairs, &translator.options());
    /// assert!(scores[0].score > scores[1].score);
    /// # Ok::<(), peregrine::Error>(())
    /// ```
    pub fn score(&self, pairs: &[(&str, &str)], options: &Options) -> Vec<Scored> {
        let frame = self.model().members[0].architecture.source_frame();
        let limit = self.max_source(options) - frame.len();
        let longest = options.search.max_length.unwrap_or(usize::MAX).max(2) - 1;
        let mut cut = Vec::with_capacity(pairs.len());
        let jobs: Vec<Job> = pairs
            .iter()
            .map(|(source, target)| {
                let mut ids = self.model().source.encode(source).ids;
                let mut prefix = self.model().target.encode(target).ids;
                cut.push(ids.len() > limit || prefix.len() > longest);
                ids.truncate(limit);
                prefix.truncate(longest);
                prefix.push(self.model().target.eos());
                Job { source: frame.frame(&ids), prefix, ..Job::default() }
            })
            .collect();
        let mut settings = self.settings(options);
        settings.scores = true;
        settings.n_best = 1;
        settings.search.beam = 1;
        settings.search.score_prefix = true;
        // A least length forbids the end symbol at first, which would change what the others share.
        settings.search.min_length = 0;
        settings.guard = None;
        let results = self.run(jobs, &settings, options, None);
        let scored = results.into_iter().zip(cut).map(|(done, cut)| {
            let best = done.hypotheses.into_iter().next().unwrap_or_default();
            Scored {
                score: best.path_score,
                token_scores: best.token_scores,
                alignment: best.alignment,
                cut,
            }
        });
        scored.collect()
    }
}
