//! Bytes as SubRip and as WebVTT. A copy is the same bytes, and an answer of any kind is written without a fault.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine_document::Format;
use peregrine_fuzz::check_document;

fuzz_target!(|bytes: &[u8]| {
    for format in [Format::Srt, Format::Vtt] {
        check_document(bytes, format);
    }
});
