//! Translation of texts for all dialects: limits, plain text or markup, and the deadline.

use std::sync::Arc;
use std::time::Instant;

use crate::access::Client;
use crate::app::App;
use crate::dispatch::{Dispatch, Translated, TranslationJob, before};
use crate::documents::read_texts;
use crate::problem::{Kind, Outcome, Problem};

impl App {
    /// Translates texts and returns the translations in the same order.
    pub(crate) async fn translate(
        self: &Arc<Self>,
        client: Client,
        job: TranslationJob,
    ) -> Outcome<Vec<Translated>> {
        let deadline = Instant::now() + job.timeout;
        let work = async {
            self.check_size(&job)?;
            if let Some((format, options)) = &job.markup {
                let documents = read_texts(&job.texts, *format, options)?;
                return self.translate_markup(client, job, &documents).await;
            }
            let dispatches = self.dispatch(client, &job).await?;
            let running = self.launch(&job, &dispatches)?;
            let mut translated = Vec::with_capacity(dispatches.len());
            for (dispatch, shared) in dispatches.into_iter().zip(running) {
                let model = dispatch.model_name();
                let Dispatch { from, to, detected, .. } = dispatch;
                translated.push(Translated {
                    translation: shared.await?,
                    from,
                    to,
                    model,
                    detected,
                });
            }
            Ok(translated)
        };
        before(deadline, work).await
    }

    /// Checks a request against the limits.
    pub(crate) fn check_size(&self, job: &TranslationJob) -> Outcome<()> {
        let config = &self.config;
        let count = job.texts.len();
        if count > config.max_texts {
            let message = format!(
                "Invalid request: request ({count}) exceeds text limit ({})",
                config.max_texts
            );
            return Err(Problem::new(Kind::TooLarge, message));
        }
        let longest = job.texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        if longest > config.max_characters {
            let message = format!(
                "Invalid request: request ({longest}) exceeds text limit ({})",
                config.max_characters
            );
            return Err(Problem::new(Kind::TooLarge, message));
        }
        Ok(())
    }
}
