//! M2M-100, NLLB-200 and mBART-50 answer as `transformers` and CTranslate2 do, from text and the names of two languages.

use std::path::{Path, PathBuf};

use peregrine::model::Dialect;
use peregrine::{CachePrecision, Compute, OpenOptions, Options, Request, Translation, Translator};
use peregrine_tests::json::{assert_scores, changed_copy, floats, jsonl, numbers};
use peregrine_tests::{TIE, fixture, open, open_as, shared};
use serde_json::{Value, json};

/// A family's model: its folder and the name of the source language.
struct Golden {
    name: &'static str,
    folder: PathBuf,
    from: &'static str,
}

/// A line of the reference: its text, and the target language by its plain name.
struct Line {
    text: String,
    to: &'static str,
    ids: Vec<u32>,
}

impl Line {
    /// Whether the tool that wrote the reference reads the text in another way (docs/exactness.md): an empty line is
    /// given to the model, and `tokenizer.json` keeps blanks at the end and swallows a literal U+2581.
    fn is_odd(&self, family: &str) -> bool {
        let by_json = self.text.ends_with(' ') || self.text.contains('\u{2581}');
        self.text.is_empty() || (by_json && family != "m2m100")
    }
}

const FAMILIES: [(&str, &str); 3] =
    [("m2m100", "en"), ("nllb", "eng_Latn"), ("mbart50", "English")];

/// The models of this repository, and the same with other lines where there are reference models.
fn families() -> Vec<Golden> {
    let own = FAMILIES.map(|(name, from)| Golden { name, folder: fixture(name), from });
    own.into_iter().chain(reference_families()).collect()
}

fn reference_families() -> Vec<Golden> {
    let golden = |(name, from): (&'static str, _)| {
        let folder = shared(&format!("models/more/{name}"))?;
        Some(Golden { name, folder, from })
    };
    FAMILIES.into_iter().filter_map(golden).collect()
}

impl Golden {
    fn open(&self) -> Translator {
        open(&self.folder.join("hf"), &OpenOptions::default())
    }

    /// A directory of CTranslate2, with the SentencePiece model of the other one.
    fn open_ctranslate2(&self, folder: &Path, compute: &Compute) -> Translator {
        let spm = self.folder.join("hf/sentencepiece.bpe.model");
        let vocabularies = Some((spm.clone(), spm));
        open_as(folder, &OpenOptions { vocabularies, ..OpenOptions::default() }, compute)
    }

    fn lines(&self) -> Vec<Line> {
        let line = |value: Value| {
            let code = value["target_prefix"].as_str().unwrap().to_lowercase();
            let to = if code.contains("fr") { "fr" } else { "pt" };
            Line {
                text: value["text"].as_str().unwrap().to_owned(),
                to,
                ids: numbers(&value["ids"]),
            }
        };
        jsonl(&self.folder.join("source.jsonl")).into_iter().map(line).collect()
    }

    /// The lines of the reference that both tools read in the same way, with their numbers.
    fn comparable<'a>(
        &self,
        ours: &'a [Translation],
        theirs: &'a [Value],
    ) -> Vec<(usize, &'a Translation, &'a Value)> {
        let lines = self.lines();
        let all = ours.iter().zip(theirs).enumerate().map(|(number, (a, b))| (number, a, b));
        all.filter(|(number, ..)| !lines[*number].is_odd(self.name)).collect()
    }

    /// All lines in one batch: two target languages meet in it.
    fn translate(&self, translator: &Translator, options: &Options) -> Vec<Translation> {
        let lines = self.lines();
        let request = |line: &'_ Line| -> (String, &'static str) { (line.text.clone(), line.to) };
        let texts: Vec<_> = lines.iter().map(request).collect();
        let requests: Vec<Request<'_>> =
            texts.iter().map(|(text, to)| Request::new(text).between(self.from, to)).collect();
        translator.translate_batch(&requests, options).unwrap()
    }
}

/// Options of the reference: at most 63 words, the language and the end symbol among them.
fn options(translator: &Translator, beam: usize) -> Options {
    let mut options = translator.options().with_beam(beam).with_n_best(beam).with_scores(true);
    options.search.max_length = Some(63);
    options.search.normalize = 1.0;
    options.search.bound = Default::default();
    options
}

