//! The options of the server: one table drives flags, the configuration file, environment variables and the documentation.
//!
//! Flags take precedence over variables, variables over the file, and the file over defaults.

mod values;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peregrine::{Compute, Device};

pub use values::{LogFormat, NamedModel};
use values::{log_format, named_model, number, seconds, size, switch};

/// The prefix of environment variables: the option `url-prefix` is `PEREGRINE_URL_PREFIX`.
const PREFIX: &str = "PEREGRINE_";

/// An option of the server.
pub struct ServeOption {
    /// The name of the flag and of the key in the configuration file.
    pub name: &'static str,
    /// The placeholder of the value in help texts; empty for a switch.
    pub value: &'static str,
    /// The default, in words.
    pub default: &'static str,
    /// The description, in a sentence.
    pub help: &'static str,
    /// Whether the option may be given several times.
    pub many: bool,
    set: fn(&mut Config, &str) -> Result<(), String>,
}

impl ServeOption {
    /// The name of the environment variable.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.to_uppercase().replace('-', "_"))
    }
}

/// The settings of a server. The defaults serve this machine only.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address to listen on.
    pub host: IpAddr,
    /// The port to listen on; 0 is any free one.
    pub port: u16,
    /// Models given one by one.
    pub model: Vec<NamedModel>,
    /// A folder of models.
    pub models: Option<PathBuf>,
    /// Whether models are opened at start, not with the first request.
    pub preload: bool,
    /// The device.
    pub device: Device,
    /// The name of the precision of products.
    pub precision: String,
    /// The number of workers of each model; by default chosen by the machine.
    pub threads: Option<usize>,
    /// Bytes of memory that the process should stay within.
    pub memory: Option<u64>,
    /// The beam; by default that of the model's configuration.
    pub beam: Option<usize>,
    /// The longest body of a request.
    pub max_body: usize,
    /// The longest body of a request with a file.
    pub max_file: usize,
    /// The most texts in a request.
    pub max_texts: usize,
    /// The most characters in a text.
    pub max_characters: usize,
    /// The longest expected wait at which a request is still accepted.
    pub max_wait: Duration,
    /// The timeout of a request that does not give one.
    pub timeout: Duration,
    /// Requests a minute for each client.
    pub rate_limit: Option<u32>,
    /// API keys.
    pub key: Vec<String>,
    /// A file of API keys, one a line.
    pub key_file: Option<PathBuf>,
    /// The size of the translation cache in bytes.
    pub cache: usize,
    /// The folder in which clients' glossaries are stored.
    pub glossaries: Option<PathBuf>,
    /// The path under which everything is served.
    pub url_prefix: String,
    /// Whether `X-Forwarded-*` headers are trusted.
    pub trust_proxy: bool,
    /// The origin of other sites' pages that may use the API (CORS).
    pub cors_origin: Option<String>,
    /// Whether the page is served.
    pub page: bool,
    /// The most open connections.
    pub max_connections: usize,
    /// The time that a client may take to send a request, and may stay connected without one.
    pub idle_timeout: Duration,
    /// The time that accepted requests may take after a signal to end.
    pub drain_timeout: Duration,
    /// How log lines are written.
    pub log: LogFormat,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8989,
            model: Vec::new(),
            models: None,
            preload: true,
            device: Device::Auto,
            precision: "auto".to_owned(),
            threads: None,
            memory: None,
            beam: None,
            max_body: 2 << 20,
            max_file: 32 << 20,
            max_texts: 5000,
            max_characters: 200_000,
            max_wait: Duration::from_secs(30),
            timeout: Duration::from_secs(120),
            rate_limit: None,
            key: Vec::new(),
            key_file: None,
            cache: 0,
            glossaries: None,
            url_prefix: String::new(),
            trust_proxy: false,
            cors_origin: Some("*".to_owned()),
            page: true,
            max_connections: 4096,
            idle_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            log: LogFormat::Auto,
        }
    }
}

