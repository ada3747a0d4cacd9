//! The languages of a multilingual model.

use peregrine::{Options, Translator};

/// The languages of texts and of their translations.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub struct PairArgs {
    /// The language of the texts, for multilingual models
    #[arg(long, value_name = "LANGUAGE")]
    from: Option<String>,

    /// The language of their translations, for multilingual models
    #[arg(long, value_name = "LANGUAGE")]
    to: Option<String>,
}

impl PairArgs {
    /// The translator between these languages.
    pub fn apply(&self, translator: Translator) -> anyhow::Result<Translator> {
        Ok(translator.between(self.from.as_deref(), self.to.as_deref())?)
    }

    /// Options for texts between these languages.
    pub fn set(&self, options: &mut Options) {
        options.from = self.from.as_deref().map(Into::into);
        options.to = self.to.as_deref().map(Into::into);
    }
}
