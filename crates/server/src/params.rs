//! The parameters of a request, from a JSON object, a form, a multipart form or the query.
//!
//! The extractors of web frameworks have their own form of errors, do not read the body of a GET,
//! and lose repeated keys of forms; clients of the dialects need all three (docs/serve.md). `null`
//! counts as absent everywhere.

use axum::body::Bytes;
use axum::http::HeaderMap;
use serde_json::{Map, Value};

use crate::problem::{Kind, Outcome, Problem};

/// The most fields of a form and files of an upload.
const MOST_FIELDS: usize = 10_000;

/// A file in a multipart form.
#[derive(Debug, Clone)]
pub(crate) struct Upload {
    pub(crate) field: String,
    /// The file name sent by the client.
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

/// Parameters by name.
#[derive(Debug, Default)]
pub(crate) struct Params {
    json: Option<Map<String, Value>>,
    form: Vec<(String, String)>,
    query: Vec<(String, String)>,
    pub(crate) files: Vec<Upload>,
}

/// One text or a list of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) texts: Vec<String>,
    /// Whether the parameter is a list, so that the answer must be one too.
    pub(crate) is_list: bool,
}

impl Params {
    /// Reads the parameters of a request.
    pub(crate) async fn read(
        query: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Outcome<Params> {
        let mut params =
            Params { query: pairs(query.unwrap_or_default().as_bytes()), ..Params::default() };
        let kind =
            headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_json = media == "application/json"
            || (media.starts_with("application/") && media.ends_with("+json"));
        let starts_object = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        if body.is_empty() {
            return Ok(params);
        }
        if media == "multipart/form-data" {
            params.read_multipart(kind, body).await?;
        } else if is_json || starts_object {
            // `curl -d '{…}'` declares JSON as a form.
            params.json = Some(object(&body)?);
        } else {
            params.form = pairs(&body);
        }
        Ok(params)
    }

    async fn read_multipart(&mut self, kind: &str, body: Bytes) -> Outcome<()> {
        let broken = |error: &dyn std::fmt::Display| {
            Problem::bad(format!("The multipart form cannot be read: {error}"))
        };
        let request = axum::http::Request::builder().header("content-type", kind);
        let request = request.body(axum::body::Body::from(body)).map_err(|error| broken(&error))?;
        let multipart = <axum::extract::Multipart as axum::extract::FromRequest<()>>::from_request(
            request,
            &(),
        );
        let mut multipart = multipart.await.map_err(|error| broken(&error))?;
        while let Some(field) = multipart.next_field().await.map_err(|error| broken(&error))? {
            if self.form.len() + self.files.len() >= MOST_FIELDS {
                return Err(Problem::new(Kind::TooLarge, "The form has too many fields"));
            }
            let name = field.name().unwrap_or_default().to_owned();
            let file = field.file_name().map(str::to_owned);
            let bytes = field.bytes().await.map_err(|error| broken(&error))?;
            match file {
                Some(file) => self.files.push(Upload { field: name, name: file, bytes }),
                None => self.form.push((name, String::from_utf8_lossy(&bytes).into_owned())),
            }
        }
        Ok(())
    }

    /// Whether a parameter was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        match &self.json {
            Some(object) => object.get(name).is_some_and(|value| !value.is_null()),
            None => self.plain(name).next().is_some(),
        }
    }

    /// The values of a parameter in the form, or else in the query.
    fn plain<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let in_form = self.form.iter().any(|(key, _)| key == name);
        let place = if in_form { &self.form } else { &self.query };
        place.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A parameter of the query, even if there is a body.
    pub(crate) fn in_query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter in a JSON body.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.json.as_ref()?.get(name).filter(|value| !value.is_null())
    }

    /// A string. Numbers and booleans count as their text.
    pub(crate) fn string(&self, name: &str) -> Outcome<Option<String>> {
        if self.json.is_none() {
            return Ok(self.plain(name).next().map(str::to_owned));
        }
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(value.to_string())),
            Some(_) => Err(Problem::bad(format!("{name} must be a string"))),
        }
    }

    /// A string that is not empty.
    pub(crate) fn filled(&self, name: &str) -> Outcome<Option<String>> {
        Ok(self.string(name)?.filter(|text| !text.trim().is_empty()))
    }

    /// A text or a list of texts. In a form a list is a repeated key.
    pub(crate) fn texts(&self, name: &str) -> Outcome<Option<Texts>> {
        if self.json.is_none() {
            let texts: Vec<String> = self.plain(name).map(str::to_owned).collect();
            let is_list = texts.len() > 1;
            return Ok((!texts.is_empty()).then_some(Texts { texts, is_list }));
        }
        let wrong = || Problem::bad(format!("{name} must be a string or a list of strings"));
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => {
                Ok(Some(Texts { texts: vec![text.clone()], is_list: false }))
            }
            Some(Value::Array(list)) => {
                let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(wrong);
                let texts = list.iter().map(text).collect::<Outcome<Vec<String>>>()?;
                Ok(Some(Texts { texts, is_list: true }))
            }
            Some(_) => Err(wrong()),
        }
    }

    /// A list of names: several values, or one with commas.
    pub(crate) fn names(&self, name: &str) -> Outcome<Vec<String>> {
        let given = self.texts(name)?.map(|given| given.texts).unwrap_or_default();
        let names = given.iter().flat_map(|names| names.split(',')).map(|name| name.trim());
        Ok(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    /// A boolean, or 1, 0, true, false as text.
    pub(crate) fn flag(&self, name: &str) -> Outcome<Option<bool>> {
        match self.string(name)?.as_deref() {
            None | Some("") => Ok(None),
            Some("1" | "true" | "True") => Ok(Some(true)),
            Some("0" | "false" | "False") => Ok(Some(false)),
            Some(_) => Err(Problem::bad(format!("{name} must be true or false"))),
        }
    }

    /// A whole number in a range, as a number or as text.
    pub(crate) fn count(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<usize>,
    ) -> Outcome<Option<usize>> {
        let Some(text) = self.string(name)? else { return Ok(None) };
        let number = text.trim().parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        number.map(Some).ok_or_else(|| {
            Problem::bad(format!("{name} must be a whole number from {least} to {most}"))
        })
    }
}

/// The keys and values of a form.
fn pairs(bytes: &[u8]) -> Vec<(String, String)> {
    let pairs = form_urlencoded::parse(bytes).take(MOST_FIELDS);
    pairs.map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
}

/// A JSON object.
fn object(body: &[u8]) -> Outcome<Map<String, Value>> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Problem::bad("Invalid JSON format: an object is expected")),
        Err(error) => Err(Problem::bad(format!("The body is not valid JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, kind: &str, body: &[u8]) -> Outcome<Params> {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", kind.parse().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Params::read(Some(query), &headers, Bytes::copy_from_slice(body)))
    }

    fn texts(params: &Params, name: &str) -> Vec<String> {
        params.texts(name).unwrap().map(|texts| texts.texts).unwrap_or_default()
    }

    #[test]
    fn the_same_parameters_from_everywhere() {
        let multipart = b"--b\r\ncontent-disposition: form-data; name=\"q\"\r\n\r\nHi\r\n--b--\r\n";
        let all = [
            read("", "application/json; charset=utf-8", br#"{"q": "Hi"}"#),
            read("", "text/plain", br#" {"q": "Hi"}"#),
            read("", "application/x-www-form-urlencoded", br#"{"q": "Hi"}"#),
            read("", "application/x-www-form-urlencoded", b"q=Hi"),
            read("q=Hi", "", b""),
            read("", "multipart/form-data; boundary=b", multipart),
        ];
        for params in all {
            assert_eq!(texts(&params.unwrap(), "q"), ["Hi"]);
        }
    }

    #[test]
    fn repeated_keys_of_a_form_are_a_list() {
        let params =
            read("", "application/x-www-form-urlencoded", b"text=a&text=b%20c&text=").unwrap();
        assert_eq!(texts(&params, "text"), ["a", "b c", ""]);
    }

    #[test]
    fn json_hides_the_query_but_for_keys() {
        let params =
            read("q=no&key=k", "application/json", br#"{"source": "en", "a": null, "n": 3}"#)
                .unwrap();
        assert!(!params.has("q") && !params.has("a") && params.has("source"));
        assert_eq!(params.in_query("key"), Some("k"));
        assert_eq!(params.count("n", 0..=5).unwrap(), Some(3));
        assert!(params.count("n", 0..=2).is_err());
    }

    #[test]
    fn what_is_not_json_is_named() {
        for body in [&b"{"[..], b"[1]", b"3", b"{\"q\": \"\xff\"}", b"{\"q\": \"\\ud800\"}"] {
            assert_eq!(read("", "application/json", body).unwrap_err().kind, Kind::BadRequest);
        }
        let deep = [b"{\"q\":".to_vec(), vec![b'['; 100_000]].concat();
        assert_eq!(read("", "application/json", &deep).unwrap_err().kind, Kind::BadRequest);
        assert!(read("", "multipart/form-data; boundary=b", b"--b\r\ncontent-dis").is_err());
        assert!(read("", "multipart/form-data", b"x").is_err());
    }
}