/// The text of tokens without the language and the end symbol.
fn words(translator: &Translator, ids: &[u32]) -> Vec<String> {
    let target = &translator.model().target;
    let own = ids.iter().skip(1).filter(|&&id| id != target.eos());
    own.map(|&id| target.token(id).to_owned()).collect()
}

#[test]
fn texts_are_numbered_as_by_sentencepiece() {
    for golden in families() {
        let model = golden.open();
        let languages = model.model().languages.as_ref().unwrap();
        for (number, line) in golden.lines().iter().enumerate() {
            let ids = model.model().source.encode(&line.text).ids;
            let framed: Vec<u32> = std::iter::once(languages.find(golden.from).unwrap().id)
                .chain(ids)
                .chain([model.model().source.eos()])
                .collect();
            let odd = line.is_odd(golden.name);
            assert!(odd || framed == line.ids, "{}: line {}", golden.name, number + 1);
        }
    }
    let Some(nllb) = reference_families().into_iter().nth(1) else { return };
    let tokenizer = nllb.open().model().source.clone();
    let others = jsonl(&nllb.folder.join("source-other.jsonl"));
    let change = json!({ "legacy_behaviour": true });
    let legacy = changed_copy(&nllb.folder.join("hf"), "tokenizer_config.json", &change);
    let legacy = open(legacy.path(), &OpenOptions::default());
    let languages = legacy.model().languages.as_ref().unwrap();
    let frame = *legacy.model().members[0].architecture.source_frame();
    let frame = languages.frame(frame, languages.find("en"), languages.find("pt"));
    for (line, other) in nllb.lines().iter().zip(others) {
        let ids = tokenizer.encode(&line.text).ids;
        assert_eq!(ids, numbers(&other["sentencepiece_ids"]), "{:?}", line.text);
        if !line.is_odd("nllb") {
            assert_eq!(frame.frame(&ids), numbers(&other["legacy_ids"]), "{:?}", line.text);
        }
    }
}

#[test]
fn translations_are_those_of_transformers() {
    for golden in families() {
        let model = golden.open();
        let ours = golden.translate(&model, &options(&model, 1));
        let theirs = jsonl(&golden.folder.join("hf.greedy.jsonl"));
        let pairs = golden.comparable(&ours, &theirs);
        let (mut same, compared) = (0, pairs.len());
        for (number, ours, theirs) in pairs {
            let best = &ours.alternatives[0];
            let ids = numbers(&theirs["ids"]);
            let expected = words(&model, &ids);
            let scores = floats(&theirs["token_scores"]);
            if best.tokens == expected {
                same += 1;
                // An end symbol that is forced at the limit costs nothing.
                let forced = best.token_scores.len() == 62 && best.ended;
                let count = best.token_scores.len() - usize::from(forced);
                assert_scores(golden.name, &best.token_scores[..count], &scores[1..=count]);
                assert_eq!(ours.text(), theirs["text"].as_str().unwrap().trim());
                continue;
            }
            let parting = best.tokens.iter().zip(&expected).take_while(|(a, b)| a == b).count();
            let (a, b) = (best.token_scores[parting], scores[parting + 1]);
            assert!((a - b).abs() <= TIE, "{} line {}: {:?}", golden.name, number + 1, ours.text());
        }
        println!("{}: greedy: {same} of {compared} the same", golden.name);
        assert!(same + 1 >= compared);
    }
}

#[test]
fn beams_are_those_of_transformers() {
    for golden in families() {
        let model = golden.open();
        let ours = golden.translate(&model, &options(&model, 4));
        let theirs = jsonl(&golden.folder.join("hf.beam4.jsonl"));
        let pairs = golden.comparable(&ours, &theirs);
        let (mut same, mut ties, compared) = (0, 0, pairs.len());
        for (number, ours, theirs) in pairs {
            let (equal, tie) = same_list(&model, ours, theirs["hypotheses"].as_array().unwrap());
            same += usize::from(equal);
            ties += usize::from(!equal && tie);
            assert!(
                equal || tie,
                "{} line {}: {:?}\n{theirs}",
                golden.name,
                number + 1,
                ours.alternatives
            );
        }
        println!("{}: beam 4: {same} of {compared} lists the same, {ties} near-ties", golden.name);
    }
}

