//! Readers of glossary files: TSV, and CSV of RFC 4180.

use super::Entry;
use crate::Error;

/// The entries of a file, each with its place for messages.
pub(super) fn entries(name: &str, bytes: &[u8]) -> Result<Vec<(String, Entry)>, Error> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        Error::new(name, format!("line {line}"), "not UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let is_csv = name.len() >= 4 && name.as_bytes()[name.len() - 4..].eq_ignore_ascii_case(b".csv");
    let records = if is_csv { csv(text) } else { Ok(tsv(text)) };
    let fail = |(line, problem): (usize, String)| Error::new(name, format!("line {line}"), problem);
    let expected = if is_csv {
        "no comma; expected `source,target`"
    } else {
        "no tab; expected `source<TAB>target`"
    };
    let mut entries = Vec::new();
    for Record { line, fields } in records.map_err(fail)? {
        let [source, target, further @ ..] = fields.as_slice() else {
            return Err(fail((line, expected.to_owned())));
        };
        let entry = with_flags(Entry::new(source, target), further);
        let entry = entry.map_err(|problem| fail((line, problem)))?;
        entries.push((format!("line {line}"), entry));
    }
    Ok(entries)
}

/// An entry with the flags of further columns.
fn with_flags(mut entry: Entry, columns: &[String]) -> Result<Entry, String> {
    for column in columns.iter().filter(|column| !is_code(column)) {
        let flags = column.split(|c: char| c == ',' || c.is_whitespace());
        for flag in flags.filter(|flag| !flag.is_empty()) {
            let problem =
                || format!("unknown flag `{flag}`; expected case, keep, forbid or prefix");
            entry = entry.with_flag(flag).ok_or_else(problem)?;
        }
    }
    Ok(entry)
}

/// Whether a column looks like a language code: `en`, `pt-PT`, `zh_Hans`.
fn is_code(column: &str) -> bool {
    let mut parts = column.trim().split(['-', '_']);
    let first = parts.next().unwrap_or_default();
    matches!(first.len(), 2 | 3)
        && first.bytes().all(|byte| byte.is_ascii_alphabetic())
        && parts.all(|part| {
            matches!(part.len(), 2..=8) && part.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}

/// A record of a file.
struct Record {
    /// The number of its first line.
    line: usize,
    fields: Vec<String>,
}

fn tsv(text: &str) -> Vec<Record> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let record = |(number, line): (usize, &str)| Record {
        line: number + 1,
        fields: line.split('\t').map(str::to_owned).collect(),
    };
    lines.map(record).collect()
}

/// The records of a CSV file, or the line number and the problem.
fn csv(text: &str) -> Result<Vec<Record>, (usize, String)> {
    let mut records = Vec::new();
    let mut record = Record { line: 1, fields: vec![String::new()] };
    let mut line = 1;
    let mut chars = text.chars().peekable();
    // Whether the field was quoted and the closing quote has been read.
    let mut quoted = false;
    while let Some(c) = chars.next() {
        let field = record.fields.len() - 1;
        match c {
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => {
                line += 1;
                let ended =
                    std::mem::replace(&mut record, Record { line, fields: vec![String::new()] });
                records.push(ended);
                quoted = false;
            }
            ',' => {
                record.fields.push(String::new());
                quoted = false;
            }
            _ if quoted => {
                return Err((line, "text behind a closing quote; expected a comma".to_owned()));
            }
            '"' if record.fields[field].is_empty() => {
                let begun = line;
                loop {
                    match chars.next() {
                        Some('"') if chars.next_if_eq(&'"').is_none() => break,
                        Some(c) => {
                            line += usize::from(c == '\n');
                            record.fields[field].push(c);
                        }
                        None => return Err((begun, "a quote that is not closed".to_owned())),
                    }
                }
                quoted = true;
            }
            c => record.fields[field].push(c),
        }
    }
    records.push(record);
    records.retain(|record| record.fields.iter().any(|field| !field.trim().is_empty()));
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::super::Glossary;
    use super::*;

    fn read(name: &str, text: &str) -> Result<Vec<(String, String)>, String> {
        let glossary = Glossary::read(name, text.as_bytes()).map_err(|error| error.to_string())?;
        let pair = |entry: &Entry| (entry.source.clone(), entry.targets.join("|"));
        Ok(glossary.entries().iter().map(pair).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(pairs.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect())
    }

    #[test]
    fn both_kinds_of_files() {
        let tsv = "\u{feff}# terms\r\nfile\tficheiro|ficheiros\r\n\nBMW\t\n New York \tNova Iorque\tcase\n";
        let expected =
            pairs(&[("file", "ficheiro|ficheiros"), ("BMW", ""), ("New York", "Nova Iorque")]);
        assert_eq!(read("a.tsv", tsv), expected);
        let csv = "file,\"ficheiro|ficheiros\",en,pt-PT\nBMW,\r\n\n\"New York\",Nova Iorque,case\n";
        assert_eq!(read("a.CSV", csv), expected);
        let csv = "\"a, \"\"b\"\"\",\"line\nend\"\nc,d";
        assert_eq!(read("a.csv", csv), pairs(&[("a, \"b\"", "line\nend"), ("c", "d")]));
        assert_eq!(read("a.tsv", ""), pairs(&[]));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let told = |name: &str, text: &str| read(name, text).expect_err("an error");
        assert_eq!(
            told("a.tsv", "# x\nbus autocarro\n"),
            "a.tsv: line 2: no tab; expected `source<TAB>target`"
        );
        assert_eq!(
            told("a.csv", "bus;autocarro\n"),
            "a.csv: line 1: no comma; expected `source,target`"
        );
        assert_eq!(told("a.tsv", "\tx"), "a.tsv: line 1: the source term is empty");
        let twice = "bus\tautocarro\ncar\tcarro\nbus\tônibus\n";
        assert_eq!(told("a.tsv", twice), "a.tsv: line 3: `bus` has another target in line 1");
        let flag = "a.tsv: line 1: unknown flag `loud`; expected case, keep, forbid or prefix";
        assert_eq!(told("a.tsv", "bus\tautocarro\tcase,loud"), flag);
        assert_eq!(told("a.csv", "x,y\n\"a\nb,c"), "a.csv: line 2: a quote that is not closed");
        assert_eq!(
            told("a.csv", "\"a\" b,c"),
            "a.csv: line 1: text behind a closing quote; expected a comma"
        );
        let error = Glossary::read("a.tsv", b"a\tb\n\xff\tc").expect_err("an error");
        assert_eq!(error.to_string(), "a.tsv: line 2: not UTF-8");
    }

    #[test]
    fn codes_of_languages() {
        assert!(["en", "pt-PT", "zh_Hans", "por", " EN "].iter().all(|code| is_code(code)));
        assert!(!["case", "keep", "", "e", "en-", "keep, case"].iter().any(|code| is_code(code)));
    }
}
