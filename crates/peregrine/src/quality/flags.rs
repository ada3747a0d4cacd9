//! Flags: possible faults of a translation.

use std::fmt;

/// A possible fault of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Flag {
    /// It repeats itself, or did at the first attempt (see [`Guard`](crate::Guard)).
    Looped,
    /// It was cut at the length limit, or the first attempt did not end (see [`Guard`](crate::Guard)).
    Endless,
    /// The source was too long for the model and was translated in pieces.
    Cut,
    /// It is not translated: copied, mostly copied, or in the source's language.
    Untranslated,
    /// Its numbers differ from those of the source.
    Numbers,
    /// It is much longer or shorter than usual translations.
    Length,
    /// The source had characters that the vocabulary cannot spell, and they were not carried through (see
    /// [`Carry`](crate::Carry)).
    Unknown,
    /// It lacks terms of the glossary.
    Terms,
    /// The model lost text that was carried through.
    Lost,
}

impl Flag {
    /// All flags, in order.
    pub const ALL: [Flag; 9] = [
        Flag::Looped,
        Flag::Endless,
        Flag::Cut,
        Flag::Untranslated,
        Flag::Numbers,
        Flag::Length,
        Flag::Unknown,
        Flag::Terms,
        Flag::Lost,
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Flag::Looped => "looped",
            Flag::Endless => "endless",
            Flag::Cut => "cut",
            Flag::Untranslated => "untranslated",
            Flag::Numbers => "numbers",
            Flag::Length => "length",
            Flag::Unknown => "unknown",
            Flag::Terms => "terms",
            Flag::Lost => "lost",
        }
    }
}

/// A set of [`Flag`]s.
///
/// ```
/// use peregrine::{Flag, Flags};
///
/// let mut flags = Flags::default();
/// flags.set(Flag::Numbers, true);
/// flags.set(Flag::Cut, true);
/// assert!(flags.has(Flag::Numbers) && !flags.has(Flag::Length));
/// assert_eq!(flags.to_string(), "cut,numbers");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(u16);

impl Flags {
    /// Whether a flag is set.
    pub fn has(self, flag: Flag) -> bool {
        self.0 & (1 << flag as u16) != 0
    }

    /// Sets a flag if `is_so`; never clears one.
    pub fn set(&mut self, flag: Flag, is_so: bool) {
        self.0 |= u16::from(is_so) << flag as u16;
    }

    /// Whether no flag is set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The flags of both sets.
    pub fn union(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The flags that are set, in order.
    pub fn iter(self) -> impl Iterator<Item = Flag> {
        Flag::ALL.into_iter().filter(move |flag| self.has(*flag))
    }
}

impl FromIterator<Flag> for Flags {
    fn from_iter<I: IntoIterator<Item = Flag>>(flags: I) -> Flags {
        let mut set = Flags::default();
        flags.into_iter().for_each(|flag| set.set(flag, true));
        set
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Flag::name).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_keep_what_is_set() {
        for flag in Flag::ALL {
            let mut flags = Flags::from_iter([flag]);
            flags.set(flag, false);
            assert_eq!(flags.iter().collect::<Vec<_>>(), [flag]);
            assert_eq!(flags.to_string(), flag.name());
        }
        let all = Flag::ALL.into_iter().map(|flag| Flags::from_iter([flag]));
        let all = all.fold(Flags::default(), Flags::union);
        assert!(Flag::ALL.into_iter().all(|flag| all.has(flag)));
        assert!(Flags::default().is_empty() && !all.is_empty());
    }
}
