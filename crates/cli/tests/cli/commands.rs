//! What each command prints, and how it says no.

use crate::common::{complaint, model, run, run_with, scratch, scratch_with, stdout};
use peregrine::measure::Technique;
use peregrine::settings::SETTINGS;
use serde_json::Value;

#[test]
fn the_first_command() {
    let output = run_with(&["translate"], b"Two dogs play in the snow.\n");
    assert_eq!(stdout(output), "Dois cães brincam na neve.\n");
    let arguments = ["translate", "Hello, how are you?", "Two dogs play in the snow."];
    assert_eq!(stdout(run(&arguments)), "Olá, como você está?\nDois cães brincam na neve.\n");
}

/// Lines as people write them: several sentences, and what the model cannot spell.
#[test]
fn text_survives() {
    let text = "Two dogs play in the snow. Hello {name}! 🦀";
    let translated = stdout(run(&["translate", text]));
    assert!(
        translated.starts_with("Dois cães brincam na neve. ")
            && translated.ends_with("{name}! 🦀\n"),
        "{translated}"
    );
    let bare = stdout(run(&["translate", "--carry", "off", "--split", "none", text]));
    assert!(!bare.contains("{name}") && !bare.contains('🦀'), "{bare}");
    // What Marian prints is Marian's.
    let tokens = stdout(run(&["translate", "--tokens", text]));
    assert_eq!(
        tokens,
        stdout(run(&["translate", "--carry", "off", "--split", "none", "--tokens", text]))
    );
}

/// Two models in a row, named or found by languages.
#[test]
fn through_a_third_language() {
    let folder = tempfile::tempdir().unwrap();
    let builtin = concat!(env!("CARGO_MANIFEST_DIR"), "/../peregrine/models/en-pt.peregrine");
    for name in ["en-pt.peregrine", "de-en.peregrine"] {
        std::fs::copy(builtin, folder.path().join(name)).unwrap();
    }
    let text = "Two dogs play in the snow. Hello {name}!\nGood morning!\n";
    let first = stdout(run_with(&["translate"], text.as_bytes()));
    let second = stdout(run_with(&["translate"], first.as_bytes()));
    let models = folder.path().to_str().unwrap();
    for arguments in [
        &["translate", "--then", builtin][..],
        &["translate", "-m", builtin, "--then", builtin, "-t", "2"],
        &["translate", "--models", models, "--from", "de", "--to", "pt"],
        &["translate", "--models", models, "--from", "German", "--to", "Portuguese", "-q"],
    ] {
        assert_eq!(stdout(run_with(arguments, text.as_bytes())), second, "{arguments:?}");
    }
    // Among German and English this is English: one model.
    let detected = run_with(&["translate", "--models", models, "--to", "pt"], text.as_bytes());
    assert!(String::from_utf8_lossy(&detected.stderr).contains("en to pt (detected"));
    assert_eq!(stdout(detected), first);
    let json = stdout(run(&[
        "translate",
        "--then",
        builtin,
        "--json",
        "--alignment=soft",
        "Good morning!",
    ]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["pivot"]["text"], "Bom dia!");
    assert_eq!(json["sentences"][0]["source"], serde_json::json!([0, 13]));
    for (arguments, expected) in [
        (&["translate", "--models", models, "--to", "fr", "x"][..], "has models to en, pt"),
        (
            &["translate", "--models", models, "--from", "pt", "--to", "en", "x"],
            "has models to en from de",
        ),
        (&["translate", "--models", models, "--to", "Klingonese", "x"], "no language has the name"),
        (
            &["translate", "--models", models, "--to", "pt", "123"],
            "no letters that tell a language",
        ),
        (&["translate", "--models", "/no/such/folder", "--to", "pt", "x"], "/no/such/folder"),
    ] {
        let complaint = complaint(run(arguments));
        assert!(complaint.contains(expected), "{complaint}");
    }
}

/// The languages of a multilingual model, and those of a model that has one pair.
#[test]
fn languages_are_given_by_name() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/nllb/hf");
    // The model puts English in lower case where it should be Portuguese, and copies it for French.
    let text = "My brother repairs old clocks.\nthe soup is still too hot to eat.\n";
    let translate = |languages: &[&str]| {
        let arguments = [&["translate", "-m", model, "--beam", "1"], languages].concat();
        run_with(&arguments, text.as_bytes())
    };
    let lower = stdout(translate(&["--from", "en", "--to", "pt"]));
    assert_eq!(lower.lines().count(), 2);
    assert_eq!(lower, lower.to_lowercase());
    for languages in
        [["--from", "English", "--to", "por_Latn"], ["--from", "eng_Latn", "--to", "Portuguese"]]
    {
        assert_eq!(stdout(translate(&languages)), lower);
    }
    let copied = stdout(translate(&["--from", "en", "--to", "fr"]));
    assert!(copied.starts_with('M') || copied != lower, "{copied}");
    let detected = translate(&["--to", "pt"]);
    assert!(String::from_utf8_lossy(&detected.stderr).contains("from en (detected"));
    assert_eq!(stdout(detected), lower);
    for (languages, expected) in [
        (&["--from", "en"][..], "--to"),
        (&["--from", "en", "--to", "Portugese"], "por_Latn"),
        (&["--from", "tlh", "--to", "pt"], "\"tlh\""),
    ] {
        let complaint = complaint(translate(languages));
        assert!(complaint.contains(expected), "{complaint}");
    }
    assert!(complaint(translate(&[])).contains("needs --to"));
    let listed = stdout(run(&["inspect", model]));
    assert!(listed.contains("por_Latn") && listed.contains("codes:"), "{listed}");
    assert_eq!(stdout(run(&["translate", "--to", "pt", "Good morning!"])), "Bom dia!\n");
    let other = complaint(run(&["translate", "--to", "fr", "Good morning!"]));
    assert!(other.contains("from en to pt"), "{other}");
}

