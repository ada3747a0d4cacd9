//! Glossaries: terms get into translations, are reported, and touch no other sentence.

use crate::common::{listed, nonsense, recurrent};
use peregrine::model::Autoregression;
use peregrine::{
    Carry, Compute, Entry, Glossary, GlossaryMode, How, Line, Options, Request, Service,
    ServiceOptions, StreamOptions, Term, Translation, Translator,
};

fn glossary(entries: &[(&str, &str)]) -> Glossary {
    let entries = entries.iter().map(|(source, target)| Entry::new(source, target));
    Glossary::new(entries).expect("a glossary")
}

fn translate(translator: &Translator, texts: &[&str], options: &Options) -> Vec<Translation> {
    let requests: Vec<Request<'_>> = texts.iter().map(|text| Request::new(text)).collect();
    translator.translate_batch(&requests, options).expect("translations")
}

/// What must hold for the report of any translation.
fn check(translation: &Translation, source: &str, glossary: &Glossary) {
    let found = glossary.find(source);
    for term in &translation.terms {
        assert!(found.iter().any(|found| found.range == term.source), "{term:?}");
        let surface = &source[term.source.clone()];
        let Some(target) = &term.target else {
            assert!(term.forbidden || term.how == How::Missing, "{term:?}");
            continue;
        };
        let text = translation.text()[target.clone()].to_lowercase();
        let entries =
            glossary.entries().iter().filter(|e| e.source.to_lowercase() == surface.to_lowercase());
        let mut forms = entries.flat_map(|entry| &entry.targets).map(|form| form.to_lowercase());
        assert!(
            forms.any(|form| form == text) || text == surface.to_lowercase(),
            "{text}: {term:?}"
        );
    }
    // No two terms stand at the same place.
    let mut places: Vec<_> =
        translation.terms.iter().filter_map(|term| term.target.clone()).collect();
    places.sort_by_key(|place| place.start);
    assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start), "{places:?}");
    for (sentence, alternative) in translation.sentences.iter().zip(&translation.alternatives) {
        let ranges = &alternative.token_ranges[sentence.targets[0].tokens.clone()];
        assert!(ranges.iter().all(|range| alternative.text.get(range.clone()).is_some()));
        assert!(ranges.is_sorted_by_key(|range| range.end));
    }
}

/// All that a caller sees of a translation.
fn view(translation: &Translation) -> impl PartialEq + std::fmt::Debug + use<> {
    let best = &translation.alternatives[0];
    let scores = (best.score, best.token_scores.clone(), best.token_ranges.clone());
    (best.text.clone(), scores, translation.terms.clone(), translation.sentences.clone())
}

#[cfg(feature = "builtin")]
mod builtin {
    use super::*;

    fn builtin() -> Translator {
        Translator::builtin().expect("the built-in model")
    }

    fn options(translator: &Translator, glossary: &Glossary) -> Options {
        let options = translator.options().with_scores(true).with_alignments(true);
        options.with_glossary(Some(glossary.clone()))
    }

    fn only(translation: &Translation) -> (&str, How) {
        let [Term { how, .. }] = translation.terms[..] else { panic!("{:?}", translation.terms) };
        (translation.text(), how)
    }

    #[test]
    fn terms_are_there() {
        let translator = builtin();
        let terms = glossary(&[("dogs", "cachorros"), ("snow", "neve"), ("bus", "autocarro")]);
        let options = options(&translator, &terms);
        let text = "Two dogs play in the snow.";
        let translation = &translate(&translator, &[text], &options)[0];
        assert!(translation.text().starts_with("Dois cachorros"), "{}", translation.text());
        let how: Vec<How> = translation.terms.iter().map(|term| term.how).collect();
        assert_eq!(how, [How::Constrained, How::Already]);
        let [dogs, snow] = &translation.terms[..] else { panic!("two terms") };
        assert_eq!(&text[dogs.source.clone()], "dogs");
        assert_eq!(&translation.text()[dogs.target.clone().expect("a place")], "cachorros");
        assert_eq!(&translation.text()[snow.target.clone().expect("a place")], "neve");
        assert!(dogs.cost > 0.0 && dogs.cost < 1.0 && snow.cost == 0.0);
        check(translation, text, &terms);
        let bus = &translate(&translator, &["The bus is late."], &options)[0];
        let (text, how) = only(bus);
        assert!(text.to_lowercase().contains("autocarro") && how != How::Missing, "{text}");
    }

