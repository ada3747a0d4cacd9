//! Requests that real clients were seen to send (`tests/clients/run --record`), sent again: status and answer must be the same.

use crate::common::{Running, start};
use serde_json::Value;

const RECORDED: &str = include_str!("../recorded.jsonl");

/// What differs from run to run.
const VOLATILE: [&str; 6] =
    ["document_id", "document_key", "translatedFileUrl", "id", "glossary_id", "creation_time"];

/// The ids of what was made last.
#[derive(Default)]
struct Made {
    document: (String, String),
    glossary: String,
}

fn assert_same(recorded: &Value, answer: &Value, line: &str) {
    match (recorded, answer) {
        (Value::Object(recorded), Value::Object(answer)) => {
            assert!(recorded.keys().eq(answer.keys()), "{line}\n{answer:?}");
            for (key, value) in recorded.iter().filter(|(key, _)| !VOLATILE.contains(&key.as_str()))
            {
                assert_same(value, &answer[key], line);
            }
        }
        (Value::Array(recorded), Value::Array(answer)) => {
            assert_eq!(recorded.len(), answer.len(), "{line}");
            recorded
                .iter()
                .zip(answer)
                .for_each(|(recorded, answer)| assert_same(recorded, answer, line));
        }
        _ => assert_eq!(recorded, answer, "{line}"),
    }
}

/// Sends a recorded request again.
fn replay(server: &Running, line: &str, recorded: &Value, made: &mut Made) {
    let text = |key: &str| {
        let text = recorded[key].as_str().unwrap().replace("GLOSSARY_ID", &made.glossary);
        text.replace("DOCUMENT_ID", &made.document.0).replace("DOCUMENT_KEY", &made.document.1)
    };
    let headers = recorded["headers"].as_object().unwrap();
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
    let answer = server.send(&text("method"), &text("path"), &headers, text("body").as_bytes());
    assert_eq!(u64::from(answer.status), recorded["status"], "{line}\n{}", answer.text());
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| answer.text().into());
    if let (Some(id), Some(key)) = (body["document_id"].as_str(), body["document_key"].as_str()) {
        made.document = (id.to_owned(), key.to_owned());
    }
    if let Some(id) = body["glossary_id"].as_str() {
        id.clone_into(&mut made.glossary);
    }
    assert_same(&recorded["answer"], &body, line);
}

#[test]
fn clients_get_the_answers_they_understood() {
    let (open, keyed) = (start(&[]), start(&[("key", "KEY")]));
    let mut made = Made::default();
    let mut count = 0;
    for line in RECORDED.lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let server = match recorded["server"].as_str() {
            Some("open") => &open,
            Some("keyed") => &keyed,
            // Limits by the minute are tested in serving.rs.
            _ => continue,
        };
        replay(server, line, &recorded, &mut made);
        count += 1;
    }
    assert!(count > 150, "{count}");
}
