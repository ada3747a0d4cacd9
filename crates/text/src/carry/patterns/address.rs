//! Matchers of URLs, e-mail addresses, hosts, handles and hashtags.

use super::{begins, is_name, run, without_punctuation};

/// Endings of hosts and files by which a dotted word without a scheme is recognised, except those
/// that are English words.
const ENDINGS: &[&str] = &[
    "7z", "ai", "apk", "app", "avi", "bat", "bin", "br", "c", "cfg", "ch", "cn", "co", "com",
    "conf", "cpp", "cs", "css", "csv", "de", "dev", "dll", "doc", "docx", "edu", "epub", "es",
    "eu", "exe", "fr", "gif", "gov", "gz", "h", "hpp", "htm", "html", "info", "ini", "io", "ipynb",
    "iso", "jar", "java", "jp", "jpeg", "jpg", "js", "json", "jsx", "kt", "lock", "log", "md",
    "mkv", "mov", "mp3", "mp4", "net", "nl", "odt", "org", "pdf", "php", "pl", "png", "ppt",
    "pptx", "pt", "py", "rar", "rb", "rs", "rtf", "ru", "sh", "sql", "srt", "svg", "tar", "tex",
    "tif", "toml", "ts", "tsv", "tsx", "tv", "txt", "uk", "vtt", "wav", "webp", "xls", "xlsx",
    "xml", "xyz", "yaml", "yml", "zip",
];

/// Whether a dotted name ends like a host or a file.
pub(super) fn has_ending(name: &str) -> bool {
    let Some((stem, ending)) = name.rsplit_once('.') else { return false };
    stem.len() >= 2 && stem.ends_with(is_name) && ENDINGS.binary_search(&ending).is_ok()
}

fn is_url(c: char) -> bool {
    !c.is_whitespace()
        && !matches!(c, '<' | '>' | '"' | '`' | '{' | '}' | '|' | '\\' | '^')
        && (c.is_ascii() || c.is_alphanumeric())
}

/// `https://…`, `www.…`, `mailto:…`.
pub(super) fn url(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let scheme = run(rest, |c| c.is_ascii_alphanumeric() || c == '+');
    let behind = &rest[scheme..];
    let marked = behind.starts_with("://")
        || ["mailto:", "tel:", "urn:", "data:"].iter().any(|s| rest.starts_with(s))
        || (rest[..scheme].eq_ignore_ascii_case("www") && behind.starts_with('.'));
    if !marked {
        return None;
    }
    let end = without_punctuation(text, at, at + run(rest, is_url));
    (end > at + scheme + 3).then_some(end)
}

/// `name@host.org`.
pub(super) fn email(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let is_local = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-' | '%');
    let local = run(rest, is_local);
    let host = rest[local..].strip_prefix('@')?;
    let length = run(host, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    let host = host[..length].trim_end_matches(['.', '-']);
    host.contains('.').then_some(at + local + 1 + host.len())
}

/// A host or a file without a scheme: `example.net/help`, `src/main.rs`, `config.yaml`.
pub(super) fn site(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let first = run(rest, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    if !rest[..first].contains('.') && !rest[first..].starts_with('/') {
        return None;
    }
    let whole = run(rest, |c| is_url(c) && !matches!(c, ',' | ';' | '(' | ')' | '[' | ']'));
    let end = without_punctuation(text, at, at + whole);
    let found = &text[at..end];
    let host = found.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let path = found.split(['?', '#']).next().unwrap_or_default();
    (has_ending(host) || path.contains('/') && has_ending(path)).then_some(end)
}

/// `@name`.
pub(super) fn handle(text: &str, at: usize) -> Option<usize> {
    let name = run(&text[at + 1..], |c| is_name(c) || c == '.' || c == '-');
    let end = without_punctuation(text, at, at + 1 + name);
    (begins(text, at) && end > at + 2).then_some(end)
}

/// `#topic`.
pub(super) fn hashtag(text: &str, at: usize) -> Option<usize> {
    let name = run(&text[at + 1..], |c| c.is_alphanumeric() || c == '_');
    (begins(text, at) && name > 0).then_some(at + 1 + name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_found() {
        let mut sorted = ENDINGS.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, ENDINGS);
        assert!(has_ending("example.net") && has_ending("a.b.zip") && !has_ending("it.Next"));
    }
}