    #[test]
    fn all_modes_have_the_term() {
        let translator = builtin();
        let terms = glossary(&[("dogs", "cachorros")]);
        for (mode, expected) in [
            (GlossaryMode::Constrain, How::Constrained),
            (GlossaryMode::Mask, How::Masked),
            (GlossaryMode::Replace, How::Replaced),
        ] {
            for carry in [Carry::Off, Carry::On] {
                let options =
                    options(&translator, &terms).with_glossary_mode(mode).with_carry(carry);
                let text = "Two dogs play in the snow.";
                let translation = &translate(&translator, &[text], &options)[0];
                assert_eq!(only(translation).1, expected);
                assert!(translation.text().contains("cachorros"), "{}", translation.text());
                check(translation, text, &terms);
            }
        }
    }

    #[test]
    fn what_is_kept_is_masked() {
        let translator = builtin();
        let terms = glossary(&[("Good Morning Foundation", ""), ("snow", "snow")]);
        for carry in [Carry::Off, Carry::On] {
            let options = options(&translator, &terms).with_carry(carry);
            let text = "The Good Morning Foundation has a dog in the snow.";
            let translation = &translate(&translator, &[text], &options)[0];
            assert!(
                translation.text().contains("Good Morning Foundation"),
                "{}",
                translation.text()
            );
            assert!(translation.text().contains("snow"), "{}", translation.text());
            assert!(translation.terms.iter().all(|term| term.how == How::Masked));
            check(translation, text, &terms);
            // Nothing but a term, and a term that is no word of the model.
            let alone = &translate(&translator, &["Good Morning Foundation"], &options)[0];
            assert_eq!(only(alone), ("Good Morning Foundation", How::Masked));
        }
        let odd = glossary(&[("bus", "автобус")]);
        let options = options(&translator, &odd);
        let translation = &translate(&translator, &["The bus is late."], &options)[0];
        assert_eq!(only(translation).1, How::Masked);
        assert!(translation.text().contains("автобус"), "{}", translation.text());
    }

    #[test]
    fn what_is_forbidden_is_not_there() {
        let translator = builtin();
        let forbidden = Entry::new("dogs", "cães").with_flag("forbid").expect("a flag");
        let terms = Glossary::new([forbidden]).expect("a glossary");
        let options = options(&translator, &terms);
        let translation = &translate(&translator, &["Two dogs play in the snow."], &options)[0];
        assert!(!translation.text().contains("cães"), "{}", translation.text());
        assert_eq!(only(translation).1, How::Constrained);
        assert!(translation.terms[0].forbidden && translation.terms[0].target.is_none());
        let replace = options.with_glossary_mode(GlossaryMode::Replace);
        let translation = &translate(&translator, &["Two dogs play in the snow."], &replace)[0];
        assert_eq!(only(translation).1, How::Missing, "it cannot be replaced, and that is told");
    }

    /// Terms beside what is carried, in capitals, in several sentences, twice, with many hypotheses.
    #[test]
    fn glossary_and_carry_go_together() {
        let translator = builtin();
        let terms = glossary(&[("dogs", "cachorros"), ("Acme", ""), ("station", "gare")]);
        let mut options =
            options(&translator, &terms).with_carry(Carry::On).with_beam(3).with_n_best(2);
        options.split = peregrine::Split::Sentence;
        for (text, kept) in [
            ("Two dogs of {name} play in the snow.", &["{name}", "cachorros"][..]),
            ("THE DOGS ARE NOT ALLOWED IN THE GARDEN.", &["CACHORROS"]),
            (
                "Dogs!  Where are the dogs of Acme? 🦀\tAt the station.",
                &["Acme", "🦀", "\t", "gare"],
            ),
            (
                "See https://example.org/dogs for the dogs.",
                &["https://example.org/dogs", "cachorros"],
            ),
            ("The station has 1500 dogs.", &["1500"]),
        ] {
            let translation = &translate(&translator, &[text], &options)[0];
            check(translation, text, &terms);
            for kept in kept {
                assert!(translation.text().contains(kept), "{text}: {}", translation.text());
            }
            let words = terms.find(text).len() - usize::from(text.contains("https"));
            assert_eq!(translation.terms.len(), words, "{text}: {:?}", translation.terms);
        }
    }

    const TEXTS: [&str; 8] = [
        "Two dogs play in the snow.",
        "The dogs of {name} sleep. The bus is late!",
        "Good morning!",
        "Where is the station, and where are the dogs?",
        "I love pizza 🍕.",
        "",
        "My bus left the station at nine.",
        "The cat looks at the dogs.",
    ];