/// Whether a list is the reference's, and whether it differs by near-ties alone: the scores are the same place by place.
fn same_list(model: &Translator, ours: &Translation, theirs: &[Value]) -> (bool, bool) {
    let expected = theirs.iter().map(|hypothesis| match hypothesis.get("ids") {
        Some(ids) => words(model, &numbers(ids)),
        None => {
            let tokens = hypothesis["tokens"].as_array().unwrap().iter();
            let tokens = tokens.skip(usize::from(model.model().languages.is_some()));
            tokens.map(|token| token.as_str().unwrap().to_owned()).collect()
        }
    });
    let equal = ours.alternatives.iter().map(|a| &a.tokens).eq(expected.collect::<Vec<_>>().iter());
    let scores = theirs.iter().map(|hypothesis| hypothesis["score"].as_f64().unwrap() as f32);
    let tie = ours.alternatives.len() == theirs.len()
        && ours
            .alternatives
            .iter()
            .zip(scores)
            .all(|(a, b)| (a.score - b).abs() <= TIE * b.abs().max(1.0));
    (equal && tie, tie)
}

#[test]
fn given_translations_have_the_scores_of_transformers() {
    for golden in families() {
        let model = golden.open();
        let theirs = jsonl(&golden.folder.join("hf.scores.jsonl"));
        let mut compared = 0;
        for (line, theirs) in golden.lines().iter().zip(&theirs) {
            let between = model.clone().between(Some(golden.from), Some(line.to)).unwrap();
            let target = theirs["target"].as_str().unwrap();
            let ids = numbers(&theirs["ids"]);
            if model.model().target.encode(target).ids != ids[1..ids.len() - 1] {
                continue;
            }
            let framed = model.model().source.encode(&line.text).ids.len() + 2;
            if framed != line.ids.len() {
                continue;
            }
            let scored =
                between.score(&[(&line.text, target)], &between.options()).unwrap().remove(0);
            assert_scores(golden.name, &scored.token_scores, &floats(&theirs["token_scores"])[1..]);
            compared += 1;
        }
        assert!(compared * 10 >= theirs.len() * 8, "{}: {compared}", golden.name);
    }
}

/// CTranslate2's own directories.
#[test]
fn ctranslate2_directories_answer_as_ctranslate2() {
    for golden in reference_families() {
        let (name, folder, lines) = (golden.name, &golden.folder, golden.lines());
        let model = golden.open_ctranslate2(&folder.join("ct2-float32"), &Compute::float32());
        let source = &model.model().source;
        for (beam, file) in [(1, "ct2.greedy.jsonl"), (4, "ct2.beam4.jsonl")] {
            let ours = golden.translate(&model, &ctranslate2_options(&model, beam));
            let theirs = jsonl(&folder.join(file));
            let (mut same, mut different) = (0, Vec::new());
            for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                let (equal, tie) =
                    same_list(&model, ours, theirs["hypotheses"].as_array().unwrap());
                same += usize::from(equal);
                // The tokens were those of transformers.
                let other =
                    lines[number].ids.len() != source.encode(&lines[number].text).ids.len() + 2;
                if !equal && !tie && !other && !lines[number].is_odd(name) {
                    different.push(number + 1);
                }
            }
            println!("{name}: CTranslate2, beam {beam}: {same} of {} the same", theirs.len());
            assert!(different.is_empty(), "{name} beam {beam}: {different:?}");
        }
    }
}

/// A transformer of fairseq, which has no languages, in a directory of CTranslate2.
#[test]
fn fairseq_answers_as_ctranslate2() {
    let Some(folder) = shared("models/more/fairseq-prenorm") else { return };
    let model = open(&folder.join("ct2-float32"), &OpenOptions::default());
    let lines = jsonl(&folder.join("source.jsonl"));
    let texts: Vec<&str> = lines.iter().map(|line| line["text"].as_str().unwrap()).collect();
    for (line, text) in lines.iter().zip(&texts) {
        assert_eq!(model.model().source.encode(text).ids, numbers(&line["ids"]), "{text}");
    }
    let requests: Vec<Request<'_>> = texts.iter().map(|text| Request::new(text)).collect();
    let translate = |model: &Translator, beam| {
        let options = ctranslate2_options(model, beam);
        model.translate_batch(&requests, &options).unwrap()
    };
    for (beam, file) in [(1, "ct2.greedy.jsonl"), (4, "ct2.beam4.jsonl")] {
        let theirs = jsonl(&folder.join(file));
        for (text, (ours, theirs)) in texts.iter().zip(translate(&model, beam).iter().zip(&theirs))
        {
            let theirs = theirs["hypotheses"].as_array().unwrap();
            let (equal, tie) = same_list(&model, ours, theirs);
            assert!(equal || tie || text.is_empty(), "{text}: {ours:?}\n{theirs:?}");
        }
    }
    let given = jsonl(&folder.join("torch.scores.jsonl"));
    for (text, given) in texts.iter().zip(&given).filter(|(text, _)| !text.is_empty()) {
        let target = given["target"].as_str().unwrap();
        assert_eq!(
            [&model.model().target.encode(target).ids[..], &[model.model().target.eos()]].concat(),
            numbers(&given["ids"])
        );
        let scored = model.score(&[(text, target)], &model.options()).unwrap().remove(0);
        assert_scores(text, &scored.token_scores, &floats(&given["token_scores"]));
    }
    // The library keeps keys and values in float32. With those in int8, the default, 47 lines are the same.
    let compute = Compute { cache: Some(CachePrecision::Float32), ..Compute::int8() };
    let int8 = open_as(&folder.join("ct2-int8"), &OpenOptions::default(), &compute);
    assert_int8("fairseq-prenorm", &folder, &translate(&int8, 1), &translate(&model, 1));
}

