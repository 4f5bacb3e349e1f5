//! The history of the volume: times, counts of mounts, recorded errors.
//!
//! Input: the superblock's informational fields. Output: lines. Invariant: a time that was never set is `n/a`, in JSON null.
//! Limits: months have 30 days.

use super::{List, or};
use crate::words::times::Clock;
use diorite_format::superblock::{ErrorRecord, SuperInfo};
use serde_json::{Value, json};

pub(super) fn times(info: &SuperInfo, clock: &Clock, list: &mut List) {
    let time = |list: &mut List, label, key, secs: i64| {
        list.field(label, key, &clock.ctime(secs), json!(secs))
    };
    let or_never = |list: &mut List, label, key, secs: i64| match secs {
        0 => list.field(label, key, "n/a", Value::Null),
        secs => time(list, label, key, secs),
    };
    if info.mkfs_time != 0 {
        time(list, "Filesystem created", "created", info.mkfs_time);
    }
    or_never(list, "Last mount time", "last_mount_time", info.mount_time);
    or_never(list, "Last write time", "last_write_time", info.write_time);
    list.number("Mount count", "mount_count", info.mount_count);
    list.number(
        "Maximum mount count",
        "max_mount_count",
        info.max_mount_count,
    );
    time(list, "Last checked", "last_checked", info.check_time);
    let interval = info.check_interval;
    let words = format!("{interval} ({})", interval_words(interval));
    list.field("Check interval", "check_interval", &words, json!(interval));
    if interval != 0 {
        let next = info.check_time.saturating_add(i64::from(interval));
        time(list, "Next check after", "next_check", next);
    }
    if info.kbytes_written != 0 {
        let words = kib_words(info.kbytes_written);
        list.field(
            "Lifetime writes",
            "lifetime_writes_kib",
            &words,
            json!(info.kbytes_written),
        );
    }
}

/// Who may use the reserved blocks.
pub(super) fn owners(info: &SuperInfo, list: &mut List) {
    let root = |id: u32, what: &str| match id {
        0 => format!("0 ({what} root)"),
        n => n.to_string(),
    };
    let (uid, gid) = (info.reserved_uid, info.reserved_gid);
    list.field(
        "Reserved blocks uid",
        "reserved_uid",
        &root(uid, "user"),
        json!(uid),
    );
    list.field(
        "Reserved blocks gid",
        "reserved_gid",
        &root(gid, "group"),
        json!(gid),
    );
}

/// An interval as text: `6 months`, `1 week, 2 days`, `1 day, 1:01:01`: the units that are not zero, largest first.
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

/// A number of KiB in a unit that keeps the number short.
fn kib_words(kib: u64) -> String {
    const LARGE: u64 = 8 << 10;
    match kib {
        n if n < LARGE => format!("{n} kB"),
        n if n >> 10 < LARGE => format!("{} MB", (n + (1 << 9)) >> 10),
        n if n >> 20 < LARGE => format!("{} GB", (n + (1 << 19)) >> 20),
        n => format!("{} TB", n.saturating_add(1 << 29) >> 30),
    }
}

/// Labels and JSON names of a recorded error's parts: time, function, line, inode, block, code.
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

pub(super) fn errors(info: &SuperInfo, clock: &Clock, list: &mut List) {
    let Some(errors) = &info.errors_recorded else {
        return;
    };
    list.number("FS Error count", "error_count", errors.count);
    for (names, error) in [(FIRST, &errors.first), (LAST, &errors.last)] {
        if error.time != 0 {
            one_error(&names, error, clock, list);
        }
    }
}

fn one_error(names: &ErrorNames, error: &ErrorRecord, clock: &Clock, list: &mut List) {
    let [time, function, line, ino, block, code] = *names;
    list.field(time.0, time.1, &clock.ctime(error.time), json!(error.time));
    list.text(function.0, function.1, &error.function);
    list.number(line.0, line.1, error.line);
    list.number_if(ino.0, ino.1, error.ino);
    list.number_if(block.0, block.1, error.block);
    list.number_if(code.0, code.1, error.code);
}