/// An option with a value.
macro_rules! option {
    ($name:literal, $value:literal, $default:literal, $help:literal, $set:expr) => {
        ServeOption {
            name: $name,
            value: $value,
            default: $default,
            help: $help,
            many: false,
            set: $set,
        }
    };
    ($name:literal, many $value:literal, $default:literal, $help:literal, $set:expr) => {
        ServeOption {
            name: $name,
            value: $value,
            default: $default,
            help: $help,
            many: true,
            set: $set,
        }
    };
}

/// All options, in the order of the documentation.
pub const OPTIONS: &[ServeOption] = &[
    option!(
        "host",
        "ADDRESS",
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 is every network this machine is in",
        |c, v| { put(&mut c.host, v.parse().map_err(|_| "expected an IP address".to_owned())) }
    ),
    option!("port", "N", "8989", "Port to listen on; 0 takes a free one and prints it", |c, v| {
        put(&mut c.port, v.parse().map_err(|_| "expected a number from 0 to 65535".to_owned()))
    }),
    option!("model", many "[PAIR=]PATH", "the built-in model", "Model file or directory, with its languages if its name does not tell: en-pt=PATH", |c, v| {
        c.model.push(named_model(v));
        Ok(())
    }),
    option!(
        "models",
        "FOLDER",
        "none",
        "Folder of models: each file or directory in it that is one",
        |c, v| {
            c.models = Some(PathBuf::from(v));
            Ok(())
        }
    ),
    option!(
        "preload",
        "on|off",
        "on",
        "Open models at start; off opens each with its first request",
        |c, v| { put(&mut c.preload, switch(v)) }
    ),
    option!(
        "device",
        "auto|cpu|cuda[:N]",
        "auto",
        "Where to compute: the first NVIDIA GPU if there is one (auto), or the one named",
        |c, v| { put(&mut c.device, v.parse()) }
    ),
    option!(
        "precision",
        "NAME",
        "auto",
        "Precision of products: float32, bfloat16, int16, int8; on a GPU also tf32, float16, fp8",
        |c, v| {
            c.precision = v.to_owned();
            Ok(())
        }
    ),
    option!(
        "threads",
        "auto|N",
        "auto",
        "Workers of each model: auto is the physical cores this process may use, on a GPU 4",
        |c, v| {
            c.threads = if v == "auto" { None } else { Some(number(v, 1, 1024)?) };
            Ok(())
        }
    ),
    option!(
        "memory",
        "SIZE",
        "3/4 of what is free",
        "Bytes the process should stay within (K, M, G): models used least recently are closed",
        |c, v| {
            c.memory = Some(size(v)? as u64);
            Ok(())
        }
    ),
    option!(
        "beam",
        "N",
        "the model's own",
        "Hypotheses kept for a sentence where a request does not say; 1 is greedy search",
        |c, v| {
            c.beam = Some(number(v, 1, 100)?);
            Ok(())
        }
    ),
    option!("max-body", "SIZE", "2M", "Longest body of a request", |c, v| put(
        &mut c.max_body,
        size(v)
    )),
    option!("max-file", "SIZE", "32M", "Longest body of a request with a file", |c, v| put(
        &mut c.max_file,
        size(v)
    )),
    option!("max-texts", "N", "5000", "Most texts in a request", |c, v| put(
        &mut c.max_texts,
        number(v, 1, usize::MAX)
    )),
    option!("max-characters", "N", "200000", "Most characters in a text", |c, v| {
        put(&mut c.max_characters, number(v, 1, usize::MAX))
    }),
    option!(
        "max-wait",
        "SECONDS",
        "30",
        "Refuse requests at once that would wait longer than this for their turn",
        |c, v| { put(&mut c.max_wait, seconds(v)) }
    ),
    option!(
        "timeout",
        "SECONDS",
        "120",
        "How long a request may take where it does not say (X-Request-Timeout)",
        |c, v| { put(&mut c.timeout, seconds(v)) }
    ),
    option!(
        "rate-limit",
        "N",
        "none",
        "Texts a minute that each key, or each address without a key, may send",
        |c, v| {
            c.rate_limit = Some(number(v, 1, u32::MAX as usize)? as u32);
            Ok(())
        }
    ),
    option!("key", many "KEY", "none", "API key that requests must carry; PEREGRINE_KEY keeps it out of the list of processes", |c, v| {
        c.key.extend(v.split(',').map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned));
        Ok(())
    }),
    option!(
        "key-file",
        "FILE",
        "none",
        "File of API keys, one a line; # begins a comment",
        |c, v| {
            c.key_file = Some(PathBuf::from(v));
            Ok(())
        }
    ),
    option!(
        "cache",
        "SIZE",
        "0",
        "Bytes of translations that are remembered; 0 remembers none",
        |c, v| put(&mut c.cache, size(v))
    ),
    option!(
        "glossaries",
        "FOLDER",
        "none",
        "Folder in which glossaries that clients make are kept; without it they end with the server",
        |c, v| {
            c.glossaries = Some(PathBuf::from(v));
            Ok(())
        }
    ),
    option!(
        "url-prefix",
        "PATH",
        "none",
        "Path under which everything is served, such as /translate",
        |c, v| {
            let path = v.trim_matches('/');
            if path.contains(['{', '}', '*', '?', '#', ' ']) {
                return Err("expected a path such as /mt".to_owned());
            }
            c.url_prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
            Ok(())
        }
    ),
    option!(
        "trust-proxy",
        "on|off",
        "off",
        "Believe X-Forwarded-For, -Proto and -Host: only behind a proxy that sets them",
        |c, v| { put(&mut c.trust_proxy, switch(v)) }
    ),
    option!(
        "cors-origin",
        "*|ORIGIN|off",
        "*",
        "Sites whose pages may call the server from a browser",
        |c, v| {
            c.cors_origin = (v != "off").then(|| v.to_owned());
            match v.bytes().all(|byte| (33..127).contains(&byte)) {
                true => Ok(()),
                false => Err("expected *, off or an origin such as https://example.org".to_owned()),
            }
        }
    ),
    option!("page", "on|off", "on", "Serve the page at /", |c, v| put(&mut c.page, switch(v))),
    option!(
        "max-connections",
        "N",
        "4096",
        "Most open connections; more wait to be accepted",
        |c, v| { put(&mut c.max_connections, number(v, 1, 1 << 20)) }
    ),
    option!(
        "idle-timeout",
        "SECONDS",
        "30",
        "How long a client may take to send a request, and stay connected without one",
        |c, v| { put(&mut c.idle_timeout, seconds(v)) }
    ),
    option!(
        "drain-timeout",
        "SECONDS",
        "30",
        "How long accepted requests may go on after SIGTERM; a second signal ends at once",
        |c, v| { put(&mut c.drain_timeout, seconds(v)) }
    ),
    option!(
        "log",
        "auto|text|json|off",
        "auto",
        "Log lines on standard error: auto is text on a terminal, JSON otherwise",
        |c, v| put(&mut c.log, log_format(v))
    ),
];