fn ctranslate2_options(translator: &Translator, beam: usize) -> Options {
    let mut options = options(translator, beam);
    options.search.max_length = Some(64);
    options
}

#[test]
fn int8_keeps_as_many_lines_as_ctranslate2s() {
    let mut golden = reference_families();
    if golden.is_empty() {
        golden.extend(families().into_iter().next());
    }
    for golden in golden {
        let float = golden.open();
        let exact = golden.translate(&float, &ctranslate2_options(&float, 1));
        let model = golden.open_ctranslate2(&golden.folder.join("ct2-int8"), &Compute::int8());
        let ours = golden.translate(&model, &ctranslate2_options(&model, 1));
        assert_int8(golden.name, &golden.folder, &ours, &exact);
    }
}

/// As many lines are those of float32 as with CTranslate2's int8.
fn assert_int8(name: &str, folder: &Path, ours: &[Translation], exact: &[Translation]) {
    let tokens = |translation: &Translation| translation.alternatives[0].tokens.clone();
    let equal = ours.iter().zip(exact).filter(|(a, b)| tokens(a) == tokens(b)).count();
    let path = folder.join("ct2-int8.greedy.jsonl");
    let theirs = if path.exists() { jsonl(&path) } else { Vec::new() };
    let is_exact = |(theirs, exact): &(&Value, &Translation)| {
        let theirs = theirs["hypotheses"][0]["tokens"].as_array().unwrap();
        let theirs: Vec<&str> = theirs.iter().map(|token| token.as_str().unwrap()).collect();
        // The language stands first, where there is one.
        [0, 1].iter().any(|&from| theirs.get(from..).is_some_and(|t| tokens(exact) == t))
    };
    let their_equal = theirs.iter().zip(exact).filter(is_exact).count();
    let count = exact.len();
    println!("{name}: int8: {equal} of {count} lines as in float32, CTranslate2 {their_equal}");
    assert!(equal >= their_equal && equal * 4 >= count * 3);
}

/// A sentence's translation does not depend on the languages of its company.
#[test]
fn mixed_languages_do_not_mix() {
    for golden in families() {
        let model = golden.open();
        let options = options(&model, 2);
        let together = golden.translate(&model, &options);
        for (line, together) in golden.lines().iter().zip(&together).step_by(7) {
            let request = Request::new(&line.text).between(golden.from, line.to);
            let alone = model.translate_batch(&[request], &options).unwrap().remove(0);
            assert_eq!(alone.text(), together.text());
            let bits = |t: &Translation| t.alternatives[0].score.to_bits();
            assert_eq!(bits(&alone), bits(together));
        }
    }
}

#[test]
fn languages_that_are_missing_or_unknown_are_errors() {
    let golden = families().into_iter().nth(1).unwrap();
    let model = golden.open();
    let told = |request: Request<'_>| {
        let done = model.translate_batch(&[request], &model.options());
        done.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let request = Request::new("Tom");
    assert!(told(request).contains("--to"), "{}", told(request));
    let mut only_to = request;
    only_to.to = Some("pt");
    assert!(told(only_to).contains("--from"), "{}", told(only_to));
    let unknown = told(request.between("en", "Portugese"));
    assert!(unknown.contains("\"Portugese\"") && unknown.contains("por_Latn"), "{unknown}");
    assert!(told(request.between("en", "zh")).is_empty());
}

