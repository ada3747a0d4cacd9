//! Bytes as a catalogue of gettext. A copy of what it fills is the same bytes, and an answer of any kind is written without a fault.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_document::Format;
use peregrine_fuzz::check_filled;

fuzz_target!(|bytes: &[u8]| {
    check_filled(bytes, Format::Po);
});
