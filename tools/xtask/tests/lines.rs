//! The width of what people read: a line of a source or of a document is at most 140 columns wide.

use std::path::{Path, PathBuf};

/// In columns.
const WIDEST: usize = 140;

/// Sources and documents below a folder, without what is built.
fn texts(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of the project") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        let is_text = [".rs", ".md"].iter().any(|end| name.ends_with(end));
        let is_ours = !name.starts_with('.') && !["target", "corpus", "artifacts"].contains(&name);
        match path.is_dir() {
            true if is_ours => texts(&path, found),
            false if is_text => found.push(path),
            _ => {}
        }
    }
}

/// A row of a table cannot be wrapped, and neither can what a command printed.
fn may_be_wide(path: &Path, line: &str) -> bool {
    let is_document = path.extension().is_some_and(|e| e == "md");
    let row = line
        .trim_start()
        .trim_start_matches(['/', '!'])
        .trim_start();
    row.starts_with('|') || is_document && line.starts_with("    ")
}

#[test]
fn lines_fit() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    texts(&root, &mut files);
    assert!(files.len() > 500, "only {} files were read", files.len());
    let mut wide = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("text");
        for (number, line) in (1..).zip(text.lines()) {
            if line.chars().count() > WIDEST && !may_be_wide(&path, line) {
                wide.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert!(
        wide.is_empty(),
        "wider than {WIDEST} columns:\n{}",
        wide.join("\n")
    );
}
