//! What it is: how a test says that it, or a part of it, was not run.
//! Input: the reason. Output: a line on standard error, and one in the file that `DIORITE_SKIPPED` names.
//! Invariant: the line is seen although the test passes; libtest keeps only what goes through `eprintln!`.
//! Limit: a test is named by its thread; what other threads skip is named by its place in the source.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

/// What has been said: once is enough.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Says what is not tested here, and why; `scripts/test` lists it at its end.
#[track_caller]
pub fn skipped(why: impl Display) {
    let thread = std::thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => Location::caller().to_string(),
    };
    let why = why.to_string();
    let line = format!("{test}: {}\n", why.lines().collect::<Vec<_>>().join(" "));
    if !SAID
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(line.clone())
    {
        return;
    }
    // Nobody may be reading, and that is no failure of the test.
    let _unread = std::io::stderr().write_all(format!("skipped: {line}").as_bytes());
    if let Some(list) = std::env::var_os("DIORITE_SKIPPED") {
        let list = File::options().append(true).create(true).open(&list);
        let added = list.and_then(|mut list| list.write_all(line.as_bytes()));
        added.expect("DIORITE_SKIPPED names a file that can be written");
    }
}

#[cfg(test)]
mod tests {
    use super::skipped;
    use std::process::Command;

    /// A test that skipped looked like one that passed: libtest keeps what such a one prints.
    #[test]
    fn a_skip_is_seen_and_listed_once() {
        let list = tempfile::NamedTempFile::new().expect("a scratch file");
        let own = std::env::current_exe().expect("a test has a program");
        let ran = Command::new(own)
            .args([
                "--exact",
                "skip::tests::skips",
                "--ignored",
                "--test-threads=2",
            ])
            .env("DIORITE_SKIPPED", list.path())
            .output()
            .expect("the test's own program runs");
        let (out, err) = (ran.stdout, String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&out));
        let line = "skip::tests::skips: no tool, for some reason\n";
        assert_eq!(err, format!("skipped: {line}"));
        assert_eq!(std::fs::read_to_string(list.path()).expect("a list"), line);
    }

    #[test]
    #[ignore = "run by a_skip_is_seen_and_listed_once"]
    fn skips() {
        for _ in 0..2 {
            skipped("no tool,\nfor some reason");
        }
    }
}
