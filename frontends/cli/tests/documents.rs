//! The commands of the documents are what the command takes: README and the pages of the book are run, block by block.
//!
//! Input: Markdown. A block ```` ```sh run ```` is run, with the other blocks of its page and in their order, in an empty folder; `needs
//! A, B` names programs, `fuse` or `root`, without which it is skipped. Other blocks of commands say why they are not run
//! (tools/xtask/tests/documents.rs). Invariant: a page is one script that ends at the first failure. Limits: what a block prints is not
//! compared.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xtask::documents::{Tag, below, blocks, root};
use xtask::skip::skipped;

/// Whether this machine has what a block needs.
fn has(what: &str) -> bool {
    let is_root = rustix::process::getuid().is_root();
    match what {
        "root" => is_root,
        "fuse" => {
            let open = File::options().read(true).write(true).open("/dev/fuse");
            open.is_ok() && (is_root || has("fusermount3"))
        }
        program => std::env::var_os("PATH").is_some_and(|paths| {
            let mut dirs = std::env::split_paths(&paths);
            dirs.any(|dir| dir.join(program).exists())
        }),
    }
}

/// The script of a page, and how many blocks it has.
fn script(page: &Path) -> (String, usize) {
    let text = fs::read_to_string(page).expect("a document");
    let name = page.strip_prefix(root()).unwrap_or(page).display();
    // A mount that a failed block leaves would keep the folder.
    let mut script = "set -euo pipefail\n\
        trap 'for m in mnt*; do [ ! -d \"$m\" ] || ! mountpoint -q \"$m\" || diorite umount \"$m\" || :; done' EXIT\n"
        .to_owned();
    let mut count = 0;
    for block in blocks(&text) {
        let Tag::Run(needs) = block.tag() else {
            continue;
        };
        if let Some(lacks) = needs.iter().find(|what| !has(what)) {
            skipped(format_args!("{name}:{}: needs {lacks}", block.line));
            continue;
        }
        write!(
            script,
            "printf '== {name}:{}\\n' >&2\n{}",
            block.line, block.text
        )
        .expect("a String takes everything");
        count += 1;
    }
    (script, count)
}

/// Runs the blocks of a page, and returns how many it has.
fn run(page: &Path) -> usize {
    let (script, count) = script(page);
    if count == 0 {
        return 0;
    }
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let file = scratch.path().join("page.sh");
    fs::write(&file, script).expect("a scratch file");
    let work = scratch.path().join("work");
    fs::create_dir(&work).expect("a scratch folder");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_diorite"));
    let own = program.parent().expect("a program has a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    // Ends what the script has left in the background, too.
    let ran = Command::new("timeout")
        .arg("120")
        .arg("bash")
        .arg(&file)
        .env("PATH", format!("{}:{path}", own.display()))
        .env("LC_ALL", "C")
        .env("HOME", &work)
        .current_dir(&work)
        .stdin(Stdio::null())
        .output()
        .expect("coreutils and bash are installed");
    assert!(
        ran.status.success(),
        "{}: {}\n{}\n{}",
        page.display(),
        ran.status,
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
    count
}

/// Runs all pages of a part of the book, which has so many blocks at least.
fn part(name: &str, least: usize) {
    let pages = below(&root().join("docs/book/src").join(name));
    let count: usize = pages.iter().map(|page| run(page)).sum();
    assert!(count >= least, "{name}: only {count} blocks");
}

#[test]
fn readme() {
    assert!(run(&root().join("README.md")) >= 1);
}

#[test]
fn tutorials() {
    part("tutorials", 3);
}

#[test]
fn how_to() {
    part("howto", 8);
}

#[test]
fn reference() {
    part("reference", 3);
}

/// The pages of commands that the book is built with, and the names that scripts/book links to them, are the same.
#[test]
fn each_command_has_a_page_in_the_book() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let made = Command::new(env!("CARGO_BIN_EXE_diorite"))
        .args(["generate", "book"])
        .arg(scratch.path())
        .output()
        .expect("the command runs");
    assert!(made.status.success(), "{made:?}");
    let table = root().join("docs/book/src/reference/commands.md");
    let table = fs::read_to_string(table).expect("the table of commands");
    let linked: Vec<String> = xtask::documents::keys(&table)
        .into_iter()
        .map(|name| format!("{name}.md"))
        .collect();
    let mut pages: Vec<String> = below(scratch.path())
        .iter()
        .map(|page| page.strip_prefix(scratch.path()).expect("below it"))
        .map(|page| page.display().to_string())
        .collect();
    pages.sort();
    let alone: Vec<_> = linked.iter().filter(|p| !pages.contains(p)).collect();
    assert!(alone.is_empty(), "linked, but not made: {alone:?}");
    // Pages of commands below another one are linked from its page.
    let below_another = |page: &str| {
        let (above, _) = page.split_once('-').unwrap_or_default();
        pages.contains(&format!("{above}.md"))
    };
    let missing: Vec<_> = pages
        .iter()
        .filter(|p| !linked.contains(p) && !below_another(p))
        .collect();
    assert!(missing.is_empty(), "made, but not linked: {missing:?}");
}
