//! The drawings of the documents, as SVG.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `svg` | boxes, arrows and words at places -> the text of an SVG |
//! | `place` | where diorite stands beside other programs |
//! | `inside` | crates, the route of a request, a dirty page, a commit, threads |
//! | `techniques` | the five techniques, before and after |
//!
//! Input: nothing. Output: a name and a text for each drawing; `docs/drawings/NAME.svg`. Invariants: the same text each time; words fit
//! into their boxes; colours follow the reader's preference for light or dark. Limits: English; the widths of letters are estimated.

mod inside;
mod place;
mod svg;
mod techniques;

use std::io;
use std::path::{Path, PathBuf};
use svg::Drawing;

/// Each drawing with its name.
fn all() -> Vec<(&'static str, Drawing)> {
    let mut all = vec![("where", place::place())];
    all.extend(inside::all());
    all.extend(techniques::all());
    all
}

/// Name and text of each drawing.
#[must_use]
pub fn texts() -> Vec<(String, String)> {
    let named = all().into_iter();
    named
        .map(|(name, drawing)| (format!("{name}.svg"), drawing.text()))
        .collect()
}

/// Where the drawings are kept.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drawings")
}

/// Writes all drawings to a directory, and returns their paths.
///
/// # Errors
/// A directory or a file that cannot be written.
pub fn write_all(dir: &Path) -> io::Result<Vec<PathBuf>> {
    std::fs::create_dir_all(dir)?;
    let write = |(name, text): (String, String)| {
        let path = dir.join(name);
        std::fs::write(&path, text).map(|()| path)
    };
    texts().into_iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::{all, folder, texts};

    #[test]
    fn words_fit_and_boxes_lie_inside() {
        for (name, drawing) in all() {
            let faults = drawing.faults();
            assert!(faults.is_empty(), "{name}: {}", faults.join("\n"));
        }
    }

    /// A drawing that was changed by hand, or not made again.
    #[test]
    fn kept_drawings_are_those_of_the_code() {
        for (name, text) in texts() {
            let kept = std::fs::read_to_string(folder().join(&name)).unwrap_or_default();
            assert!(
                kept == text,
                "{name} differs: `cargo xtask drawings` makes it"
            );
        }
        let kept = std::fs::read_dir(folder()).expect("the folder of drawings");
        assert_eq!(
            kept.count(),
            texts().len(),
            "a file that no drawing made is in docs/drawings"
        );
    }
}
