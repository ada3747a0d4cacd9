//! The server's own API, its description, and what holds for every path.

use std::io::Write;

use crate::common::{Answer, request, shared, start};
use serde_json::{Value, json};

const TEXT: &str = "Good morning! 🦀 Two dogs play in the snow.\n\nThank you.";

fn translate(body: Value) -> Value {
    let answer = shared().post("/v1/translate", &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn answers_are_those_of_the_library() {
    let answer = translate(json!({"text": [TEXT, "Thank you."], "from": "en", "to": "pt"}));
    let translator = peregrine::Translator::builtin().unwrap();
    let options = translator.text_options();
    let requests = [peregrine::Request::new(TEXT), peregrine::Request::new("Thank you.")];
    let expected = translator.translate_batch(&requests, &options).unwrap();
    for (number, expected) in expected.iter().enumerate() {
        assert_eq!(answer["translations"][number]["text"], expected.text());
    }
    assert_eq!(answer["translations"][0]["text"].as_str().unwrap().matches('\n').count(), 2);
    assert_eq!(answer["translations"][0]["model"], "built-in");
}

#[test]
fn offsets_point_at_words_in_every_unit() {
    let slice = |text: &str, unit: &str, range: &Value| -> String {
        let (start, end) =
            (range[0].as_u64().unwrap() as usize, range[1].as_u64().unwrap() as usize);
        match unit {
            "byte" => text[start..end].to_owned(),
            "codepoint" => text.chars().skip(start).take(end - start).collect(),
            _ => {
                String::from_utf16(&text.encode_utf16().collect::<Vec<u16>>()[start..end]).unwrap()
            }
        }
    };
    let mut seen: Vec<Vec<(String, String)>> = Vec::new();
    for unit in ["byte", "codepoint", "utf16"] {
        let answer = translate(
            json!({"text": TEXT, "to": "pt", "offsets": unit, "alignments": true, "scores": true}),
        );
        let translation = &answer["translations"][0];
        let target = translation["text"].as_str().unwrap();
        let mut links = Vec::new();
        for sentence in translation["sentences"].as_array().unwrap() {
            assert!(sentence["score"].as_f64().unwrap() <= 0.0);
            for word in sentence["words"].as_array().unwrap() {
                let word = slice(target, unit, &word["target"]);
                assert!(!word.is_empty() && !word.contains(' '), "{word:?}");
            }
            for link in sentence["alignments"].as_array().unwrap() {
                links.push((
                    slice(TEXT, unit, &link["source"]),
                    slice(target, unit, &link["target"]),
                ));
            }
        }
        seen.push(links);
    }
    assert!(seen[0].contains(&("dogs".to_owned(), "cães".to_owned())), "{:?}", seen[0]);
    assert!(seen[0] == seen[1] && seen[1] == seen[2]);
}

#[test]
fn alternatives_of_texts_and_sentences() {
    let answer = translate(
        json!({"text": "Two dogs play in the snow. Thank you.", "to": "pt", "n_best": 3, "beam": 4}),
    );
    let translation = &answer["translations"][0];
    assert_eq!(translation["alternatives"].as_array().unwrap().len(), 3);
    assert_eq!(translation["alternatives"][0]["text"], translation["text"]);
    let sentence = &translation["sentences"][0];
    assert_eq!(sentence["alternatives"].as_array().unwrap().len(), 3);
    assert_eq!(sentence["alternatives"][0]["text"], "Dois cães brincam na neve.");
}

/// The events of a stream: name and data.
fn events(answer: &Answer) -> Vec<(String, Value)> {
    let text = answer.text();
    let event = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        (name.strip_prefix("event: ").unwrap().to_owned(), data)
    };
    text.split("\n\n").filter(|part| !part.is_empty()).map(event).collect()
}

#[test]
fn events_tell_sentences_and_end_with_the_whole() {
    let body = json!({"text": [TEXT, "Thank you."], "to": "pt", "stream": true, "beam": 1});
    let answer = shared().post("/v1/translate", &body);
    assert_eq!(
        (answer.status, answer.headers["content-type"].as_str()),
        (200, "text/event-stream")
    );
    let events = events(&answer);
    let (last, whole) = events.last().unwrap();
    assert_eq!(last, "done");
    let sentences: Vec<&Value> =
        events.iter().filter(|(name, _)| name == "sentence").map(|(_, data)| data).collect();
    let of_first = sentences.iter().filter(|data| data["text"] == 0).count();
    assert!(of_first >= 3 && sentences.len() == of_first + 1, "{events:?}");
    for data in &sentences {
        let number = data["text"].as_u64().unwrap() as usize;
        let text = whole["translations"][number]["text"].as_str().unwrap();
        assert!(text.contains(data["translation"].as_str().unwrap().trim()), "{data}");
    }
    assert!(events.iter().any(|(name, _)| name == "token"));
    let plain = translate(json!({"text": [TEXT, "Thank you."], "to": "pt", "beam": 1}));
    assert_eq!(whole["translations"], plain["translations"]);
}

#[test]
fn languages_models_and_detection() {
    let server = shared();
    let languages = server.get("/v1/languages").json();
    assert_eq!(
        languages["pairs"],
        json!([{"from": "en", "to": "pt", "model": "built-in", "through": []}])
    );
    assert_eq!(
        languages["languages"][1],
        json!({"code": "pt", "name": "Portuguese", "native": "português", "rtl": false})
    );
    let models = server.get("/v1/models").json();
    let model = &models["models"][0];
    assert!(model["loaded"] == true && model["memory"].as_u64().unwrap() > 1_000_000, "{model}");
    let found = server
        .post("/v1/detect", &json!({"text": ["Das ist ein ganzer deutscher Satz.", "12 34"]}))
        .json();
    assert_eq!(
        (&found["detections"][0]["language"], &found["detections"][1]["language"]),
        (&json!("de"), &Value::Null)
    );
}

#[test]
fn the_description_has_every_path_and_no_other() {
    let server = shared();
    let description = server.get("/openapi.json").json();
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() > 30);
    for (path, methods) in paths {
        let path = path.replace("{id}", "x").replace("{name}", "app.js");
        for method in methods.as_object().unwrap().keys() {
            let answer = server.send(&method.to_uppercase(), &path, &[], b"");
            assert_ne!(answer.status, 405, "{method} {path}");
            assert!(!answer.text().contains("Path not found"), "{method} {path}");
            assert!(answer.status < 500, "{method} {path}: {}", answer.text());
        }
        let answer = server.send("PURGE", &path, &[], b"");
        assert_eq!(answer.status, 405, "{path}");
    }
    assert_eq!(server.get("/v1/nothing").json()["error"]["code"], "not_found");
}

