//! The dialects, by the requests that their real clients send. They were recorded once with `tests/clients/run --record`: each
//! client spoke to a server that wrote down what came.

use crate::common::{shared, start};
use serde_json::{Value, json};

const DOGS: &str = "Two dogs play in the snow.";
const CAES: &str = "Dois cães brincam na neve.";

#[test]
fn libretranslate_translates_one_and_many() {
    let server = shared();
    let one = server.post("/translate", &json!({"q": DOGS, "source": "en", "target": "pt"}));
    assert_eq!((one.status, one.json()), (200, json!({"translatedText": CAES})));
    assert!(one.body.ends_with(b"\n"));
    let many = server.post("/translate", &json!({"q": [DOGS, "", DOGS], "source": "en", "target": "pt", "format": "text", "api_key": null}));
    assert_eq!(many.json()["translatedText"], json!([CAES, "", CAES]));
    // libretranslatepy and deep-translator: a form, and a query without a body.
    let form =
        server.form("/translate", "q=Two+dogs+play+in+the+snow.&source=en&target=pt&api_key=K");
    assert_eq!(form.json()["translatedText"], CAES);
    let query = server.form("/translate?q=Two%20dogs%20play%20in%20the%20snow.&source=en&target=pt&format=text&api_key=K", "");
    assert_eq!(query.json()["translatedText"], CAES);
}

#[test]
fn libretranslate_detects_and_gives_alternatives() {
    let server = shared();
    let auto = server
        .post(
            "/translate",
            &json!({"q": DOGS, "source": "auto", "target": "pt", "alternatives": 2}),
        )
        .json();
    assert_eq!(auto["detectedLanguage"]["language"], "en");
    assert!(auto["detectedLanguage"]["confidence"].as_f64().unwrap() <= 100.0);
    let others = auto["alternatives"].as_array().unwrap();
    assert!(!others.is_empty() && others.len() <= 2 && !others.contains(&auto["translatedText"]));
    let list = server
        .post(
            "/translate",
            &json!({"q": [DOGS], "source": "auto", "target": "pt", "alternatives": "1"}),
        )
        .json();
    assert!(list["detectedLanguage"][0]["language"] == "en" && list["alternatives"][0].is_array());
    let detected = server.form("/detect", "q=This+is+a+plain+sentence+of+English+words").json();
    assert_eq!(detected[0]["language"], "en");
}

#[test]
fn libretranslate_errors_have_their_texts() {
    let server = shared();
    let cases: [(Value, u16, &str); 8] = [
        (json!({}), 400, "Invalid request: missing q parameter"),
        (json!({"q": "a"}), 400, "Invalid request: missing source parameter"),
        (json!({"q": "a", "source": "en"}), 400, "Invalid request: missing target parameter"),
        (
            json!({"q": "", "source": "en", "target": "pt"}),
            400,
            "Invalid request: missing q parameter",
        ),
        (json!({"q": "a", "source": "en", "target": "zz"}), 400, "zz is not supported"),
        (
            json!({"q": "a", "source": "en", "target": "pt", "format": "md"}),
            400,
            "md format is not supported",
        ),
        (
            json!({"q": "a", "source": "en", "target": "pt", "alternatives": "x"}),
            400,
            "Invalid request: alternatives parameter is not a number",
        ),
        (json!({"q": "a", "source": ["en"], "target": "pt"}), 400, "source must be a string"),
    ];
    for (body, status, text) in cases {
        let answer = server.post("/translate", &body);
        assert_eq!(
            (answer.status, answer.json()["error"].as_str()),
            (status, Some(text)),
            "{body}"
        );
    }
    let pair = server.post("/translate", &json!({"q": "a", "source": "pt", "target": "en"}));
    let text = "English (en) is not available as a target language from Portuguese (pt)";
    assert_eq!((pair.status, pair.json()), (400, json!({"error": text})));
    // A language is a target of itself.
    let same = server.post("/translate", &json!({"q": " a ", "source": "pt", "target": "pt"}));
    assert_eq!(same.json(), json!({"translatedText": " a "}));
    assert_eq!(
        server.send("POST", "/translate", &[("content-type", "application/json")], b"{").status,
        400
    );
    assert_eq!(server.get("/translate").status, 405);
    assert_eq!(
        server
            .post("/suggest", &json!({"q": "a", "s": "b", "source": "en", "target": "pt"}))
            .status,
        403
    );
}

