//! Any text; see `checks::boot_text`.
#![no_main]
#![allow(dead_code)]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::boot_text(bytes));