#[test]
fn the_page_may_reach_this_server_and_nothing_else() {
    let server = shared();
    let page = server.get("/");
    assert_eq!(
        (page.status, page.headers["content-type"].as_str()),
        (200, "text/html; charset=utf-8")
    );
    let policy = &page.headers["content-security-policy"];
    assert!(
        policy.contains("default-src 'none'")
            && policy.contains("frame-ancestors 'none'")
            && !policy.contains("unsafe")
    );
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let text = page.text();
    assert!(!text.contains("<style") && !text.contains(" style=") && !text.contains(" onclick="));
    for file in ["app.js", "style.css", "icon.svg"] {
        assert!(text.contains(&format!("page/{file}")), "{file}");
        let file = server.get(&format!("/page/{file}"));
        let outside = file.text().replace("http://www.w3.org/", "");
        assert!(
            file.status == 200 && !outside.contains("http://") && !outside.contains("https://")
        );
    }
    assert_eq!(server.get("/page/other").status, 404);
    assert_eq!(start(&[("page", "off")]).get("/").status, 404);
}

#[test]
fn a_prefix_moves_everything() {
    let server = start(&[("url-prefix", "mt/")]);
    assert_eq!(
        (server.get("/mt/").status, server.get("/mt/page/app.js").status, server.get("/").status),
        (200, 200, 404)
    );
    assert_eq!(
        server.post("/mt/v1/translate", &json!({"text": "Thank you.", "to": "pt"})).status,
        200
    );
    assert_eq!(
        server.post("/v1/translate", &json!({"text": "Thank you.", "to": "pt"})).status,
        404
    );
}

