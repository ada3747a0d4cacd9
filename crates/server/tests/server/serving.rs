//! Many callers at once: equal requests, callers who leave, deadlines, limits, slow clients, ending.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::{Answer, Running, request, start};
use serde_json::{Value, json};

/// A text that takes a while.
fn long_text(sentences: usize) -> String {
    (0..sentences)
        .map(|number| {
            format!("The old man walked {number} miles along the river to the next village. ")
        })
        .collect()
}

fn long_body(sentences: usize) -> Value {
    json!({"text": long_text(sentences), "to": "pt", "priority": "interactive"})
}

/// Waits until something holds, for a minute at most.
#[track_caller]
fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1200 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("not within a minute: {what}");
}

fn begin(server: &Running, body: &Value) -> std::net::TcpStream {
    let mut stream = server.connect();
    stream
        .write_all(&request(
            "POST",
            "/v1/translate",
            &[("content-type", "application/json")],
            body.to_string().as_bytes(),
        ))
        .unwrap();
    stream
}

#[test]
fn equal_texts_are_translated_once() {
    let server = start(&[]);
    let before = server.metric("peregrine_requests_total");
    let mut streams: Vec<_> = (0..8).map(|_| begin(&server, &long_body(60))).collect();
    let answers: Vec<Value> = streams
        .iter_mut()
        .map(|stream| Answer::read(stream).json()["translations"].clone())
        .collect();
    assert!(answers.iter().all(|answer| answer == &answers[0]
        && answer[0]["text"].as_str().is_some_and(|text| text.len() > 1000)));
    let made = server.metric("peregrine_requests_total") - before;
    let joined = server.metric("peregrine_coalesced_total");
    assert!(made < 8.0 && made + joined == 8.0, "{made} made, {joined} joined");
}

#[test]
fn who_leaves_is_cancelled_and_harms_nobody() {
    let server = start(&[]);
    let leaver = begin(&server, &long_body(400));
    until("the work began", || server.metric("peregrine_requests_in_flight") >= 2.0);
    drop(leaver);
    until("it was cancelled", || server.metric("peregrine_cancelled_total") >= 1.0);
    until("nothing waits", || server.metric("peregrine_queue_depth") == 0.0);
    assert!(server.metric("peregrine_abandoned_total") >= 1.0);
    // Of two who wait for the same, one may leave.
    let leaver = begin(&server, &long_body(100));
    let mut stayer = begin(&server, &long_body(100));
    until("both wait", || server.metric("peregrine_coalesced_total") >= 1.0);
    drop(leaver);
    assert_eq!(Answer::read(&mut stayer).status, 200);
    assert_eq!(server.metric("peregrine_cancelled_total"), 1.0);
}

#[test]
fn deadlines() {
    let server = start(&[("timeout", "0.002")]);
    let late = server.post("/v1/translate", &long_body(200));
    assert_eq!((late.status, late.json()["error"]["code"].as_str()), (504, Some("deadline")));
    let body = json!({"text": [long_text(200)], "target_lang": "PT"});
    assert_eq!(server.post("/v2/translate", &body).status, 429);
    let headers = [("content-type", "application/json"), ("x-request-timeout", "60")];
    let answer = server.send(
        "POST",
        "/v2/translate",
        &headers,
        json!({"text": ["Thank you."], "target_lang": "PT"}).to_string().as_bytes(),
    );
    assert_eq!(answer.status, 200);
    let headers = [("content-type", "application/json"), ("x-request-timeout", "soon")];
    assert_eq!(
        server.send("POST", "/v2/translate", &headers, body.to_string().as_bytes()).status,
        400
    );
    let mut events = begin(&server, &json!({"text": long_text(200), "to": "pt", "stream": true}));
    assert!(
        Answer::read(&mut events)
            .text()
            .contains("event: error\ndata: {\"error\":{\"code\":\"deadline\"")
    );
    until("late work is gone", || server.metric("peregrine_queue_depth") == 0.0);
}

