//! What happened to the volume: times, counts of mounts, recorded errors.
//!
//! Input: the superblock's fields for people. Output: [`Field`]s. Invariant: a time that was never set is `n/a`, in JSON null.
//! Limits: months have 30 days.

use super::{Field, or};
use crate::times::Clock;
use diorite_format::superblock::{ErrorRecord, SuperInfo};
use serde_json::{Value, json};

pub(super) fn history(info: &SuperInfo, clock: &Clock) -> Vec<Field> {
    let time = |label, key, secs: i64| Field::new(label, key, clock.ctime(secs), json!(secs));
    let or_never = |label, key, secs: i64| match secs {
        0 => Field::new(label, key, "n/a".to_owned(), Value::Null),
        secs => time(label, key, secs),
    };
    let mut fields = Vec::new();
    if info.mkfs_time != 0 {
        fields.push(time("Filesystem created", "created", info.mkfs_time));
    }
    let interval = info.check_interval;
    fields.extend([
        or_never("Last mount time", "last_mount_time", info.mount_time),
        or_never("Last write time", "last_write_time", info.write_time),
        Field::number("Mount count", "mount_count", info.mount_count),
        Field::number(
            "Maximum mount count",
            "max_mount_count",
            info.max_mount_count,
        ),
        time("Last checked", "last_checked", info.check_time),
        Field::new(
            "Check interval",
            "check_interval",
            format!("{interval} ({})", interval_words(interval)),
            json!(interval),
        ),
    ]);
    if interval != 0 {
        let next = info.check_time.saturating_add(i64::from(interval));
        fields.push(time("Next check after", "next_check", next));
    }
    if info.kbytes_written != 0 {
        let (kib, words) = (info.kbytes_written, kib_words(info.kbytes_written));
        fields.push(Field::new(
            "Lifetime writes",
            "lifetime_writes_kib",
            words,
            json!(kib),
        ));
    }
    let root = |id: u32, what: &str| match id {
        0 => format!("0 ({what} root)"),
        n => n.to_string(),
    };
    let (uid, gid) = (info.reserved_uid, info.reserved_gid);
    fields.push(Field::new(
        "Reserved blocks uid",
        "reserved_uid",
        root(uid, "user"),
        json!(uid),
    ));
    fields.push(Field::new(
        "Reserved blocks gid",
        "reserved_gid",
        root(gid, "group"),
        json!(gid),
    ));
    fields
}

/// `6 months`, `1 week, 2 days`, `1 day, 1:01:01`: each unit that is left over, largest first.
fn interval_words(mut secs: u32) -> String {
    const UNITS: [(u32, &str); 3] = [
        (30 * 86_400, "month"),
        (7 * 86_400, "week"),
        (86_400, "day"),
    ];
    let mut words = Vec::new();
    for (unit, name) in UNITS {
        let n = secs / unit;
        secs %= unit;
        if n > 0 {
            let s = if n == 1 { "" } else { "s" };
            words.push(format!("{n} {name}{s}"));
        }
    }
    if secs > 0 {
        let (hours, minutes) = (secs / 3600, secs / 60 % 60);
        words.push(format!("{hours}:{minutes:02}:{:02}", secs % 60));
    }
    or(&words.join(", "), "<none>").to_owned()
}

/// KiB in the unit that leaves a number of readable length.
fn kib_words(kib: u64) -> String {
    const LARGE: u64 = 8 << 10;
    match kib {
        n if n < LARGE => format!("{n} kB"),
        n if n >> 10 < LARGE => format!("{} MB", (n + (1 << 9)) >> 10),
        n if n >> 20 < LARGE => format!("{} GB", (n + (1 << 19)) >> 20),
        n => format!("{} TB", n.saturating_add(1 << 29) >> 30),
    }
}

/// Labels and names of a recorded error's parts: time, function, line, inode, block, code.
type ErrorNames = [(&'static str, &'static str); 6];
const FIRST: ErrorNames = [
    ("First error time", "first_error_time"),
    ("First error function", "first_error_function"),
    ("First error line #", "first_error_line"),
    ("First error inode #", "first_error_inode"),
    ("First error block #", "first_error_block"),
    ("First error err", "first_error_code"),
];
const LAST: ErrorNames = [
    ("Last error time", "last_error_time"),
    ("Last error function", "last_error_function"),
    ("Last error line #", "last_error_line"),
    ("Last error inode #", "last_error_inode"),
    ("Last error block #", "last_error_block"),
    ("Last error err", "last_error_code"),
];

pub(super) fn errors(info: &SuperInfo, clock: &Clock) -> Vec<Field> {
    let Some(errors) = &info.errors_recorded else {
        return Vec::new();
    };
    let mut fields = vec![Field::number("FS Error count", "error_count", errors.count)];
    for (names, error) in [(FIRST, &errors.first), (LAST, &errors.last)] {
        if error.time != 0 {
            fields.extend(error_fields(&names, error, clock));
        }
    }
    fields
}

fn error_fields(names: &ErrorNames, error: &ErrorRecord, clock: &Clock) -> Vec<Field> {
    let [time, function, line, ino, block, code] = *names;
    let mut fields = vec![
        Field::new(time.0, time.1, clock.ctime(error.time), json!(error.time)),
        Field::text(function.0, function.1, &error.function),
        Field::number(line.0, line.1, error.line),
    ];
    let optional = [
        (ino, u64::from(error.ino)),
        (block, error.block),
        (code, u64::from(error.code)),
    ];
    fields.extend(
        optional
            .iter()
            .filter(|(_, n)| *n != 0)
            .map(|(name, n)| Field::number(name.0, name.1, *n)),
    );
    fields
}