/// An invalid configuration: the place of the value, and what was expected.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ConfigError {
    place: String,
    problem: String,
}

impl ConfigError {
    pub(crate) fn new(place: impl Into<String>, problem: impl Into<String>) -> ConfigError {
        ConfigError { place: place.into(), problem: problem.into() }
    }
}

impl Config {
    /// Reads the configuration file, then the variables, then the flags; `flags` has the values of each flag that was given.
    pub fn read(
        file: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
        flags: &BTreeMap<String, Vec<String>>,
    ) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        let written = match file {
            Some(path) => read_file(path)?,
            None => BTreeMap::new(),
        };
        for option in OPTIONS {
            let name = option.name;
            let in_variable = variable(&option.variable()).map(|value| vec![value]);
            let (place, values) = if let Some(values) = flags.get(name) {
                (format!("--{name}"), values.clone())
            } else if let Some(values) = in_variable {
                (option.variable(), values)
            } else if let Some(values) = written.get(name) {
                let file = file.unwrap_or(Path::new("")).display();
                (format!("{file}: {name}"), values.clone())
            } else {
                continue;
            };
            for value in values {
                let set = (option.set)(&mut config, &value);
                set.map_err(|problem| ConfigError::new(&place, format!("{value:?}: {problem}")))?;
            }
        }
        config.compute()?;
        Ok(config)
    }

    /// How products are computed.
    pub(crate) fn compute(&self) -> Result<Compute, ConfigError> {
        let compute = Compute::default().on(self.device, &self.precision);
        compute.map_err(|problem| ConfigError::new("--precision", problem))
    }
}

