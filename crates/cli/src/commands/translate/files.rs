//! Files given as arguments: one to standard output, or any number, and folders of them, to other names or in their place.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use peregrine::document::Format;
use peregrine::model::write_whole_from;
use peregrine_args::console::remark;
use peregrine_args::lines::Lines;

use super::{Args, Models};
use crate::io::clash::{self, Named};
use crate::io::output::Output;
use crate::io::resume::Start;
use crate::io::signals::Interrupted;

/// A file to translate, and where the translation goes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    input: PathBuf,
    output: PathBuf,
}

/// A file that is written under another name until it is whole. It is removed if that never comes.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Args {
    /// The files and folders that are to be translated into files. Arguments are files if all of them exist and it is said where
    /// the translations go.
    pub(super) fn files(&self) -> Option<Vec<PathBuf>> {
        let named: Vec<PathBuf> = match &self.io.input {
            Some(input) if self.io.in_place.is_some() => vec![input.clone()],
            _ => self.text.iter().map(PathBuf::from).collect(),
        };
        let exist = !named.is_empty() && named.iter().all(|path| path.exists());
        (self.writes_files() && exist).then_some(named)
    }

    /// Refuses arguments that are names and would be translated as text.
    pub(super) fn refuse_lost_names(&self) -> anyhow::Result<()> {
        let names: Vec<&String> = self.text.iter().filter(|text| is_name(text)).collect();
        if let Some(name) = names.iter().find(|name| !Path::new(name).exists()) {
            let is_pattern = name.contains(['*', '?']);
            let hint = if is_pattern { "; a pattern must not be in quotes" } else { "" };
            bail!("{name}: no such file{hint}");
        }
        if names.len() > 1 && !self.writes_files() {
            bail!("several files: say with -o FOLDER or --in-place where their translations go");
        }
        Ok(())
    }

    /// The file to read from: `-i`, or a single argument that is the name of a document.
    pub(super) fn input_file(&self) -> Option<&Path> {
        let argument = || match &self.text[..] {
            [name] if Format::from_name(name).is_some() => {
                Some(Path::new(name)).filter(|path| path.is_file())
            }
            _ => None,
        };
        self.io.input.as_deref().or_else(argument)
    }

    /// Translates files one after the other. One that cannot be read does not stop the others.
    pub(super) fn work_on_files(
        &self,
        named: &[PathBuf],
        models: &Models<'_>,
    ) -> anyhow::Result<()> {
        let pairs = self.pairs(named)?;
        if self.io.in_place.is_none() {
            let written: Vec<_> =
                pairs.iter().map(|pair| Named::written("--output", &pair.output)).collect();
            let read: Vec<_> =
                pairs.iter().map(|pair| Named::read("the file", &pair.input)).collect();
            clash::refuse(&written, &read)?;
        }
        let mut failed = 0;
        for (number, Pair { input, output }) in pairs.iter().enumerate() {
            self.say(format_args!("[{}/{}] {}", number + 1, pairs.len(), input.display()));
            let outcome = self.work_on_file(input, output, models);
            let Err(error) = outcome else { continue };
            if error.is::<Interrupted>() {
                remark!("stopped: {number} of {} files are translated", pairs.len());
                return Err(error);
            }
            if pairs.len() == 1 {
                return Err(error);
            }
            remark!("error: {error:#}");
            failed += 1;
        }
        match failed {
            0 => Ok(()),
            _ => bail!("{failed} of {} files are not translated", pairs.len()),
        }
    }

    fn work_on_file(&self, input: &Path, output: &Path, models: &Models<'_>) -> anyhow::Result<()> {
        if let Some(folder) = output.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        match self.format_of(input) {
            Some(format) => {
                // The original must be kept before it is replaced.
                write_whole_from(output, |to| {
                    self.translate_document(input, format, models, to)?;
                    self.back_up(input)
                })
            }
            None => {
                let unfinished = Unfinished(added(output, ".unfinished"));
                let start = Start {
                    input: Lines::open(Some(input))?,
                    output: Output::create(Some(&unfinished.0))?,
                    lines: 0,
                };
                let (summary, _) = self.work(models, start, None)?;
                if summary.stopped {
                    return Err(Interrupted.into());
                }
                self.back_up(input)?;
                write_whole_from(output, |to| {
                    io::copy(&mut File::open(&unfinished.0)?, to)?;
                    anyhow::Ok(())
                })
            }
        }
    }

    /// Keeps the original of a file that is about to be replaced.
    fn back_up(&self, file: &Path) -> anyhow::Result<()> {
        let Some(suffix) = self.io.in_place.as_deref().filter(|suffix| *suffix != "none") else {
            return Ok(());
        };
        let backup = added(file, suffix);
        if backup.exists() {
            bail!(
                "{}: the backup {} is there already; move it, or choose another suffix",
                file.display(),
                backup.display()
            );
        }
        fs::copy(file, &backup).with_context(|| backup.display().to_string())?;
        Ok(())
    }

    /// What is translated to where.
    fn pairs(&self, named: &[PathBuf]) -> anyhow::Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        let output = self.io.output.as_deref();
        let into_folder = named.len() > 1 || output.is_some_and(is_folder);
        for path in named {
            match path.is_dir() {
                true => pairs.extend(self.pairs_of_folder(path)?),
                false => pairs.push(Pair {
                    input: path.clone(),
                    output: match output {
                        None => path.clone(),
                        Some(output) if into_folder => {
                            output.join(path.file_name().unwrap_or_default())
                        }
                        Some(output) => output.to_owned(),
                    },
                }),
            }
        }
        let mut outputs = BTreeSet::new();
        for pair in &pairs {
            if !outputs.insert(&pair.output) {
                bail!("{}: two files would be written there", pair.output.display());
            }
        }
        Ok(pairs)
    }

    /// All documents in a folder and below, in order.
    fn pairs_of_folder(&self, folder: &Path) -> anyhow::Result<Vec<Pair>> {
        let output = self.io.output.as_deref();
        if output.is_some_and(|output| output.is_file()) {
            bail!("--output: a folder is translated into a folder, and this is a file");
        }
        let written = output.and_then(|output| fs::canonicalize(output).ok());
        let (mut pairs, mut others) = (Vec::new(), 0);
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            let entries = fs::read_dir(&next).with_context(|| next.display().to_string())?;
            for entry in entries {
                let entry = entry.with_context(|| next.display().to_string())?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                if entry.file_name().to_string_lossy().starts_with('.') {
                    continue;
                }
                // Links could lead in a circle. What was translated before is not translated again.
                if kind.is_dir() {
                    if written.is_none() || fs::canonicalize(&path).ok() != written {
                        folders.push(path);
                    }
                } else if kind.is_file() && is_document(&path) {
                    let place = path.strip_prefix(folder).unwrap_or(&path);
                    let output = output.map_or(path.clone(), |output| output.join(place));
                    pairs.push(Pair { input: path, output });
                } else {
                    others += 1;
                }
            }
        }
        pairs.sort();
        if pairs.is_empty() {
            bail!("{}: there is no document in it", folder.display());
        }
        if others > 0 {
            self.say(format_args!(
                "note: {}: {others} files of other kinds are left out",
                folder.display()
            ));
        }
        Ok(pairs)
    }
}

/// Whether a file's name is that of a document that can be read.
fn is_document(path: &Path) -> bool {
    let format = path.file_name().and_then(|name| Format::from_name(&name.to_string_lossy()));
    format.is_some_and(|format| Format::readable().any(|readable| readable == format))
}

/// Whether an argument is the name of a file, or a pattern of names, rather than a text.
fn is_name(argument: &str) -> bool {
    let folder = Path::new(argument).parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_pattern = argument.contains('*') && folder.is_some_and(Path::is_dir);
    !argument.contains(char::is_whitespace) && (is_pattern || Format::from_name(argument).is_some())
}

/// Whether a name is that of a folder, be it there or not.
fn is_folder(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().to_string_lossy().ends_with(['/', std::path::MAIN_SEPARATOR])
}

/// A path with something added to its last name.
fn added(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
