//! The languages to translate between: which of several models does it, and what a multilingual model is told.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use peregrine::Translator;
use peregrine::registry::{Pair, Registry, RegistryOptions, find_models};
use peregrine::text::Language;
use peregrine_args::lines::is_standard;

/// The languages of the text and of its translation.
#[derive(clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct LanguageArgs {
    /// A folder of models, of which the one from --from to --to is used
    ///
    /// Where there is none, two in a row are, through a third language.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "config", "then"], requires = "to")]
    models: Option<PathBuf>,

    /// The language of the text, by code or English name [default: auto]
    ///
    /// For multilingual models and --models. `auto` looks at its first 1,000 characters.
    #[arg(long, value_name = "LANGUAGE")]
    from: Option<String>,

    /// The language to translate to, by code or English name
    ///
    /// For multilingual models and --models. `inspect` lists the languages of a model.
    #[arg(long, value_name = "LANGUAGE")]
    to: Option<String>,
}

/// Bytes of a text by which its language is told.
const MOST_BYTES: u64 = 1 << 13;

/// One model, or two in a row.
pub(crate) struct Chosen {
    pub(crate) paths: Vec<PathBuf>,
    /// What to tell the user.
    pub(crate) note: String,
}

impl LanguageArgs {
    /// The models to use; none if languages do not choose them. `sample` gives the beginning of the text.
    pub(crate) fn choose(
        &self,
        sample: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<Option<Chosen>> {
        let (Some(folder), Some(to)) = (&self.models, &self.to) else { return Ok(None) };
        let (entries, _) = find_models(folder).with_context(|| folder.display().to_string())?;
        let registry = Registry::new(entries, RegistryOptions::default());
        let routes = registry.routes();
        let to = code("--to", to)?;
        let sources: Vec<&str> =
            routes.keys().filter(|pair| pair.to == to).map(|p| p.from.as_str()).collect();
        if sources.is_empty() {
            let mut targets: Vec<&str> = routes.keys().map(|pair| pair.to.as_str()).collect();
            targets.dedup();
            bail!("--to {to}: {} has models to {}", folder.display(), list(&targets));
        }
        let (from, seen) = match self.from.as_deref().filter(|from| *from != "auto") {
            Some(from) => (code("--from", from)?, String::new()),
            None => detected(&sample()?, &sources)?,
        };
        let Some(route) = routes.get(&Pair::new(from, to)) else {
            bail!(
                "--from {from} --to {to}: {} has models to {to} from {}",
                folder.display(),
                list(&sources)
            );
        };
        let states = registry.models();
        let path = |name: &String| {
            let state = states.iter().find(|state| state.entry.name == *name);
            state.and_then(|state| state.entry.path.clone())
        };
        let note = format!("{from} to {to}{seen}: {}", route.models.join(", then "));
        Ok(Some(Chosen { paths: route.models.iter().filter_map(path).collect(), note }))
    }

    /// The translator between the languages, and what to tell the user. A model of one pair must be of that pair.
    pub(crate) fn apply(
        &self,
        translator: Translator,
        sample: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<(Translator, Option<String>)> {
        let from = self.from.as_deref().filter(|from| *from != "auto");
        let Some(languages) = &translator.model().languages else {
            self.check_pair(translator.languages())?;
            return Ok((translator, None));
        };
        let (mut from, mut note) = (from.map(str::to_owned), None);
        if from.is_none() && self.to.is_some() && languages.needs_source() {
            let known = languages.list.iter().filter_map(|l| Language::find(&l.code));
            let codes: Vec<&str> = known.map(|language| language.code).collect();
            let (found, seen) = detected(&sample()?, &codes)?;
            note = Some(format!("from {found}{seen}"));
            from = Some(found.to_owned());
        }
        Ok((translator.between(from.as_deref(), self.to.as_deref())?, note))
    }

    /// Refuses languages that are not those of a model, if its languages are known.
    fn check_pair(&self, known: Option<&Pair>) -> anyhow::Result<()> {
        let Some(pair) = known.filter(|_| self.models.is_none()) else { return Ok(()) };
        let sides = [("--from", &self.from, &pair.from), ("--to", &self.to, &pair.to)];
        for (option, given, own) in sides {
            let Some(name) = given.as_deref().filter(|name| *name != "auto") else { continue };
            let given = code(option, name)?;
            let akin = |a: &str, b: &str| match (Language::find(a), Language::find(b)) {
                (Some(a), Some(b)) => a.is_form_of(b),
                _ => a == b,
            };
            if !akin(given, own) {
                bail!("{option} {name}: the model translates from {} to {}", pair.from, pair.to);
            }
        }
        Ok(())
    }
}

/// The code of a language.
fn code(option: &str, name: &str) -> anyhow::Result<&'static str> {
    if let Some(language) = Language::find(name) {
        return Ok(language.code);
    }
    let meant: Vec<&str> =
        Language::near_misses(name).iter().map(|language| language.code).collect();
    match meant.is_empty() {
        true => bail!("{option}: no language has the name {name:?}"),
        false => {
            bail!("{option}: no language has the name {name:?}; is it {}?", meant.join(" or "))
        }
    }
}

/// The language of a text among those that can be translated, and how sure that is.
#[cfg(feature = "detect")]
fn detected(text: &str, sources: &[&str]) -> anyhow::Result<(&'static str, String)> {
    let found = peregrine::text::detect(text, sources);
    let Some(language) = found.language.and_then(Language::find) else {
        bail!(
            "--from auto: the text has no letters that tell a language; there are models from {}",
            list(sources)
        );
    };
    let sure = if found.reliable { "" } else { ", in doubt" };
    Ok((language.code, format!(" (detected{sure})")))
}

/// Without detection there is no choice unless it is the only one.
#[cfg(not(feature = "detect"))]
fn detected(_: &str, sources: &[&str]) -> anyhow::Result<(&'static str, String)> {
    match sources {
        [only] => Ok((code("--from", only)?, String::new())),
        _ => bail!(
            "--from: this build cannot detect languages; there are models from {}",
            list(sources)
        ),
    }
}

fn list(codes: &[&str]) -> String {
    if codes.is_empty() { "no language".to_owned() } else { codes.join(", ") }
}

/// The beginning of a file, or of standard input, of which nothing is taken.
pub(crate) fn beginning(path: Option<&Path>) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    match path.filter(|path| !is_standard(path)) {
        Some(path) => {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            file.take(MOST_BYTES).read_to_end(&mut bytes)?;
        }
        None => bytes.extend_from_slice(io::stdin().lock().fill_buf()?),
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
