//! What people read: a line of a source or of a document is at most 140 columns wide, a row of a document's table is one line, and a source
//! has at most 600 lines.

use std::path::{Path, PathBuf};

/// In columns.
const WIDEST: usize = 140;
/// In lines.
const LONGEST: usize = 600;

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

/// All sources and documents of the project.
fn all() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    texts(&root, &mut files);
    assert!(files.len() > 500, "only {} files were read", files.len());
    files
}

/// The defect: rows of the README's table of commands were wrapped, and what was behind the break was shown as a row of its own.
#[test]
fn rows_are_one_line() {
    let mut broken = Vec::new();
    for path in all() {
        if path.extension().is_none_or(|end| end != "md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with('|') && (line.len() == 1 || !line.ends_with('|')) {
                broken.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "rows of tables that do not end:\n{}",
        broken.join("\n")
    );
}

#[test]
fn lines_fit() {
    let mut wide = Vec::new();
    for path in all() {
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

/// The defect: three files grew past the bound that CONTRIBUTING names, and nobody was told.
#[test]
fn sources_are_short() {
    let mut long = Vec::new();
    for path in all() {
        let text = std::fs::read_to_string(&path).expect("text");
        let lines = text.lines().count();
        if path.extension().is_some_and(|end| end == "rs") && lines > LONGEST {
            long.push(format!("{}: {lines}", path.display()));
        }
    }
    assert!(
        long.is_empty(),
        "longer than {LONGEST} lines; a second idea in them deserves a file:\n{}",
        long.join("\n")
    );
}

/// The defect: a line that was printed to find a fault stayed, and a library wrote backtraces to the standard error of its program.
#[test]
fn libraries_print_nothing() {
    // Nobody is there to be given the error: a volume that is dropped in a debug build, threads of a server; and the seeds of tests.
    let told = [
        "engine/src/volume/mod.rs",
        "engine/src/testing.rs",
        "fuse/src/session/lane.rs",
        "cli/src/cmd/mount/server.rs",
    ];
    let prints = ["eprintln!(", "eprint!(", "println!(", "print!(", "dbg!("];
    let mut found = Vec::new();
    let mut read = 0;
    for path in all() {
        let shown = path.to_string_lossy().into_owned();
        let is_source = shown.ends_with(".rs") && shown.contains("/src/");
        let is_ours = ["/crates/", "/frontends/"]
            .iter()
            .any(|folder| shown.contains(folder));
        if !is_source
            || !is_ours
            || shown.contains("/tests")
            || told.iter().any(|file| shown.ends_with(file))
        {
            continue;
        }
        read += 1;
        let text = std::fs::read_to_string(&path).expect("text");
        // Unit tests end a file.
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or(&text);
        for (number, line) in (1..).zip(code.lines()) {
            let line = line.trim_start();
            if prints.iter().any(|print| line.starts_with(print)) {
                found.push(format!("{shown}:{number}"));
            }
        }
    }
    assert!(read > 300, "only {read} sources were read");
    assert!(
        found.is_empty(),
        "printed, not returned:\n{}",
        found.join("\n")
    );
}
