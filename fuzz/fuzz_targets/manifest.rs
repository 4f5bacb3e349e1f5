//! A manifest in the form of mtree: reading it ends, and what comes out of it is an image in which the check finds nothing.
//!
//! The input is the manifest. Words that name files of the host are taken out.
#![no_main]

use diorite_fuzz::files::{Scratch, make, read};
use diorite_image::Source;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let file = Scratch::new(text.replace("content", "c").as_bytes());
    if let Ok((_, _, builder)) = read(Source::Manifest(file.path()), &std::env::temp_dir()) {
        make(builder);
    }
});