#[test]
fn bad_requests_get_a_sentence() {
    let server = shared();
    let cases: [(Value, u16, &str); 11] = [
        (json!({}), 400, "bad_request"),
        (json!({"text": "a"}), 400, "bad_request"),
        (json!({"text": 1.5, "to": "pt", "beam": []}), 400, "bad_request"),
        (json!({"text": [1], "to": "pt"}), 400, "bad_request"),
        (json!({"text": "a", "to": "xx"}), 400, "unknown_language"),
        (json!({"text": "a", "from": "pt", "to": "pt", "beam": 0}), 400, "bad_request"),
        (json!({"text": "a", "to": "pt", "split": "words"}), 400, "bad_request"),
        (json!({"text": "a", "to": "pt", "offsets": "lines"}), 400, "bad_request"),
        (json!({"text": "a", "to": "pt", "format": "docx"}), 400, "bad_request"),
        (json!({"text": vec!["a"; 5001], "to": "pt"}), 413, "too_large"),
        (json!({"text": "a".repeat(200_001), "to": "pt"}), 413, "too_large"),
    ];
    for (body, status, code) in cases {
        let answer = server.post("/v1/translate", &body);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, error["code"].as_str()),
            (status, Some(code)),
            "{}",
            answer.text()
        );
        assert!(error["message"].as_str().unwrap().len() > 5);
    }
    let deep = [b"{\"text\":".to_vec(), vec![b'['; 50_000]].concat();
    let json_type = [("content-type", "application/json")];
    for body in [&b"{"[..], b"null", b"\xff\xfe", b"{\"text\": \"\\ud800\"}", &deep] {
        assert_eq!(server.send("POST", "/v1/translate", &json_type, body).status, 400);
    }
    let large = vec![b'a'; 3 << 20];
    let answer = server.send("POST", "/v1/translate", &json_type, &large);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (413, Some("too_large")));
    let answer = server.send("POST", "/translate", &json_type, &large);
    assert!(answer.status == 400 && answer.json()["error"].is_string());
    let multipart = [("content-type", "multipart/form-data; boundary=b")];
    assert_eq!(
        server.send("POST", "/translate_file", &multipart, b"--b\r\ncontent-disp").status,
        400
    );
    // NUL and odd characters are text like any other.
    assert_eq!(
        server
            .post("/v1/translate", &json!({"text": "a\u{0}b \u{202e}\u{feff}", "to": "pt"}))
            .status,
        200
    );
    // Not HTTP at all.
    let mut stream = server.connect();
    stream.write_all(b"\x16\x03\x01 hello\r\n\r\n").unwrap();
    assert_eq!(Answer::read(&mut stream).status, 400);
}

#[test]
fn other_sites_may_ask_as_configured() {
    let server = shared();
    let preflight = server.send("OPTIONS", "/translate", &[("origin", "https://a.example")], b"");
    assert_eq!(
        (preflight.status, preflight.headers["access-control-allow-origin"].as_str()),
        (204, "*")
    );
    assert!(!preflight.headers.contains_key("access-control-allow-credentials"));
    let error = server.post("/translate", &json!({}));
    assert_eq!(error.headers["access-control-allow-origin"], "*");
    let closed = start(&[("cors-origin", "off")]);
    assert!(!closed.get("/languages").headers.contains_key("access-control-allow-origin"));
}

