//! Matchers of numbers that are copied: telephone and account numbers, timestamps, constants with
//! many digits.

use super::run;

/// A number of fewer digits is a quantity, which a translation may format differently.
const LEAST_DIGITS: usize = 8;

fn digits(text: &str) -> usize {
    text.bytes().filter(u8::is_ascii_digit).count()
}

/// A word of many digits: `2024-03-09T08:15:00Z`, `3.14159265358979`.
pub(super) fn code(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let is_code = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_' | '/');
    let word = rest[..run(rest, is_code)].trim_end_matches(['.', ':', '-', '_', '/']);
    // Two years with a dash between them are a period.
    let span = word.len() == 9 && word.as_bytes()[4] == b'-' && digits(word) == 8;
    let listed = rest[word.len()..].starts_with(',') && word.bytes().all(|b| b.is_ascii_digit());
    (digits(word) >= LEAST_DIGITS && !span && !listed).then_some(at + word.len())
}

/// Groups of digits with blanks or dashes between them: `DE89 3704 0044`, `+1 (555) 010-9988`.
pub(super) fn grouped(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '(' | ')' | '+' | '-' | '/');
    let (mut end, mut groups) = (0, 0);
    for word in rest.split(' ') {
        let letters = if groups == 0 { run(word, |c| c.is_ascii_uppercase()) } else { 0 };
        let length = letters + run(&word[letters..], is_part);
        let group = word[..length].trim_end_matches(['(', '-', '/']);
        if digits(group) == 0 || letters > 2 {
            break;
        }
        end = end + usize::from(groups > 0) + group.len();
        groups += 1;
        if group.len() < word.len() {
            break;
        }
    }
    let found = &rest[..end];
    let balanced = found.matches('(').count() == found.matches(')').count();
    let international = found.starts_with('+');
    // Groups of three are a quantity.
    let quantity = found.split(' ').skip(1).all(|group| group.len() == 3 && digits(group) == 3);
    let long = digits(found) > LEAST_DIGITS && groups >= 3 && !quantity;
    (balanced && (long || international && digits(found) >= LEAST_DIGITS)).then_some(at + end)
}
