//! Documents of all formats, translated by engines whose answers are known.

mod engines;
mod formats;
mod identity;
mod invariants;
mod office;
mod office_invariants;
mod packed;
mod placement;
mod subtitles;
mod tables;
