//! The words for images and sizes: parsing ends, and what a locator is shown as means the same locator.
//!
//! The input is the word.
#![no_main]

use diorite_block::locator::{Locator, parse_size};
use diorite_image::{Exclude, Rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|word: &str| {
    if let Ok(locator) = Locator::parse(word) {
        let shown = locator.to_string();
        assert_eq!(Locator::parse(&shown).ok(), Some(locator), "{shown}");
    }
    let _ = parse_size(word);
    let _ = word.parse::<Exclude>();
    let _ = Rules::default().read_labels(word);
});
