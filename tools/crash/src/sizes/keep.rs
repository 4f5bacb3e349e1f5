//! What it is: a state in which something was found, kept so that it can be judged again.
//! Input: the image before any recovery, what was requested and acknowledged, the position of the cut. Output: a directory with
//! `state.img`, `sizes.json` and `found.txt`. Invariant: nothing else is needed to judge the state again.

use super::history::Told;
use super::judge::Judge;
use crate::error::{Result, at, notes};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Everything that a judge must know of a state besides its image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kept {
    /// The origin of the state in words.
    pub origin: String,
    /// What was requested and acknowledged.
    pub told: Told,
    /// The position of the cut in the log.
    pub cut: usize,
}

const STATE: &str = "sizes.json";

impl Kept {
    /// Keeps the state in `dir`.
    ///
    /// # Errors
    /// The host has no room.
    pub fn store(&self, dir: &Path, image: &[u8], found: &[String]) -> Result<()> {
        std::fs::create_dir_all(dir).map_err(at(dir))?;
        let put = |path: PathBuf, bytes: &[u8]| std::fs::write(&path, bytes).map_err(at(&path));
        let json = serde_json::to_vec(self).map_err(notes("a state"))?;
        put(dir.join("state.img"), image)?;
        put(dir.join(STATE), &json)?;
        put(dir.join("found.txt"), found.join("\n").as_bytes())
    }
}

/// True if a state of this kind is kept in `dir`.
#[must_use]
pub fn is_kept(dir: &Path) -> bool {
    dir.join(STATE).is_file()
}

/// Judges a kept state again; returns its origin and the new findings.
///
/// # Errors
/// The directory does not hold a state.
pub fn repeat(dir: &Path, kernel: bool) -> Result<(String, Vec<String>)> {
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read(&path).map_err(at(&path))
    };
    let kept: Kept = serde_json::from_slice(&read(STATE)?).map_err(notes("a kept state"))?;
    let told = (&kept.told, kept.cut);
    let found = Judge::new()?.judge(&read("state.img")?, told, kernel)?;
    Ok((kept.origin, found))
}