#[test]
fn ids_are_kept_or_made() {
    let server = shared();
    let send = |id: &str| {
        server.send("GET", "/languages", &[("x-request-id", id)], b"").headers["x-request-id"]
            .clone()
    };
    assert_eq!(send("abc-1"), "abc-1");
    assert_ne!(send("a b\"c"), "a b\"c");
    let mut stream = server.connect();
    stream.write_all(&request("GET", "/healthz", &[], b"")).unwrap();
    assert!(!Answer::read(&mut stream).headers["x-request-id"].is_empty());
}

/// Tags stay with their words, and everything else stays as it is.
#[test]
fn markup_survives() {
    let server = shared();
    let translate = |format: &str, text: &str| {
        let wanted = json!({"text": text, "from": "en", "to": "pt", "format": format});
        server.post("/v1/translate", &wanted)
    };
    let text =
        |answer: Answer| answer.json()["translations"][0]["text"].as_str().unwrap().to_owned();
    let page = "<!DOCTYPE html>\n<p class='a'>Two <b id=x>dogs</b> play in the snow.</p><br/><code>Two dogs</code>";
    let expected = "<!DOCTYPE html>\n<p class='a'>Dois <b id=x>cães</b> brincam na neve.</p><br/><code>Two dogs</code>";
    assert_eq!(text(translate("html", page)), expected);
    assert_eq!(
        text(translate("markdown", "# Two *dogs* play in the snow.\n")),
        "# Dois *cães* brincam na neve.\n"
    );
    assert_eq!(text(translate("html", "")), "");
    let broken = translate("xml", "<a><b></a>");
    assert_eq!(broken.status, 400);
    assert_eq!(translate("docx", "x").status, 400);
}

/// A file comes back as a file of the same kind, under a name of its own.
#[test]
fn documents() {
    let server = shared();
    let kind = [("content-type", "multipart/form-data; boundary=b")];
    let form = |name: &str, content: &str, to: &str| {
        format!(
            "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n{content}\r\n\
             --b\r\ncontent-disposition: form-data; name=\"to\"\r\n\r\n{to}\r\n--b--\r\n"
        )
    };
    let send = |name: &str, content: &str, to: &str| {
        server.send("POST", "/v1/documents", &kind, form(name, content, to).as_bytes())
    };
    let page = "<h1>Two <i>dogs</i> play in the snow.</h1>\n<script>dogs()</script>\n";
    let answer = send("../page.html", page, "pt");
    assert_eq!(
        answer.text(),
        "<h1>Dois <i>cães</i> brincam na neve.</h1>\n<script>dogs()</script>\n"
    );
    assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(answer.headers["content-disposition"], "attachment; filename=\"page.pt.html\"");
    assert_eq!(send("a.txt", "", "pt").text(), "");
    let kind_of = |answer: Answer| answer.json()["error"]["code"].as_str().unwrap().to_owned();
    assert_eq!(kind_of(send("a.xml", "<a>", "pt")), "bad_request");
    assert_eq!(kind_of(send("a.pdf", "%PDF-1.7", "pt")), "bad_request");
    assert_eq!(kind_of(send("a.exe", "x", "pt")), "not_supported");
    assert_eq!(kind_of(send("a.txt", "x", "xx")), "unknown_language");
    assert_eq!(server.post("/v1/documents", &json!({"to": "pt"})).status, 400);
}

/// Files have a limit of their own.
#[test]
fn files_may_be_larger_than_texts() {
    let server = start(&[("max-body", "1000"), ("max-file", "3000")]);
    let kind = [("content-type", "multipart/form-data; boundary=b")];
    let form = |length: usize| {
        let text = "1 ".repeat(length / 2);
        format!(
            "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\n{text}\r\n\
             --b\r\ncontent-disposition: form-data; name=\"to\"\r\n\r\npt\r\n--b--\r\n"
        )
    };
    let send = |length| server.send("POST", "/v1/documents", &kind, form(length).as_bytes()).status;
    assert_eq!((send(2000), send(4000)), (200, 413));
    let text = json!({"text": "1 ".repeat(1000), "to": "pt"});
    assert_eq!(server.post("/v1/translate", &text).status, 413);
}
