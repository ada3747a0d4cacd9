//! The digest of a model: by content, not by name.

use std::sync::Arc;

use peregrine_model::{Model, made_up_model, preset};
use peregrine_text::Tokenizer;

fn model(seed: u64) -> Model {
    made_up_model(preset("student", Some(64)).expect("a shape"), seed).expect("a model")
}

fn words(first: &str) -> Arc<Tokenizer> {
    let list: String = (0..61).map(|i| format!("w{i}\n")).collect();
    let list = format!("</s>\n<unk>\n{first}\n{list}");
    Arc::new(Tokenizer::words("vocab.txt", list.as_bytes().into(), None).expect("words"))
}

#[test]
fn the_same_model_has_the_same_digest_wherever_it_is() {
    let mut moved = model(1);
    moved.members[0].path = "elsewhere".into();
    moved.notes.push("a remark".into());
    assert_eq!(moved.digest(), model(1).digest());
}

#[test]
fn whatever_changes_words_changes_the_digest() {
    let digest = model(1).digest();
    assert_ne!(model(2).digest(), digest, "weights");
    let with = |change: &dyn Fn(&mut Model)| {
        let mut model = model(1);
        change(&mut model);
        model.digest()
    };
    assert_ne!(with(&|model| model.search.beam += 1), digest);
    assert_ne!(with(&|model| model.member_weights[0] = 0.5), digest);
    // A vocabulary of the same size with one other word.
    let (one, other) = (with(&|m| m.source = words("x")), with(&|m| m.source = words("y")));
    assert!(one != other && one != digest);
    assert_ne!(with(&|m| m.target = words("x")), with(&|m| m.target = words("y")));
}