#[test]
fn help_is_for_everyone() {
    for arguments in [&["help"][..], &["--help"], &["-h"]] {
        let help = stdout(run(arguments));
        for command in ["translate", "score", "inspect", "convert", "bench"] {
            assert!(help.contains(&format!("\n  {command} ")), "{help}");
        }
    }
    assert!(stdout(run(&["help", "translate"])).contains("--n-best"));
    assert!(stdout(run(&["--version"])).starts_with("peregrine "));
}

#[test]
fn what_is_not_an_option_ends_with_2() {
    for arguments in [
        &["translate", "--no-such-option"][..],
        &["no-such-command"],
        &["translate", "--beam", "0"],
        &["translate", "--beam", "many"],
        &["translate", "--alignment=wrong"],
        &["translate", "--max-length-factor", "NaN", "x"],
        &["translate", "--max-length-factor", "0", "x"],
        &["translate", "--max-length-factor", "-1", "x"],
        &["translate", "--word-penalty", "inf", "x"],
        &["translate", "--normalize=-1", "x"],
        &["translate", "--normalize", "NaN", "x"],
        &["translate", "--early-stop=-1", "x"],
        &["translate", "--weights", "-1", "1", "x"],
        &["translate", "--weights", "NaN", "x"],
        &["translate", "--set", "top-up-threshold=1.5", "x"],
        &["translate", "--set", "screning=off", "x"],
        &["translate", "--set", "screening", "x"],
        &["translate", "--alignment=1.5", "x"],
        &["shortlist", "build", "a", "b", "-o", "c", "--prune", "NaN"],
        &["shortlist", "build", "a", "b", "-o", "c", "--prune", "-1"],
        &["shortlist", "build", "a", "b", "-o", "c", "--best", "0"],
        &["convert"],
        &[],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

/// Tuning across precisions says what it gives up, and is nothing for int8.
#[test]
fn tuning_across_precisions_is_owned_up_to() {
    let output = run(&["translate", "--set", "tune=precisions", "Two dogs play in the snow."]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("may depend on its batch"), "{said}");
    assert_eq!(stdout(output), "Dois cães brincam na neve.\n");
    let refused = ["translate", "--set", "tune=precisions", "--precision", "int8", "x"];
    assert!(complaint(run(&refused)).contains("float32 and int16 compete, not int8"));
}

/// Batches large enough for every technique to be at work; scores would show a bit that differs.
#[test]
fn techniques_change_how_fast_and_not_what() {
    let source = std::fs::read(format!("{}/input.en", model())).unwrap();
    for (beam, precision, cache) in [
        ("1", "int8", "int8"),
        ("4", "int8", "int8"),
        ("4", "float32", "float16"),
        ("4", "bfloat16", "float32"),
    ] {
        let translate = |more: &[&str]| {
            let (model, mut arguments) =
                (model(), vec!["translate", "--device", "cpu", "--json", "-m"]);
            arguments.extend([&*model, "--beam", beam, "--precision", precision]);
            let cache = format!("cache={cache}");
            arguments.extend(["--set", &cache]);
            arguments.extend(more);
            stdout(run_with(&arguments, &source))
        };
        let expected = translate(&[]);
        for technique in Technique::ALL.into_iter().filter(|technique| technique.keeps_bits()) {
            let name = technique.name();
            assert!(
                translate(&["--set", &format!("without={name}")]) == expected,
                "{precision} without {name}"
            );
        }
        let all = Technique::ALL.map(Technique::name).join(",");
        let lines = |text: &str| text.lines().count();
        assert_eq!(lines(&translate(&["--set", &format!("without={all}")])), lines(&expected));
    }
}

/// Every value of every setting runs, and changes nothing unless the table says that it may.
#[test]
fn settings_change_what_the_table_says() {
    let source = std::fs::read(format!("{}/input.en", model())).unwrap();
    let source: Vec<u8> =
        source.split_inclusive(|byte| *byte == b'\n').take(6).flatten().copied().collect();
    let translate = |assignment: &str| {
        let model = model();
        let arguments =
            ["translate", "--device", "cpu", "--json", "--set", assignment, "-m", &model];
        run_with(&arguments, &source)
    };
    let expected = stdout(translate("tune=auto"));
    for setting in SETTINGS {
        let mut values = setting.choices();
        match setting.name {
            "without" => values.push("prefetch,large-pages"),
            "precompute-embeddings" => values.push("0"),
            "top-up-threshold" => values.push("0.5"),
            _ => {}
        }
        assert!(!values.is_empty(), "{}: no value to try", setting.name);
        for value in values {
            let assignment = format!("{}={value}", setting.name);
            let output = translate(&assignment);
            if setting.name == "isa" && output.status.code() == Some(2) {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(said.contains("instructions"), "{assignment}: {said}");
                continue;
            }
            let text = stdout(output);
            assert_eq!(text.lines().count(), expected.lines().count(), "{assignment}");
            // Instruction sets and precisions that compete change the last bits of float32.
            if !setting.changes_results && !["isa", "tune"].contains(&setting.name) {
                assert!(text == expected, "{assignment}");
            }
        }
    }
}

#[test]
fn a_cause_is_told_once() {
    let message = complaint(run(&["translate", "-m", "nowhere.npz", "x"]));
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
}

#[test]
fn bad_models_are_named() {
    let cases: [(&str, &[u8]); 6] = [
        ("empty.npz", b""),
        ("text.npz", b"This is not an archive."),
        ("short.bin", b"\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("wrong.bin", b"GGUF\x03\0\0\0\0\0\0\0"),
        ("cut.peregrine", b"\xff\xff\xff\xff\xff\xff\xff\x7f{}"),
        ("model.onnx", b"\x08\x07"),
    ];
    for (name, content) in cases {
        let path = scratch_with(name, content);
        for command in [&["translate", "-m"][..], &["inspect"], &["convert", "-o", "/dev/null"]] {
            let message = complaint(run(&[command, &[&path]].concat()));
            assert!(message.contains(name), "{message}");
        }
    }
    let message = complaint(run(&["translate", "-m", "no/such/model.npz"]));
    assert!(message.contains("no/such/model.npz"), "{message}");
    let message = complaint(run(&["translate", "--compat", "no-such-switch", "-m", &model()]));
    assert!(message.contains("no-such-switch") && message.contains("search-marian"), "{message}");
    let message = complaint(run(&["translate", "-i", "no/such/text.en"]));
    assert!(message.contains("no/such/text.en"), "{message}");
}

#[test]
fn a_cut_model_is_named_at_any_length() {
    let whole = std::fs::read(format!("{}/model.npz", model())).unwrap();
    let vocabulary = format!("{}/vocab.spm", model());
    for length in [1, 100, 10_000, whole.len() / 2, whole.len() - 1] {
        let path = scratch_with("cut-model.npz", &whole[..length]);
        let arguments = ["translate", "-m", &path, "--vocab", &vocabulary, &vocabulary];
        assert!(complaint(run(&arguments)).contains("cut-model.npz"));
    }
}

#[test]
fn n_best_lists_have_marians_form() {
    let text = stdout(run(&["translate", "-m", &model(), "--n-best", "A dog.", "", "A cat."]));
    let lines: Vec<&str> = text.lines().collect();
    let (mut count, mut last) = ([0; 3], f32::INFINITY);
    for (i, line) in lines.iter().enumerate() {
        let fields: Vec<&str> = line.split(" ||| ").collect();
        assert_eq!(fields.len(), 4, "{line}");
        let number: usize = fields[0].parse().unwrap();
        count[number] += 1;
        assert!(fields[2].starts_with("F0= "), "{line}");
        let score: f32 = fields[3].parse().unwrap();
        let is_new = i == 0 || !lines[i - 1].starts_with(&format!("{number} "));
        assert!(is_new || score <= last, "best first: {text}");
        last = score;
    }
    assert_eq!(count, [4, 1, 4]);
    assert!(lines[4] == "1 |||  ||| F0= 0 ||| 0", "{}", lines[4]);
}

#[test]
fn tokens_scores_and_alignments() {
    let arguments =
        ["translate", "-m", &model(), "--tokens", "--word-scores", "--alignment", "hard"];
    let text = stdout(run(&[&arguments[..], &["--", "A dog."]].concat()));
    let fields: Vec<&str> = text.trim_end().split(" ||| ").collect();
    let tokens = fields[0].split(' ').count();
    assert!(fields[0].starts_with('\u{2581}'), "{text}");
    assert_eq!(fields[1].split(' ').count(), tokens + 1, "{text}");
    assert_eq!(fields[2].strip_prefix("WordScores= ").unwrap().split(' ').count(), tokens + 1);
    let soft = stdout(run(&["translate", "-m", &model(), "--alignment", "soft", "--", "A dog."]));
    let row = soft.trim_end().rsplit_once(" ||| ").unwrap().1.split(' ').next().unwrap();
    let sum: f32 = row.split(',').map(|weight| weight.parse::<f32>().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-3, "{row}");
}

#[test]
fn json_is_an_object_a_line() {
    let text = stdout(run_with(&["translate", "-m", &model(), "--json"], b"A dog.\n\n\"\\\xff\n"));
    let objects: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(objects.len(), 3);
    let best = &objects[0]["alternatives"][0];
    assert_eq!(objects[0]["text"], best["text"]);
    let length = |key: &str| best[key].as_array().unwrap().len();
    assert_eq!(length("tokens") + 1, length("token_scores"));
    assert_eq!(objects[1]["text"], "");
}

#[test]
fn prefixes_are_forced() {
    let prefixes = scratch_with("prefixes.txt", "Der Hund\n\nViele\n\n".as_bytes());
    let input = b"The black cat sleeps.\nThe black cat sleeps.\nTwo people.\nTwo people.\n";
    let run = |more: &[&str]| {
        let model = model();
        let text = stdout(run_with(&[&["translate", "-m", &model], more].concat(), input));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (forced, free) = (run(&["--prefix", &prefixes]), run(&[]));
    assert!(forced[0].starts_with("Der Hund") && !free[0].starts_with("Der Hund"), "{forced:?}");
    assert!(forced[2].starts_with("Viele"), "{forced:?}");
    assert_eq!([&forced[1], &forced[3]], [&free[1], &free[3]]);
}

#[test]
fn prefixes_belong_to_lines() {
    for (name, prefixes, problem) in [
        ("short", "Der Hund\n", "no line for line 2"),
        ("long", "Der Hund\n\n\n\n", "more lines than the 3"),
    ] {
        let prefixes = scratch_with(&format!("prefixes-{name}.txt"), prefixes.as_bytes());
        let arguments = ["translate", "-q", "-m", &model(), "--prefix", &prefixes];
        let output = run_with(&arguments, b"A dog.\nA cat.\nA man.\n");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(problem) && said.contains(name), "{said}");
        // The lines before the trouble are there.
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn text_is_not_taken_for_a_value() {
    let run =
        |arguments: &[&str]| stdout(run(&[&["translate", "-m", &model()], arguments].concat()));
    let plain = run(&["A dog."]);
    for option in ["--early-stop", "--normalize", "-n", "--replace-unknown"] {
        assert_eq!(run(&[option, "A dog."]).lines().count(), 1, "{option}");
    }
    assert!(run(&["--alignment", "A dog."]).starts_with(plain.trim_end()));
    assert_eq!(run(&["--weights", "2", "A dog."]), plain);
    assert_eq!(run(&["--shortlist", "off", "A dog."]), plain);
}

#[test]
fn a_dash_is_a_standard_stream() {
    let output = run_with(&["translate", "-m", &model(), "-i", "-", "-o", "-"], b"A dog.\n");
    assert_eq!(stdout(output), stdout(run(&["translate", "-m", &model(), "A dog."])));
    assert!(!std::path::Path::new("-").exists());
}

#[test]
fn precisions_of_other_devices_are_named() {
    let message = complaint(run(&["translate", "--precision", "fp8", "x"]));
    assert!(message.contains("--precision fp8: only a GPU has it"), "{message}");
}

#[test]
fn messages_have_no_numbers_of_the_system() {
    for arguments in [
        &["translate", "-i", "no/such/file"][..],
        &["translate", "-m", "no/such/model"],
        &["translate", "-o", "no/such/folder/out", "x"],
        &["translate", "--config", "no/such/config.yml", "x"],
        &["score", "no/such/source", "no/such/target"],
        &["inspect", "no/such/model"],
        &["convert", "no/such/model", "-o", "x.peregrine"],
    ] {
        let message = complaint(run(arguments));
        assert!(message.contains("No such file or directory"), "{message}");
        assert!(!message.contains("os error"), "{message}");
    }
}

#[test]
fn json_has_what_other_forms_have() {
    let arguments =
        ["translate", "-m", &model(), "--json", "--n-best", "--word-scores", "--tokens"];
    let text = stdout(run(&[&arguments[..], &["--beam", "3", "A dog."]].concat()));
    let object: Value = serde_json::from_str(&text).unwrap();
    let alternatives = object["alternatives"].as_array().unwrap();
    assert_eq!(alternatives.len(), 3);
    assert!(alternatives.iter().all(|a| a["tokens"].is_array() && a["token_scores"].is_array()));
}

/// Tokens, their scores and their alignments go together in lines of several sentences; the score is
/// that of the whole line.
#[test]
fn numbers_of_several_sentences_fit() {
    let line = "A dog sleeps. A cat waits for the bus! Two men talk.";
    let arguments =
        ["translate", "-m", &model(), "--split", "sentence", "--json", "--alignment=soft"];
    let more = ["--n-best", "--beam", "4", "--normalize=1", line];
    let object: Value =
        serde_json::from_str(&stdout(run(&[&arguments[..], &more].concat()))).unwrap();
    assert_eq!(object["parts"], 3);
    for best in object["alternatives"].as_array().unwrap() {
        let length = |key: &str| best[key].as_array().unwrap().len();
        assert_eq!(length("tokens") + 1, length("token_scores"), "{best}");
        assert_eq!(length("tokens") + 1, length("alignment"), "{best}");
        for row in best["alignment"].as_array().unwrap() {
            let row: Vec<f64> =
                row.as_array().unwrap().iter().map(|w| w.as_f64().unwrap()).collect();
            assert_eq!(row.len(), object["source_tokens"].as_u64().unwrap() as usize);
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-3, "{row:?}");
        }
    }
    // Each sentence alone: the sum of what its tokens cost, over the tokens of all.
    let (mut path, mut tokens) = (0.0, 0);
    for sentence in ["A dog sleeps.", "A cat waits for the bus!", "Two men talk."] {
        let alone =
            ["translate", "-m", &model(), "--json", "--beam", "4", "--normalize=1", sentence];
        let object: Value = serde_json::from_str(&stdout(run(&alone))).unwrap();
        let scores = object["alternatives"][0]["token_scores"].as_array().unwrap();
        path += scores.iter().map(|score| score.as_f64().unwrap()).sum::<f64>();
        tokens += scores.len();
    }
    let score = object["alternatives"][0]["score"].as_f64().unwrap();
    assert!((score - path / tokens as f64).abs() < 1e-4, "{score}, not {}", path / tokens as f64);
}

#[test]
fn scores_of_given_translations() {
    let source = scratch_with("score.en", b"A dog.\nA dog.\n");
    let target = scratch_with("score.de", b"Ein Hund.\nViele Sofas singen\n");
    let arguments = ["score", "-m", &model(), "--word-scores", &source, &target];
    let text = stdout(run(&arguments));
    let scores: Vec<f32> =
        text.lines().map(|l| l.split(" ||| ").next().unwrap().parse().unwrap()).collect();
    assert!(scores.len() == 2 && scores[0] > scores[1], "{text}");
    let words = text.lines().next().unwrap().split_once("WordScores=").unwrap().1;
    let sum: f32 = words.split_whitespace().map(|word| word.parse::<f32>().unwrap()).sum();
    assert!((sum - scores[0]).abs() < 1e-3, "{text}");

    let tabbed = run_with(
        &["score", "-m", &model(), "--word-scores"],
        b"A dog.\tEin Hund.\nA dog.\tViele Sofas singen\n",
    );
    assert_eq!(stdout(tabbed), text);
    let piped = run_with(
        &["score", "-m", &model(), "--word-scores", &source, "-"],
        b"Ein Hund.\nViele Sofas singen\n",
    );
    assert_eq!(stdout(piped), text);
    let json = stdout(run(&["score", "-m", &model(), "--json", &source, &target]));
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert!((first["score"].as_f64().unwrap() - f64::from(scores[0])).abs() < 1e-4, "{json}");
    let message = complaint(run_with(&["score", "-m", &model()], b"A dog.\tEin Hund.\nA dog.\n"));
    assert!(message.contains("line 2"), "{message}");

    let short = scratch_with("score-short.de", b"Ein Hund.\n");
    let message = complaint(run(&["score", "-m", &model(), &source, &short]));
    assert!(message.contains("2 lines") && message.contains("score-short.de"), "{message}");
}

#[test]
fn inspect_tells_what_a_model_is() {
    let text = stdout(run(&["inspect", &model()]));
    assert!(text.contains("transformer") && text.contains("float16"), "{text}");
    let object: Value =
        serde_json::from_str(&stdout(run(&["inspect", "--json", &model()]))).unwrap();
    let tensors = object["members"][0]["tensors"].as_array().unwrap();
    assert!(tensors.len() > 20, "{}", tensors.len());
    assert_eq!(object["dialect"], "marian");
}

#[test]
fn converted_models_translate_alike() {
    let input = b"A woman in a red coat waits for the bus.\n\nA dog.\n";
    let translate = |path: &str| stdout(run_with(&["translate", "--n-best", "-m", path], input));
    let expected = translate(&model());
    for precision in ["float32", "float16", "int16", "int8"] {
        let file = scratch(&format!("converted-{precision}.peregrine")).display().to_string();
        stdout(run(&["convert", &model(), "-o", &file, "--force", "--precision", precision]));
        let text = translate(&file);
        // Float16 is what the fixture is stored in.
        let is_exact = precision.starts_with("float");
        assert!(!is_exact || text == expected, "{precision}: {text}\n{expected}");
        // Rounded weights may change the order of a list, but not which words are the best.
        assert_eq!(best_texts(&text), best_texts(&expected), "{precision}");
        assert_eq!(text.lines().count(), expected.lines().count());
    }
}

/// The best translation of each line of n-best lists.
fn best_texts(lists: &str) -> Vec<(&str, &str)> {
    let mut best: Vec<(&str, &str)> = Vec::new();
    for line in lists.lines() {
        let (number, rest) = line.split_once(" ||| ").unwrap();
        if best.last().is_none_or(|(last, _)| *last != number) {
            best.push((number, rest.split_once(" ||| ").unwrap().0));
        }
    }
    best
}

#[test]
fn bench_reports_speed() {
    let source = scratch_with("bench.en", b"A dog.\nA cat sleeps.\n");
    let arguments = ["bench", "-m", &model(), "--source", &source, "--output-length", "7"];
    let text = stdout(run(&[&arguments[..], &["--beam", "2", "--repeat", "1", "--json"]].concat()));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((report["tokens"].as_u64(), report["sentences"].as_u64()), (Some(14), Some(2)));
    for field in ["tokens_per_second", "sentences_per_second", "load_seconds"] {
        assert!(report[field].as_f64().unwrap() > 0.0, "{field}: {text}");
    }
    assert!(report.get("peak_memory_mb").is_some());
}
