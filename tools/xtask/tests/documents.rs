//! The documents: links lead somewhere, the book's contents are complete, blocks of commands say whether a test runs them, and the table
//! of places in CONTRIBUTING names places that are there.

use std::path::{Path, PathBuf};
use xtask::documents::{Tag, anchors, below, blocks, links, root, table};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Documents whose text people read from top to bottom.
fn documents() -> Vec<PathBuf> {
    let all = below(&root());
    assert!(all.len() > 40, "only {} documents were found", all.len());
    all
}

fn none(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{what}:\n{}", faults.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    let mut faults = Vec::new();
    let mut followed = 0;
    for path in documents() {
        let text = read(&path);
        for (line, target) in links(&text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (file, anchor) = match target.split_once('#') {
                Some((file, anchor)) => (file, Some(anchor)),
                None => (target.as_str(), None),
            };
            let to = match file {
                "" => path.clone(),
                file => path.parent().unwrap_or(&path).join(file),
            };
            let place = format!("{}:{line}: {target}", path.display());
            match anchor {
                _ if !to.exists() => faults.push(place),
                Some(anchor) if !anchors(&read(&to)).iter().any(|a| a == anchor) => {
                    faults.push(format!("{place}: no such heading"));
                }
                _ => {}
            }
        }
    }
    assert!(followed > 100, "only {followed} links were followed");
    none("links that lead nowhere", &faults);
}

#[test]
fn the_book_has_all_of_its_pages() {
    let dir = root().join("docs/book/src");
    let contents = read(&dir.join("SUMMARY.md"));
    let listed: Vec<PathBuf> = links(&contents)
        .into_iter()
        .map(|(_, to)| dir.join(to))
        .collect();
    let mut faults: Vec<String> = Vec::new();
    for page in below(&dir) {
        let count = listed.iter().filter(|to| **to == page).count();
        if !page.ends_with("SUMMARY.md") && count != 1 {
            faults.push(format!("{} is listed {count} times", page.display()));
        }
    }
    assert!(listed.len() > 30, "only {} pages", listed.len());
    none("pages that the contents do not list once", &faults);
}

/// A block of commands is run by a test, or says why not.
#[test]
fn blocks_of_commands_say_whether_they_run() {
    let book = root().join("docs/book/src");
    let mut pages = below(&book);
    pages.push(root().join("README.md"));
    let mut faults = Vec::new();
    let (mut run, mut not) = (0, 0);
    for path in pages {
        for block in blocks(&read(&path)) {
            match block.tag() {
                Tag::Run(_) => run += 1,
                Tag::NoRun(_) => not += 1,
                Tag::Other if ["bash", "shell", "console"].contains(&block.info.as_str()) => {
                    faults.push(format!("{}:{}: write `sh`", path.display(), block.line));
                }
                Tag::Other => {}
                Tag::Missing => faults.push(format!("{}:{}", path.display(), block.line)),
            }
        }
    }
    none("blocks of commands without `run` or `no-run: WHY`", &faults);
    assert!(run > not, "{run} blocks are run, {not} are not");
}

#[test]
fn what_is_to_be_short_is_short() {
    for (name, most) in [("README.md", 150), ("ARCHITECTURE.md", 300)] {
        let lines = read(&root().join(name)).lines().count();
        assert!(lines <= most, "{name} has {lines} lines, at most {most}");
    }
}

/// The rows of "Where would I change X": what is to be changed, a file, and a word that is in it.
#[test]
fn places_to_change_are_there() {
    let text = read(&root().join("CONTRIBUTING.md"));
    let rows = table(&text, "## Where would I change ...");
    assert!(rows.len() >= 10, "only {} rows", rows.len());
    let mut faults = Vec::new();
    let quoted = |cell: &str| -> Vec<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    for row in rows {
        let [what, files, words] = &row[..] else {
            panic!("a row has three cells: {row:?}");
        };
        let texts: Vec<String> = quoted(files)
            .iter()
            .filter_map(|file| match std::fs::read_to_string(root().join(file)) {
                Ok(text) => Some(text),
                Err(error) => {
                    faults.push(format!("{what}: {file}: {error}"));
                    None
                }
            })
            .collect();
        let words = quoted(words);
        assert!(
            !texts.is_empty() || !faults.is_empty(),
            "{what} names no file"
        );
        assert!(!words.is_empty(), "{what} names no item");
        for word in words {
            if !texts.iter().any(|text| text.contains(&word)) {
                faults.push(format!("{what}: none of its files contains `{word}`"));
            }
        }
    }
    none("rows that are not true", &faults);
}

/// Drawings that no document shows, and those that are shown and not made.
#[test]
fn every_drawing_is_shown() {
    let shown: Vec<String> = documents()
        .iter()
        .flat_map(|path| links(&read(path)))
        .filter_map(|(_, to)| Some(to.rsplit_once("drawings/")?.1.to_owned()))
        .collect();
    for (name, _) in xtask::drawings::texts() {
        assert!(shown.contains(&name), "no document shows {name}");
    }
}