#[test]
fn limits_for_each_client() {
    let server = start(&[("rate-limit", "3")]);
    let body = json!({"q": ["a", "b"], "source": "en", "target": "pt"});
    assert_eq!(server.post("/translate", &body).status, 200);
    assert_eq!(server.post("/translate", &body).status, 200);
    let refused = server.post("/translate", &body);
    assert_eq!(
        (refused.status, refused.json()),
        (429, json!({"error": "Slowdown: 3 per 1 minute"}))
    );
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    // Neither the page nor health counts.
    assert!(server.get("/languages").status == 200 && server.get("/health").status == 200);
    assert_eq!(server.metric("peregrine_rejected_total"), 1.0);
}

#[test]
fn who_would_wait_too_long_is_told_at_once() {
    let server = start(&[("max-wait", "0.001")]);
    let mut first = begin(&server, &long_body(1000));
    let mut number = 0;
    let refused = loop {
        number += 1;
        assert!(number < 1000, "nobody was refused");
        let answer = server.post(
            "/v1/translate",
            &json!({"text": format!("Sentence number {number}."), "to": "pt"}),
        );
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (503, Some("busy")));
    assert!(refused.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(Answer::read(&mut first).status, 200);
    assert_eq!(
        server.post("/v1/translate", &json!({"text": "Thank you.", "to": "pt"})).status,
        200
    );
}

#[test]
fn what_was_accepted_is_finished() {
    let mut server = start(&[]);
    let mut streams: Vec<_> =
        (0..6).map(|number| begin(&server, &long_body(300 + number))).collect();
    let mut events = begin(&server, &json!({"text": long_text(200), "to": "pt", "stream": true}));
    until("all are being answered", || server.metric("peregrine_requests_in_flight") >= 7.0);
    server.begin_stop();
    for stream in &mut streams {
        assert_eq!(Answer::read(stream).status, 200);
    }
    assert!(Answer::read(&mut events).text().contains("event: done"));
    let address = server.address;
    server.stop();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn slow_and_silent_clients_hold_up_nobody() {
    let server = start(&[("idle-timeout", "2")]);
    let mut silent: Vec<_> = (0..300).map(|_| server.connect()).collect();
    let mut slow: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(b"POST /v1/translate HTTP/1.1\r\nhost: a\r\ncontent-le").unwrap();
    }
    let mut slow_body = server.connect();
    slow_body.write_all(b"POST /v1/translate HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{").unwrap();
    assert_eq!(
        server.post("/v1/translate", &json!({"text": "Thank you.", "to": "pt"})).status,
        200
    );
    assert_eq!(Answer::read(&mut slow_body).status, 400);
    // All are closed by the server, whatever it says to them.
    for stream in silent.iter_mut().chain(&mut slow) {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    until("they are gone", || server.metric("peregrine_connections") <= 2.0);
}

#[test]
fn translations_are_remembered_if_wanted() {
    let server = start(&[("cache", "1M")]);
    let body = json!({"text": ["Thank you.", "Good morning!"], "to": "pt"});
    let first = server.post("/v1/translate", &body).json();
    let second = server.post("/v1/translate", &body).json();
    assert_eq!(first["translations"], second["translations"]);
    assert_eq!(
        (
            server.metric("peregrine_cache_hits_total"),
            server.metric("peregrine_cache_misses_total")
        ),
        (2.0, 2.0)
    );
    // Another beam is another translation.
    server.post("/v1/translate", &json!({"text": "Thank you.", "to": "pt", "beam": 3}));
    assert_eq!(server.metric("peregrine_cache_hits_total"), 2.0);
}

#[test]
fn a_broken_model_beside_a_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let good = folder.path().join("en-pt.peregrine");
    std::fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../peregrine/models/en-pt.peregrine"),
        &good,
    )
    .unwrap();
    std::fs::write(folder.path().join("de-en.peregrine"), b"nothing").unwrap();
    std::fs::write(folder.path().join("notes.txt"), b"not a model").unwrap();
    let server = start(&[("models", folder.path().to_str().unwrap())]);
    assert_eq!(
        server
            .post("/v1/translate", &json!({"text": "Thank you.", "from": "en", "to": "pt"}))
            .status,
        200
    );
    let broken = server.post("/v1/translate", &json!({"text": "Danke.", "from": "de", "to": "en"}));
    assert_eq!(broken.status, 500);
    // What is wrong with it is in the log: the answer names no path of this machine.
    assert!(!broken.text().contains(folder.path().to_str().unwrap()));
    let models = server.get("/v1/models").json();
    assert_eq!(
        (&models["models"][0]["loaded"], &models["models"][1]["loaded"]),
        (&json!(false), &json!(true))
    );
    assert!(models["models"][0]["problem"].is_string());
    let pairs = server.get("/v1/languages").json()["pairs"].as_array().unwrap().len();
    assert_eq!(pairs, 3, "two models, and German to Portuguese through both");
}