    /// A batch, a stream and a service give the same, in any company and order.
    #[test]
    fn all_ways_give_the_same() {
        let translator = builtin();
        let terms = glossary(&[("dogs", "cachorros"), ("bus", "autocarro"), ("pizza", "")]);
        let options = options(&translator, &terms).with_carry(Carry::On);
        let alone = TEXTS.map(|text| view(&translate(&translator, &[text], &options)[0]));
        let together = translate(&translator, &TEXTS, &options);
        assert_eq!(together.iter().map(view).collect::<Vec<_>>(), alone);
        let workers = translator.workers().with_threads(2);
        let mut streamed = Vec::new();
        let stream = StreamOptions::new(options.clone(), workers);
        let lines = TEXTS.iter().map(|text| Ok(Line::new(*text)));
        let done = translator.stream(lines, &stream, |answer| {
            streamed.push(view(&answer.translation));
            Ok::<(), peregrine::Error>(())
        });
        done.expect("a stream");
        assert_eq!(streamed, alone);
    }

    /// Requests with glossaries of their own run in one batch, and each has its own terms.
    #[test]
    fn a_service_has_many_glossaries() {
        let translator = builtin();
        let plain = translator.options().with_scores(true).with_alignments(true);
        let kinds = [
            plain.clone(),
            plain.clone().with_glossary(Some(glossary(&[("dogs", "cachorros")]))),
            plain.clone().with_glossary(Some(glossary(&[("dogs", "")]))).with_carry(Carry::On),
            plain
                .with_glossary(Some(glossary(&[("dogs", "gatos"), ("bus", "autocarro")])))
                .with_beam(2),
        ];
        let expected: Vec<_> = kinds
            .iter()
            .flat_map(|options| {
                TEXTS.map(|text| view(&translate(&translator, &[text], options)[0]))
            })
            .collect();
        let workers = translator.workers().with_threads(2);
        let service = Service::new(&translator, &ServiceOptions::new(workers));
        let requests: Vec<Request<'_>> = kinds
            .iter()
            .flat_map(|options| {
                TEXTS.iter().map(move |text| Request::new(text).with_options(options))
            })
            .collect();
        let served = service.translate_batch(&requests).expect("translations");
        assert_eq!(served.iter().map(view).collect::<Vec<_>>(), expected);
    }

    /// Whoever has no term is translated as ever, to the bit, also beside a search for terms.
    #[test]
    fn sentences_without_terms_are_as_ever() {
        let translator = builtin();
        let without = translator.options().with_scores(true).with_alignments(true);
        let terms = glossary(&[("dogs", "cachorros"), ("zebra", "")]);
        let with = without.clone().with_glossary(Some(terms.clone()));
        let expected = translate(&translator, &TEXTS, &without);
        let found = translate(&translator, &TEXTS, &with);
        for ((text, expected), found) in TEXTS.iter().zip(&expected).zip(&found) {
            if terms.find(text).is_empty() {
                assert_eq!(view(expected), view(found), "{text}");
            }
        }
    }
}

/// Any terms of any model are honoured or reported, alone or in company, to the last bit.
#[test]
fn terms_of_models_of_random_numbers() {
    let compute = Compute::default();
    for (name, translator) in [
        ("attention", nonsense(Autoregression::SelfAttention)),
        ("shortlist", listed(Autoregression::SelfAttention, &compute)),
        ("recurrent", recurrent(&compute)),
    ] {
        let terms = glossary(&[
            ("w3", "w40"),
            ("w5 w8", "w41 w42|w43"),
            ("w9", ""),
            ("w11", "w12"),
            ("w13", "w40 w44"),
        ]);
        let base = translator.options().with_scores(true).with_alignments(true);
        let options = base.clone().with_glossary(Some(terms.clone()));
        let texts =
            ["w3", "w3 w5 w8 w13", "w5 w8 w3 w9 w11", "w20 w21 w22", "w3 w3 w30", "w13 w3 w31 w32"];
        let alone = texts.map(|text| translate(&translator, &[text], &options).remove(0));
        let together = translate(&translator, &texts, &options);
        let mut honoured = 0;
        for ((alone, together), text) in alone.iter().zip(&together).zip(texts) {
            check(alone, text, &terms);
            assert_eq!(view(alone), view(together), "{name}: {text}");
            assert_eq!(alone.terms.len(), terms.find(text).len());
            honoured += alone.terms.iter().filter(|term| term.how != How::Missing).count();
        }
        assert!(honoured > 3, "{name}: {honoured}");
        let free = translate(&translator, &["w20 w21 w22"], &base);
        assert_eq!(view(&free[0]), view(&together[3]), "{name}");
    }
}