#[test]
fn libretranslate_lists_languages_and_settings() {
    let server = shared();
    let languages = server.get("/languages").json();
    let english =
        languages.as_array().unwrap().iter().find(|language| language["code"] == "en").unwrap();
    assert_eq!(
        (english["name"].as_str(), &english["targets"]),
        (Some("English"), &json!(["en", "pt"]))
    );
    // Argos' own client asks with POST, libretranslatepy with a body.
    assert_eq!(server.form("/languages", "").json(), languages);
    assert_eq!(
        server
            .send(
                "GET",
                "/languages",
                &[("content-type", "application/x-www-form-urlencoded")],
                b"api_key=K"
            )
            .json(),
        languages
    );
    let settings = server.get("/frontend/settings").json();
    assert_eq!(settings["keyRequired"], json!(false));
    let files = settings["supportedFilesFormat"].as_array().unwrap();
    let knows = |ending: &str| files.contains(&json!(ending));
    assert!(knows(".txt") && knows(".docx") && knows(".srt") && !knows(".pdf"));
    assert_eq!(
        server.send("GET", "/health", &[("content-type", "application/json")], b"{}").json(),
        json!({"status": "ok"})
    );
    assert_eq!(server.get("/spec").json()["swagger"], "2.0");
}

#[test]
fn libretranslate_translates_files() {
    let server = shared();
    let part = |name: &str, value: &str| {
        format!("--b\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file = |name: &str| {
        let head = format!(
            "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n"
        );
        format!(
            "{head}{DOGS}\n\n{DOGS}\n\r\n{}{}--b--\r\n",
            part("source", "en"),
            part("target", "pt")
        )
    };
    let kind = [("content-type", "multipart/form-data; boundary=b")];
    let answer = server.send("POST", "/translate_file", &kind, file("../a.txt").as_bytes()).json();
    let url = answer["translatedFileUrl"].as_str().unwrap();
    let path = url.strip_prefix("http://localhost").unwrap();
    let fetched = server.get(path);
    assert_eq!(fetched.text(), format!("{CAES}\n\n{CAES}\n"));
    assert_eq!(fetched.headers["content-disposition"], "attachment; filename=\"a_pt.txt\"");
    assert_eq!(server.get("/download_file/..%2f..%2fetc%2fpasswd").status, 404);
    let refused = server.send("POST", "/translate_file", &kind, file("a.docx").as_bytes());
    assert!(refused.status == 400 && refused.json()["error"].is_string());
    let refused = server.send("POST", "/translate_file", &kind, file("a.exe").as_bytes());
    assert_eq!(
        (refused.status, refused.json()["error"].as_str()),
        (400, Some("Invalid request: file format not supported"))
    );
}

/// As Mastodon asks for the content of a post.
#[test]
fn libretranslate_keeps_tags() {
    let post = format!(
        "<p>{DOGS}</p><p>See <a href=\"https://example.com/?a=1&amp;b\">us</a> &lt;b&gt;</p>"
    );
    let body = json!({"q": [post, ""], "source": "auto", "target": "pt", "format": "html", "alternatives": 2});
    let answer = shared().post("/translate", &body).json();
    let text = answer["translatedText"][0].as_str().unwrap();
    assert!(text.starts_with(&format!("<p>{CAES}</p><p>")), "{text}");
    assert!(text.contains("<a href=\"https://example.com/?a=1&amp;b\">"), "{text}");
    // What was escaped stays so.
    assert!(text.contains("&lt;b&gt;") && text.ends_with("</p>"), "{text}");
    assert_eq!(answer["alternatives"], json!([[], []]));
    assert_eq!(answer["translatedText"][1], "");
}

#[test]
fn deepl_as_its_python_client_speaks() {
    let server = shared();
    let key = ("authorization", "DeepL-Auth-Key k");
    let body = json!({"text": [DOGS, "Thank you."], "target_lang": "PT-BR", "source_lang": "EN", "show_billed_characters": true});
    let headers = [key, ("content-type", "application/json")];
    let answer = server.send("POST", "/v2/translate", &headers, body.to_string().as_bytes()).json();
    let translations = answer["translations"].as_array().unwrap();
    assert_eq!(translations.len(), 2);
    assert_eq!(
        translations[0],
        json!({"detected_source_language": "EN", "text": CAES, "billed_characters": 26})
    );
    let usage = server.send("GET", "/v2/usage", &[key], b"").json();
    assert!(
        usage["character_limit"].as_u64().unwrap() > usage["character_count"].as_u64().unwrap()
    );
    // The type is the body of a GET.
    let form = [key, ("content-type", "application/x-www-form-urlencoded")];
    let targets = server.send("GET", "/v2/languages", &form, b"type=target").json();
    // The client refuses PT as a target before it sends anything.
    let codes: Vec<&str> = targets
        .as_array()
        .unwrap()
        .iter()
        .map(|target| target["language"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["PT-BR", "PT-PT"]);
    assert!(targets[0]["name"].is_string() && targets[0]["supports_formality"] == false);
    let sources = server.send("GET", "/v2/languages", &form, b"type=source").json();
    assert_eq!(sources[0]["language"], "EN");
}

#[test]
fn deepl_as_its_node_client_and_others_speak() {
    let server = shared();
    let form = "text=Two%20dogs%20play%20in%20the%20snow.&text=Thank%20you.&target_lang=pt-BR&show_billed_characters=1";
    let answer = server.form("/v2/translate", form).json();
    assert_eq!(answer["translations"][0]["text"], CAES);
    assert_eq!(answer["translations"][1]["detected_source_language"], "EN");
    let path = "/v2/translate?auth_key=K&source_lang=en&target_lang=pt&text=Two%20dogs%20play%20in%20the%20snow.";
    assert_eq!(server.get(path).json()["translations"][0]["text"], CAES);
    let kiss = server
        .post("/v2/translate", &json!({"text": [DOGS], "target_lang": "PT", "source_lang": ""}))
        .json();
    assert_eq!(kiss["translations"][0]["text"], CAES);
}

#[test]
fn deepl_documents() {
    let server = shared();
    let body = format!(
        "--b\r\ncontent-disposition: form-data; name=\"target_lang\"\r\n\r\nPT-PT\r\n\
         --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"in.txt\"\r\n\r\n{DOGS}\r\n--b--\r\n"
    );
    let kind = [("content-type", "multipart/form-data; boundary=b")];
    let made = server.send("POST", "/v2/document", &kind, body.as_bytes()).json();
    let (id, key) = (made["document_id"].as_str().unwrap(), made["document_key"].as_str().unwrap());
    let status = server.post(&format!("/v2/document/{id}"), &json!({"document_key": key})).json();
    assert_eq!(status["status"], "done");
    assert_eq!(
        server.post(&format!("/v2/document/{id}"), &json!({"document_key": "x"})).status,
        404
    );
    let result = server.form(&format!("/v2/document/{id}/result"), &format!("document_key={key}"));
    assert_eq!(result.text(), CAES);
    assert_eq!(
        server.form(&format!("/v2/document/{id}/result"), &format!("document_key={key}")).status,
        404
    );
}

#[test]
fn deepl_keeps_tags() {
    let server = shared();
    let translate = |text: &str, options: &Value| {
        let mut body = json!({"text": [text], "target_lang": "PT", "source_lang": "EN"});
        let given = options.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(given);
        server.post("/v2/translate", &body)
    };
    let text = |answer: crate::common::Answer| {
        answer.json()["translations"][0]["text"].as_str().unwrap().to_owned()
    };
    let bold = "Two <b>dogs</b> play in the snow.";
    for kind in ["html", "xml"] {
        let made = text(translate(bold, &json!({"tag_handling": kind})));
        assert_eq!(made, "Dois <b>cães</b> brincam na neve.");
    }
    // As Weblate sends placeholders.
    let options = json!({"tag_handling": "xml", "ignore_tags": ["x"]});
    let made = text(translate("Two dogs of <x id=\"7\"></x> play in the snow.", &options));
    assert!(made.contains("<x id=\"7\"></x>") && made.contains("cães"), "{made}");
    let made = text(translate("Two dogs play in <x>the snow</x>.", &options));
    assert!(made.contains("<x>the snow</x>"), "{made}");
    let form = "text=Two+dogs+play+in+the+snow.%3Cbr%2F%3E&target_lang=PT&source_lang=EN&tag_handling=xml&ignore_tags=x&ignore_tags=y";
    let made = server.form("/v2/translate", form);
    assert_eq!(made.json()["translations"][0]["text"], format!("{CAES}<br/>"));
    assert_eq!(translate("a <b>", &json!({"tag_handling": "xml"})).status, 400);
}

#[test]
fn deepl_says_what_it_cannot_do() {
    let server = shared();
    let base = json!({"text": ["a"], "target_lang": "PT", "source_lang": "EN"});
    for (name, value) in [
        ("tag_handling", json!("sgml")),
        ("formality", json!("more")),
        ("custom_instructions", json!(["Be kind."])),
    ] {
        let mut body = base.clone();
        body[name] = value;
        let answer = server.post("/v2/translate", &body);
        assert_eq!(answer.status, 400, "{name}");
        assert!(answer.json()["message"].as_str().unwrap().contains(name));
    }
    let mut body = base.clone();
    body["glossary_id"] = json!("g");
    assert_eq!(server.post("/v2/translate", &body).status, 404);
    assert_eq!(server.get("/v2/glossaries/x").status, 404);
    assert_eq!(
        server.post("/v2/translate", &json!({"text": ["a"], "target_lang": "XX"})).status,
        400
    );
    assert!(server.post("/v2/write/rephrase", &json!({})).json()["message"].is_string());
}

#[test]
fn google_as_its_clients_speak() {
    let server = shared();
    let python = json!({"target": "pt", "q": [DOGS, "Thank you."], "cid": [], "format": null, "source": null, "model": null});
    let answer = server.post("/language/translate/v2?prettyPrint=false", &python).json();
    let translations = answer["data"]["translations"].as_array().unwrap();
    assert_eq!((translations.len(), &translations[0]["translatedText"]), (2, &json!(CAES)));
    assert_eq!(translations[0]["detectedSourceLanguage"], "en");
    let detected = server
        .post("/language/translate/v2/detect", &json!({"q": ["These are English words in a row"]}))
        .json();
    assert_eq!(detected["data"]["detections"][0][0]["language"], "en");
    let languages = server.get("/language/translate/v2/languages?target=en").json();
    assert_eq!(languages["data"]["languages"][0], json!({"language": "en", "name": "English"}));
    let weblate = server.get("/language/translate/v2/?key=k&q=Two+dogs+play+in+the+snow.&source=en&target=pt&format=text").json();
    assert_eq!(weblate["data"]["translations"][0]["translatedText"], CAES);
    let error = server.post("/language/translate/v2", &json!({"q": ["a"], "target": "xx"}));
    assert_eq!((error.status, &error.json()["error"]["code"]), (400, &json!(400)));
    for format in [json!(null), json!("html")] {
        let body = json!({"q": ["Two <b>dogs</b> play in the snow."], "target": "pt", "source": "en", "format": format});
        let markup = server.post("/language/translate/v2", &body).json();
        let text = &markup["data"]["translations"][0]["translatedText"];
        assert_eq!(text, "Dois <b>cães</b> brincam na neve.");
    }
}

#[test]
fn small_dialects() {
    let server = shared();
    let mtran = server
        .post("/translate", &json!({"from": "en", "to": "pt", "text": DOGS, "html": false}))
        .json();
    assert_eq!(mtran, json!({"result": CAES}));
    let batch = server
        .post("/translate/batch", &json!({"from": "auto", "to": "pt", "texts": [DOGS, DOGS]}))
        .json();
    assert_eq!(batch, json!({"results": [CAES, CAES]}));
    let deeplx = server
        .post("/translate", &json!({"text": DOGS, "source_lang": "auto", "target_lang": "PT"}))
        .json();
    assert_eq!(
        (&deeplx["code"], &deeplx["data"], &deeplx["source_lang"]),
        (&json!(200), &json!(CAES), &json!("EN"))
    );
    let imme = server
        .post(
            "/imme?token=",
            &json!({"source_lang": "en", "target_lang": "pt", "text_list": [DOGS]}),
        )
        .json();
    assert_eq!(imme, json!({"translations": [{"detected_source_lang": "en", "text": CAES}]}));
    let kiss = server.post("/kiss", &json!({"text": DOGS, "from": "auto", "to": "pt"})).json();
    assert_eq!(kiss, json!({"text": CAES, "src": "en"}));
    let kiss = server.post("/kiss", &json!({"texts": [DOGS], "from": "en", "to": "pt"})).json();
    assert_eq!(kiss, json!({"translations": [{"text": CAES, "src": "en"}]}));
    let deepl = server.post("/deepl", &json!({"text": DOGS, "target_lang": "PT"})).json();
    assert_eq!(deepl["translations"][0]["text"], CAES);
    let hcfy = server.post("/hcfy", &json!({"text": format!("{DOGS}\n{DOGS}"), "destination": ["葡萄牙语", "英语"], "source": "英语"})).json();
    assert_eq!((&hcfy["result"], &hcfy["to"]), (&json!([CAES, CAES]), &json!("葡萄牙语")));
    let single = "/google/translate_a/single?client=gtx&dt=t&sl=en&tl=pt&q=Two%20dogs%20play%20in%20the%20snow.";
    assert_eq!(server.get(single).json()[0][0][0], CAES);
    assert_eq!(server.get(&format!("{single}&dj=1")).json()["sentences"][0]["trans"], CAES);
    let page = format!("<p>{DOGS}</p>");
    let html =
        server.post("/translate", &json!({"from": "en", "to": "pt", "text": page, "html": true}));
    assert_eq!(html.json(), json!({"result": format!("<p>{CAES}</p>")}));
    assert_eq!(server.get("/__heartbeat__").status, 200);
}

#[test]
fn keys_are_taken_where_each_dialect_puts_them() {
    let server = start(&[("key", "alpha,beta")]);
    let libre = json!({"q": "Hi", "source": "en", "target": "pt"});
    assert_eq!(server.post("/translate", &libre).status, 400);
    let with = |key: &str| {
        let mut body = libre.clone();
        body["api_key"] = key.into();
        server.post("/translate", &body)
    };
    assert_eq!((with("alpha").status, with("alphabet").status), (200, 403));
    let deepl = json!({"text": ["Hi"], "target_lang": "PT"}).to_string();
    let send = |path: &str, header: (&str, &str), body: &str| {
        server
            .send("POST", path, &[header, ("content-type", "application/json")], body.as_bytes())
            .status
    };
    assert_eq!(send("/v2/translate", ("authorization", "DeepL-Auth-Key beta"), &deepl), 200);
    assert_eq!(send("/v2/translate", ("authorization", "DeepL-Auth-Key no"), &deepl), 403);
    assert_eq!(send("/v2/translate", ("x-none", ""), &deepl), 403);
    let native = json!({"text": "Hi", "to": "pt"}).to_string();
    assert_eq!(send("/v1/translate", ("authorization", "Bearer alpha"), &native), 200);
    assert_eq!(send("/v1/translate", ("x-none", ""), &native), 401);
    assert_eq!(send("/v1/translate", ("authorization", "Bearer x"), &native), 403);
    let google = json!({"q": ["Hi"], "target": "pt"}).to_string();
    assert_eq!(send("/language/translate/v2?key=beta", ("x-none", ""), &google), 200);
    assert_eq!(send("/language/translate/v2?key=x", ("x-none", ""), &google), 403);
    let deeplx = json!({"text": "Hi", "target_lang": "PT"}).to_string();
    assert_eq!(send("/deeplx?token=alpha", ("x-none", ""), &deeplx), 200);
    assert_eq!(send("/deeplx?token=no", ("x-none", ""), &deeplx), 401);
    assert_eq!(send("/imme?token=no", ("x-none", ""), "{}"), 401);
    // What needs no key: the page, health, metrics, downloads.
    for path in [
        "/",
        "/languages",
        "/health",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/frontend/settings",
    ] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    // No key is ever told.
    for path in ["/metrics", "/openapi.json", "/v1/models", "/frontend/settings"] {
        let text = server.get(path).text();
        assert!(!text.contains("alpha") && !text.contains("beta"), "{path}");
    }
}

/// A glossary of DeepL's, and terms of a request of its own.
#[test]
fn glossaries_are_used() {
    let server = start(&[]);
    let refused = server.post("/v2/glossaries", &json!({"name": "t"}));
    assert!(refused.status == 400 && refused.json()["message"].is_string());
    let body = json!({"name": "t", "source_lang": "EN", "target_lang": "PT", "entries": "dogs\tcachorros\nsnow\t\n", "entries_format": "tsv"});
    let made = server.post("/v2/glossaries", &body);
    assert_eq!(made.status, 201);
    let id = made.json()["glossary_id"].as_str().unwrap().to_owned();
    let mut body =
        json!({"text": [DOGS], "target_lang": "PT", "source_lang": "EN", "glossary_id": id});
    let text = |body: &Value| {
        let answer = server.post("/v2/translate", body);
        answer.json()["translations"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    let with = text(&body);
    assert!(with.contains("cachorros") && with.contains("snow"), "{with}");
    body["source_lang"] = Value::Null;
    let refused = server.post("/v2/translate", &body);
    assert!(refused.status == 400 && refused.text().contains("source_lang"));
    body["glossary_id"] = Value::Null;
    assert_eq!(text(&body), CAES);
    let form = "name=u&dictionaries[0].source_lang=en&dictionaries[0].target_lang=pt&dictionaries[0].entries=dogs%09c%C3%A3ezinhos&dictionaries[0].entries_format=tsv";
    let made = server.form("/v3/glossaries", form);
    assert_eq!((made.status, &made.json()["dictionaries"][0]["entry_count"]), (201, &json!(1)));
    let own = json!({"text": DOGS, "to": "pt", "glossary": {"dogs": "cachorros"}});
    let answer = server.post("/v1/translate", &own).json()["translations"][0].clone();
    assert!(answer["text"].as_str().unwrap().contains("cachorros"), "{answer}");
    assert_eq!(
        (&answer["terms"][0]["source"], &answer["terms"][0]["how"]),
        (&json!([4, 8]), &json!("constrained"))
    );
    let wrong = server.post("/v1/translate", &json!({"text": DOGS, "to": "pt", "glossary": [1]}));
    assert_eq!(wrong.status, 400);
}
