//! A multilingual model serves every pair of its languages.

use crate::common::start;
use serde_json::json;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/m2m100/hf");

#[test]
fn every_pair_is_served() {
    let server = start(&[("model", MODEL)]);
    let translate = |text: &str, from: &str, to: &str| {
        let body = json!({"text": text, "from": from, "to": to});
        server.post("/v1/translate", &body)
    };
    // The model puts English in lower case where it should be Portuguese, and copies it for French. Twice each: the cache keeps
    // the languages apart.
    let text = "My brother repairs old clocks.";
    let read = |to: &str| translate(text, "en", to).json()["translations"][0]["text"].clone();
    let answers = [read("pt"), read("fr"), read("pt"), read("fr")];
    assert_eq!((&answers[0], &answers[1]), (&answers[2], &answers[3]));
    assert_ne!(answers[0], answers[1]);
    let model = peregrine::Translator::open(&[MODEL.into()], &Default::default()).unwrap();
    let options = model.text_options();
    let request = peregrine::Request::new(text).between("en", "fr");
    let expected = model.translate_batch(&[request], &options).unwrap().remove(0);
    assert_eq!(answers[1], expected.text());
    // A language by its name, and one that the model does not have.
    assert_eq!(translate(text, "English", "French").json()["translations"][0]["text"], answers[1]);
    let unknown = translate(text, "en", "Klingon");
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    let languages = server.get("/v1/languages").json();
    assert_eq!(languages["languages"].as_array().unwrap().len(), 100);
    assert_eq!(languages["pairs"].as_array().unwrap().len(), 100 * 99);
    let libre = server.get("/languages").json();
    assert_eq!(libre.as_array().unwrap().len(), 100);
    let models = server.get("/v1/models").json();
    assert_eq!(models["models"][0]["languages"].as_array().map(Vec::len), Some(100), "{models}");
}
