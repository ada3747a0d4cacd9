//! Options that may stand without a value, or with several.
//!
//! `--alignment TEXT` must not take the text to be translated for its value. Such an option takes
//! the next argument only if it looks like a value of that option. The arguments are rewritten with
//! an equals sign before they are parsed: `--alignment soft` becomes `--alignment=soft`, and
//! `--weights 1 2` becomes `--weights=1 --weights=2`.

use std::ffi::OsString;
use std::path::Path;

/// The form of an option's values.
struct Rule {
    names: &'static [&'static str],
    /// Whether a text can be the value with this index, counted from 0.
    is_value: fn(usize, &str) -> bool,
}

const RULES: [Rule; 6] = [
    Rule { names: &["--alignment"], is_value: |i, text| i == 0 && is_alignment(text) },
    Rule { names: &["--early-stop"], is_value: |i, text| i == 0 && is_number(text) },
    Rule { names: &["--normalize", "-n"], is_value: |i, text| i == 0 && is_number(text) },
    Rule { names: &["--replace-unknown"], is_value: |i, text| i == 0 && is_readable(text) },
    Rule { names: &["--weights"], is_value: |_, text| is_number(text) },
    // The first value is a file or a keyword and is required.
    Rule { names: &["--shortlist"], is_value: |i, text| i == 0 || (i < 4 && is_number(text)) },
];

fn is_number(text: &str) -> bool {
    text.parse::<f32>().is_ok()
}

/// Whether a text names a readable file, or a pipe such as that of `<(command)`.
fn is_readable(text: &str) -> bool {
    Path::new(text).metadata().is_ok_and(|found| !found.is_dir())
}

fn is_alignment(text: &str) -> bool {
    matches!(text, "hard" | "soft") || is_number(text)
}

/// Joins values to their options.
pub fn tie(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter().peekable();
    let mut tied = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            tied.push(argument);
            break;
        }
        // `-n0.6` is `-n 0.6`.
        let short = argument.to_str().and_then(|text| text.strip_prefix("-n"));
        if let Some(value) = short.filter(|value| is_number(value)) {
            tied.push(format!("--normalize={value}").into());
            continue;
        }
        let rule =
            argument.to_str().and_then(|name| RULES.iter().find(|r| r.names.contains(&name)));
        let before = tied.len();
        while let (Some(rule), Some(next)) = (rule, arguments.peek().and_then(|next| next.to_str()))
            && (rule.is_value)(tied.len() - before, next)
        {
            tied.push(format!("{}={next}", rule.names[0]).into());
            arguments.next();
        }
        if tied.len() == before {
            tied.push(argument);
        }
    }
    tied.extend(arguments);
    tied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &str, expected: &str) {
        let arguments = given.split('|').map(OsString::from);
        let tied: Vec<String> =
            tie(arguments).into_iter().filter_map(|a| a.into_string().ok()).collect();
        assert_eq!(tied.join("|"), expected);
    }

    #[test]
    fn only_what_looks_like_a_value_is_one() {
        check("translate|--alignment|soft|Hello", "translate|--alignment=soft|Hello");
        check("translate|--alignment|Hello", "translate|--alignment|Hello");
        check("--alignment=0.3|0.4", "--alignment=0.3|0.4");
        check("-n|0.6|text", "--normalize=0.6|text");
        check("-n0.6|-n|text", "--normalize=0.6|-n|text");
        check("--early-stop|A dog.", "--early-stop|A dog.");
        check("--replace-unknown|no such file", "--replace-unknown|no such file");
        check("--replace-unknown|/dev/null|x", "--replace-unknown=/dev/null|x");
        check("--weights|1|-0.5|A dog.", "--weights=1|--weights=-0.5|A dog.");
        check("--weights|A dog.", "--weights|A dog.");
        check("--shortlist|off|A dog.", "--shortlist=off|A dog.");
        check(
            "--shortlist|lex.txt|50|40|0.1|7",
            "--shortlist=lex.txt|--shortlist=50|--shortlist=40|--shortlist=0.1|7",
        );
        check("--|--alignment|soft", "--|--alignment|soft");
    }
}