/// The values of a TOML file, by the names of options.
fn read_file(path: &Path) -> Result<BTreeMap<String, Vec<String>>, ConfigError> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| ConfigError::new(&place, error.to_string()))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        ConfigError::new(format!("{place}, line {line}"), error.message().to_owned())
    })?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        let Some(option) = OPTIONS.iter().find(|option| option.name == key) else {
            return Err(ConfigError::new(place, format!("there is no option {key:?}")));
        };
        let list = match value {
            toml::Value::Array(list) if option.many => list,
            value => vec![value],
        };
        let plain = |value: toml::Value| match value {
            toml::Value::String(text) => Ok(text),
            toml::Value::Boolean(on) => Ok(if on { "on" } else { "off" }.to_owned()),
            toml::Value::Integer(number) => Ok(number.to_string()),
            toml::Value::Float(number) => Ok(number.to_string()),
            _ => Err(ConfigError::new(&place, format!("{key}: expected {}", option.value))),
        };
        let list: Result<Vec<String>, ConfigError> = list.into_iter().map(plain).collect();
        values.insert(key.clone(), list?);
    }
    Ok(values)
}

fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(given: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
        let mut flags: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in given {
            flags.entry((*name).to_owned()).or_default().push((*value).to_owned());
        }
        flags
    }

    #[test]
    fn flags_count_more_than_variables_and_these_more_than_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("serve.toml");
        std::fs::write(&file, "port = 1\nbeam = 2\ncache = \"3K\"\nmodel = [\"en-de=a\", \"b\"]\n")
            .unwrap();
        let variable = |name: &str| match name {
            "PEREGRINE_PORT" => Some("10".to_owned()),
            "PEREGRINE_BEAM" => Some("4".to_owned()),
            _ => None,
        };
        let config = Config::read(Some(&file), variable, &flags(&[("port", "99")])).unwrap();
        assert_eq!((config.port, config.beam, config.cache), (99, Some(4), 3072));
        assert_eq!(config.model[0].pair, Some(("en".to_owned(), "de".to_owned())));
        assert_eq!(config.model[1], NamedModel { pair: None, path: PathBuf::from("b") });
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let read = |given: &[(&str, &str)]| Config::read(None, |_| None, &flags(given));
        let told = |given| read(given).unwrap_err().to_string();
        assert_eq!(told(&[("port", "x")]), "--port: \"x\": expected a number from 0 to 65535");
        assert_eq!(told(&[("page", "maybe")]), "--page: \"maybe\": expected on or off");
        assert_eq!(told(&[("max-body", "2T")]), "--max-body: \"2T\": expected a size such as 200M");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        std::fs::write(&file, "port = 1\nprot = 2\n").unwrap();
        let error = Config::read(Some(&file), |_| None, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.ends_with("there is no option \"prot\""), "{error}");
        std::fs::write(&file, "port = 1\nbeam =\n").unwrap();
        let error = Config::read(Some(&file), |_| None, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("c.toml, line 2: "), "{error}");
    }

    #[test]
    fn defaults_in_words_are_the_defaults() {
        let stated = OPTIONS.iter().filter(|o| {
            !matches!(
                o.default,
                "none" | "the model's own" | "the built-in model" | "3/4 of what is free"
            )
        });
        let given: Vec<(&str, &str)> = stated.map(|option| (option.name, option.default)).collect();
        let config = Config::read(None, |_| None, &flags(&given)).unwrap();
        assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
    }
}
