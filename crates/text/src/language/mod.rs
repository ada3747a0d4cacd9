//! Languages: their codes and names, what models are called after them, and which one a text is in.

mod pairs;
mod script;
mod table;

#[cfg(feature = "detect")]
mod detect;

#[cfg(feature = "detect")]
pub use detect::{Detection, detect, is_rather};
pub use pairs::pair_from_name;
pub use script::main_script;

use table::{ALIASES, HINTS, LANGUAGES};

/// A language, or a form of one that models tell apart.
///
/// ```
/// use peregrine_text::Language;
///
/// let language = Language::find("pt_BR").expect("a language");
/// assert_eq!((language.code, language.name), ("pt-BR", "Portuguese (Brazil)"));
/// assert_eq!(Language::find("deu").map(|l| l.native), Some("Deutsch"));
/// assert_eq!(Language::find("zho_Hant").map(|l| l.code), Some("zh-Hant"));
/// assert!(Language::find("Klingon").is_none());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Language {
    /// Its code (BCP 47): that of ISO 639-1 where there is one, with script or region where models tell them apart.
    pub code: &'static str,
    /// Its code of three letters (ISO 639-3).
    pub iso3: &'static str,
    /// Its script (ISO 15924).
    pub script: &'static str,
    /// Its English name.
    pub name: &'static str,
    /// Its own name.
    pub native: &'static str,
}

impl Language {
    /// All languages of the table, by code.
    pub fn all() -> &'static [Language] {
        LANGUAGES
    }

    /// The language of a code or name, in any case: codes with two and three letters, with script or region, with `-` or
    /// `_`, English names and the language's own. A region that makes no difference is dropped. Common mistakes are understood
    /// (`jp`, `cn`). None if the name means no language of the table.
    pub fn find(name: &str) -> Option<&'static Language> {
        // The form of a locale, `pt_BR.UTF-8`, has more behind it.
        let name = name.trim().split(['.', '@']).next()?;
        let folded = name.to_lowercase().replace('_', "-");
        let exact = |tag: &str| Language::of_code(tag).or_else(|| Language::of_alias(tag));
        if let Some(language) = exact(&folded) {
            return Some(language);
        }
        let named = |l: &&Language| {
            l.iso3 == folded || l.name.to_lowercase() == folded || l.native.to_lowercase() == folded
        };
        if let Some(language) = LANGUAGES.iter().find(named) {
            return Some(language);
        }
        let mut parts = folded.split('-');
        let first = parts.next()?;
        let base = exact(first).or_else(|| LANGUAGES.iter().find(|l| l.iso3 == first))?;
        let mut found = base;
        for part in parts {
            let longer = exact(&format!("{}-{part}", base.code.to_lowercase()));
            let letters = part.bytes().filter(u8::is_ascii_alphabetic).count();
            match (longer, part.len(), letters) {
                (Some(longer), ..) if found == base => found = longer,
                (Some(_), ..) => {}
                // The script it has anyway, a region, a variant such as `1996`.
                (None, 4, 4) if part.eq_ignore_ascii_case(found.script) => {}
                (None, 2, 2) | (None, 3, 0) | (None, 4, 0) => {}
                _ => return None,
            }
        }
        Some(found)
    }

    fn of_code(code: &str) -> Option<&'static Language> {
        LANGUAGES.iter().find(|language| language.code.eq_ignore_ascii_case(code))
    }

    fn of_alias(name: &str) -> Option<&'static Language> {
        let listed = |line: &&&str| line.split(' ').skip(1).any(|alias| alias == name);
        Language::of_code(ALIASES.iter().find(listed)?.split(' ').next()?)
    }

    /// The languages that a name which is not understood may have meant, at most three, the nearest first.
    ///
    /// ```
    /// use peregrine_text::Language;
    /// let meant = Language::near_misses("Portugese");
    /// assert_eq!(meant.first().map(|language| language.name), Some("Portuguese"));
    /// ```
    pub fn near_misses(name: &str) -> Vec<&'static Language> {
        let folded = name.trim().to_lowercase().replace('_', "-");
        if let Some((_, code)) = HINTS.iter().find(|(hint, _)| *hint == folded) {
            return Language::of_code(code).into_iter().collect();
        }
        let length = folded.chars().count();
        let distance = |language: &'static Language| {
            let names = [language.name, language.native].map(str::to_lowercase);
            let near = names.iter().map(|other| match length >= 2 && other.starts_with(&folded) {
                true => 0,
                false => edits(&folded, other),
            });
            (near.min().unwrap_or(usize::MAX), language)
        };
        let mut near: Vec<_> = LANGUAGES.iter().map(distance).collect();
        near.retain(|(distance, _)| *distance <= length / 3);
        near.sort_by_key(|(distance, _)| *distance);
        near.into_iter().take(3).map(|(_, language)| language).collect()
    }

    /// Whether it is written from right to left.
    pub fn is_right_to_left(&self) -> bool {
        matches!(self.script, "Arab" | "Hebr" | "Syrc" | "Thaa" | "Nkoo")
    }

    /// Whether text in a script that [`main_script`] names may be in this language.
    ///
    /// ```
    /// use peregrine_text::{Language, main_script};
    /// let english = Language::find("en").expect("a language");
    /// assert!(!main_script("Доброе утро!").is_some_and(|script| english.uses_script(script)));
    /// ```
    pub fn uses_script(&self, script: &str) -> bool {
        match script {
            "Hani" => matches!(self.script, "Hans" | "Hant" | "Jpan"),
            "Hang" => self.script == "Kore",
            _ => self.script == script,
        }
    }

    /// Whether two entries are forms of the same language: a model of one may do for text in the other.
    ///
    /// ```
    /// use peregrine_text::Language;
    /// let find = |name| Language::find(name).expect("a language");
    /// assert!(find("pt-BR").is_form_of(find("pt")));
    /// assert!(!find("pt").is_form_of(find("gl")));
    /// ```
    pub fn is_form_of(&self, other: &Language) -> bool {
        let norwegian = |l: &Language| matches!(l.code, "no" | "nb");
        self.iso3 == other.iso3 || (norwegian(self) && norwegian(other))
    }
}

/// The number of letters to add, drop, change or swap with a neighbour to make one word another.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, n) | (n, 0) => n,
                _ => {
                    let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    let swap = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                    change.min(swap).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests;
