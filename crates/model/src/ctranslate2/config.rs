//! A model's options: `config.json` since version 6, variables of `model.bin` before that.

use std::path::Path;

use serde::Deserialize;

use crate::ctranslate2::variables::Variables;
use crate::{ModelError, files};

/// The first version with a `config.json`.
const WITH_FILE: u32 = 6;

/// Options, with the library's defaults.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub bos_token: String,
    pub eos_token: String,
    pub decoder_start_token: Option<String>,
    pub add_source_bos: bool,
    pub add_source_eos: bool,
    pub layer_norm_epsilon: Option<f32>,
    pub multi_query_attention: Option<bool>,
    pub quantization_type: Option<i64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            bos_token: "<s>".into(),
            eos_token: "</s>".into(),
            decoder_start_token: Some("<s>".into()),
            add_source_bos: false,
            add_source_eos: false,
            layer_norm_epsilon: None,
            multi_query_attention: None,
            quantization_type: None,
        }
    }
}

impl Config {
    pub(crate) fn read(
        folder: &Path,
        version: u32,
        variables: &Variables,
    ) -> Result<Config, ModelError> {
        let path = folder.join("config.json");
        let inside = Config::inside(variables)?;
        if version < WITH_FILE {
            return Ok(inside);
        }
        let config: Config = serde_json::from_slice(&files::read(&path)?)
            .map_err(|error| ModelError::invalid(&path, error.to_string()))?;
        if config.multi_query_attention == Some(true) {
            return Err(ModelError::unsupported(&path, "multi_query_attention is not supported"));
        }
        if let Some(kind @ 1..) = config.quantization_type {
            let what = format!("quantization_type {kind} is not supported");
            return Err(ModelError::unsupported(&path, what));
        }
        Ok(config)
    }

    /// Options stored as variables. They are read in every file, so that none of them counts as an
    /// unknown layer.
    fn inside(variables: &Variables) -> Result<Config, ModelError> {
        let usual = Config::default();
        let flag = |name: &str, default| {
            let value = variables.attribute("", name)?;
            Ok::<_, ModelError>(value.map_or(default, |value| value != 0))
        };
        let bos_token = variables.text("bos_token").unwrap_or(usual.bos_token);
        let eos_token = variables.text("eos_token").unwrap_or(usual.eos_token);
        variables.text("unk_token");
        let by_user = flag("user_decoder_start_tokens", false)?;
        let start = if flag("with_target_bos", true)? { &bos_token } else { &eos_token };
        Ok(Config {
            decoder_start_token: (!by_user).then(|| start.clone()),
            add_source_bos: flag("with_source_bos", false)?,
            add_source_eos: flag("with_source_eos", false)?,
            bos_token,
            eos_token,
            ..Config::default()
        })
    }
}