/// A pair that no model translates goes through a third language: the second model gets what the first one makes.
#[test]
fn through_a_third_language() {
    let folder = tempfile::tempdir().unwrap();
    // The same model under two names: what it makes of Portuguese is nonsense, but always the same.
    for name in ["en-pt.peregrine", "de-en.peregrine"] {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../peregrine/models/en-pt.peregrine");
        std::fs::copy(model, folder.path().join(name)).unwrap();
    }
    let server = start(&[("models", folder.path().to_str().unwrap())]);
    let translate = |text: &str, from: &str, to: &str| {
        let wanted = json!({"text": text, "from": from, "to": to, "alignments": true});
        server.post("/v1/translate", &wanted).json()["translations"][0].clone()
    };
    let text = "Two dogs play in the snow. Open {name} 🦀";
    let first = translate(text, "de", "en");
    let second = translate(first["text"].as_str().unwrap(), "en", "pt");
    let whole = translate(text, "de", "pt");
    assert_eq!(whole["text"], second["text"]);
    assert!(whole["text"].as_str().unwrap().contains("{name} 🦀"), "{whole}");
    assert_eq!(whole["model"], "de-en.peregrine + en-pt.peregrine");
    assert_eq!(whole["sentences"][0]["source"], json!([0, 26]));
    let pairs = server.get("/v1/languages").json()["pairs"].clone();
    let through: Vec<_> =
        pairs.as_array().unwrap().iter().map(|p| (&p["from"], &p["to"], &p["through"])).collect();
    assert!(through.contains(&(&json!("de"), &json!("pt"), &json!(["en"]))), "{through:?}");
    let stream = json!({"text": text, "from": "de", "to": "pt", "stream": true});
    let events = server.post("/v1/translate", &stream).text();
    let done = events.split("event: done\ndata: ").nth(1).expect("the last event");
    let done: Value = serde_json::from_str(done.trim()).unwrap();
    assert_eq!(done["translations"][0]["text"], whole["text"]);
    assert!(events.contains("event: sentence"));
}

#[test]
fn what_a_model_cannot_spell_survives_unless_it_is_not_wanted() {
    let server = start(&[]);
    let translate = |carry: bool| {
        let wanted =
            json!({"text": "Send it to {first_name} 🦀 today.", "to": "pt", "carry": carry});
        server.post("/v1/translate", &wanted).json()["translations"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(translate(true).contains("{first_name} 🦀"));
    assert!(!translate(false).contains("{first_name} 🦀"));
}

#[test]
fn models_may_be_opened_late() {
    let server = start(&[("preload", "off")]);
    assert_eq!(server.get("/v1/models").json()["models"][0]["loaded"], false);
    assert_eq!(
        server.post("/v1/translate", &json!({"text": "Thank you.", "to": "pt"})).status,
        200
    );
    assert_eq!(server.get("/v1/models").json()["models"][0]["loaded"], true);
}