/// mBART-25 has other places for its languages than mBART-50; the same weights answer as `transformers` says they do
/// in these places. In a directory of CTranslate2 only the missing start token tells the two apart.
#[test]
fn mbart25_has_its_own_places() {
    let change = json!({ "tokenizer_class": "MBartTokenizer" });
    let folder = changed_copy(&fixture("mbart50/hf"), "tokenizer_config.json", &change);
    answers_as_mbart25(&open(folder.path(), &OpenOptions::default()));
    let Some(mbart50) = reference_families().into_iter().nth(2) else { return };
    let change = json!({ "decoder_start_token": null });
    let folder = changed_copy(&mbart50.folder.join("ct2-float32"), "config.json", &change);
    answers_as_mbart25(&mbart50.open_ctranslate2(folder.path(), &Compute::float32()));
}

fn answers_as_mbart25(model: &Translator) {
    let languages = model.model().languages.as_ref().unwrap();
    let frame = *model.model().members[0].architecture.source_frame();
    let mut compared = 0;
    for line in jsonl(&fixture("mbart50/mbart25.jsonl")) {
        let text = line["text"].as_str().unwrap();
        let to = line["target"].as_str().unwrap();
        let ids = model.model().source.encode(text).ids;
        let framed = languages.frame(frame, languages.find("en"), languages.find(to)).frame(&ids);
        let theirs = line["answer"].as_str().unwrap().trim();
        // The class of `transformers` has lost the normaliser, and CTranslate2 has no empty translations.
        let never_empty = model.model().dialect == Dialect::Ctranslate2;
        if framed != numbers(&line["ids"]) || (never_empty && theirs.is_empty()) {
            continue;
        }
        compared += 1;
        let request = Request::new(text).between("en", to);
        let ours = model.translate_batch(&[request], &options(model, 1)).unwrap().remove(0);
        // CTranslate2 shows unknown words, `transformers` leaves them out.
        let ours = ours.text().split_whitespace().filter(|word| *word != "\u{2047}");
        assert!(ours.eq(theirs.split_whitespace()), "{text}");
    }
    assert!(compared >= 25, "{compared} lines");
}

/// A file of our own has the same languages.
#[test]
fn our_own_files_keep_the_languages() {
    let folder = tempfile::tempdir().unwrap();
    for golden in families() {
        let model = peregrine::model::open(&[golden.folder.join("hf")], &OpenOptions::default());
        let path = folder.path().join(format!("{}.peregrine", golden.name));
        peregrine::model::save(&model.unwrap(), &path, None).unwrap();
        let (ours, theirs) = (open(&path, &OpenOptions::default()), golden.open());
        assert_eq!(ours.model().languages, theirs.model().languages);
        let texts = |model: &Translator| -> Vec<String> {
            let options = options(model, 1);
            golden.translate(model, &options).iter().map(|t| t.text().to_owned()).collect()
        };
        assert_eq!(texts(&ours), texts(&theirs));
    }
}

/// A model of 550 billion parameters: a file of zeros that takes no space.
#[test]
fn a_model_larger_than_the_memory_is_refused() {
    const WIDTH: usize = 1 << 17;
    let sizes = json!({ "d_model": WIDTH, "encoder_ffn_dim": WIDTH, "decoder_ffn_dim": WIDTH });
    let folder = changed_copy(&fixture("m2m100/hf"), "config.json", &sizes);
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let mut end = 0;
    for tensor in header.as_object_mut().unwrap().values_mut().filter(|t| t["shape"].is_array()) {
        let shape = numbers(&tensor["shape"]).into_iter();
        let shape: Vec<usize> = shape.map(|size| if size == 627 { 627 } else { WIDTH }).collect();
        let begin = end;
        end += 4 * shape.iter().product::<usize>();
        (tensor["shape"], tensor["data_offsets"]) = (json!(shape), json!([begin, end]));
    }
    let header = header.to_string();
    let begin = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    std::fs::write(&path, &begin).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // Some file systems have no files of this size.
    let Ok(()) = file.set_len((begin.len() + end) as u64) else { return };
    let model = peregrine::model::open(&[folder.path().to_path_buf()], &OpenOptions::default());
    let error = Translator::prepare(model.unwrap(), &Compute::int8()).err().unwrap().to_string();
    assert!(error.contains("GB in int8, but only") && !error.contains('\n'), "{error}");
}
