//! Warnings about a source: oddities that are no errors.
//!
//! Input: sentences, from the readers of sources. Output: all of them, in order. Invariant: a source with a million oddities takes little
//! memory. Limits: [`MOST`] sentences are kept, and the others counted.

use std::sync::{Arc, Mutex, PoisonError};

/// Sentences that are kept.
const MOST: usize = 32;

/// See the module. Clones share what they keep.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    texts: Vec<String>,
    others: u64,
}

impl Warnings {
    /// Adds a sentence.
    pub fn add(&self, text: impl Into<String>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.texts.len() < MOST {
            true => kept.texts.push(text.into()),
            false => kept.others += 1,
        }
    }

    /// Takes all of them, each behind `place`.
    #[must_use]
    pub fn take(&self, place: &str) -> Vec<String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { mut texts, others } = std::mem::take(&mut *kept);
        if others > 0 {
            texts.push(format!("{others} more warnings"));
        }
        texts
            .iter()
            .map(|text| format!("{place}: {text}"))
            .collect()
    }
}
