//! The volume's features, each with whether diorite can read and write a volume that has it.
//!
//! Input: a superblock. Output: a table, JSON. Invariant: the verdicts are taken from the format crate's table. Limits: a state
//! that forbids writing (a journal to be replayed, recorded errors) is printed after the features.

use diorite_format::features::{Access, Set, Verdict, verdicts};
use diorite_format::superblock::JournalPlace;
use diorite_format::{Features, Superblock};
use serde_json::{Value, json};

/// One feature that the volume has.
struct Row {
    name: String,
    set: &'static str,
    read: &'static str,
    write: &'static str,
    help: &'static str,
}

fn rows(features: &Features) -> Vec<Row> {
    let sets = [
        (
            Set::Compat,
            "compat",
            features.compat.bits(),
            features.compat.names(),
        ),
        (
            Set::Incompat,
            "incompat",
            features.incompat.bits(),
            features.incompat.names(),
        ),
        (
            Set::RoCompat,
            "ro_compat",
            features.ro_compat.bits(),
            features.ro_compat.names(),
        ),
    ];
    let mut rows = Vec::new();
    for (set, word, bits, names) in sets {
        let set_bits = (0..32).map(|n| 1u32 << n).filter(|b| bits & b != 0);
        rows.extend(
            set_bits
                .zip(names)
                .map(|(bit, name)| row(set, word, bit, name)),
        );
    }
    rows
}

fn row(set: Set, word: &'static str, bit: u32, name: String) -> Row {
    let known = verdicts().iter().find(|v| v.set == set && v.bit == bit);
    let (read, write, help) = match (known, set) {
        (Some(v), _) => (v.read, v.write, v.help),
        (None, Set::Compat) => (
            Verdict::Full,
            Verdict::Full,
            "newer than this program; may be ignored",
        ),
        (None, Set::RoCompat) => (Verdict::Full, Verdict::Refused, "newer than this program"),
        (None, Set::Incompat) => (
            Verdict::Refused,
            Verdict::Refused,
            "newer than this program",
        ),
    };
    Row {
        name,
        set: word,
        read: word_of(read),
        write: word_of(write),
        help,
    }
}

fn word_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Full => "full",
        Verdict::Partial => "partial",
        Verdict::Refused => "refused",
    }
}

/// Whether the volume can be opened for reading and for writing, or why not.
pub(super) fn access(
    sb: &Superblock,
    refused: Option<&str>,
) -> (Result<(), String>, Result<(), String>) {
    let read = match refused {
        Some(why) => Err(why.to_owned()),
        None => sb.features().check(Access::Read).map_err(|e| e.to_string()),
    };
    let write = read.clone().and_then(|()| {
        sb.features()
            .check(Access::Write)
            .map_err(|e| e.to_string())?;
        let state = [
            (
                sb.needs_recovery() && !matches!(sb.journal(), JournalPlace::Internal(_)),
                "the journal needs recovery, and is not in the volume: name its device (--journal)",
            ),
            (
                sb.has_error_state() || sb.recorded_errors().is_some(),
                "errors are recorded in the superblock: run e2fsck",
            ),
            (
                !sb.last_orphan().is_none(),
                "there are orphaned inodes: run e2fsck",
            ),
        ];
        match state.iter().find(|(found, _)| *found) {
            Some((_, why)) => Err((*why).to_owned()),
            None => Ok(()),
        }
    });
    (read, write)
}

/// The table.
pub(super) fn text(sb: &Superblock, refused: Option<&str>) -> Vec<String> {
    let say = |verdict: Result<(), String>| {
        verdict.map_or_else(|why| format!("no: {why}"), |()| "yes".to_owned())
    };
    let (read, write) = access(sb, refused);
    let mut lines = vec![
        format!("Can be read:              {}", say(read)),
        format!("Can be written:           {}", say(write)),
    ];
    let rows = rows(sb.features());
    if !rows.is_empty() {
        lines.push(format!("{:<26}{:<9}{:<9}note", "Feature", "read", "write"));
    }
    for row in rows {
        let line = format!(
            "  {:<24}{:<9}{:<9}{}",
            row.name, row.read, row.write, row.help
        );
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// The `features` array.
pub(super) fn json(sb: &Superblock) -> Value {
    let rows = rows(sb.features());
    let object = |r: &Row| json!({"name": r.name, "set": r.set, "read": r.read, "write": r.write, "help": r.help});
    rows.iter().map(object).collect()
}
