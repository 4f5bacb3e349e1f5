//! What it is: the crate that mutated code calls to learn whether a mutant is on.
//! Input: the environment: `DIORITE_MUTANT=N` turns on one mutant; `DIORITE_MUTANTS_SEEN=FILE` records which mutants' code was run,
//! as a byte 1 at the mutant's number.
//! Invariant: every process of a test reads the environment once; a child process inherits it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Larger than any mutant's number.
const MOST: usize = 1 << 16;

struct Switch {
    on: u32,
    record: Option<File>,
}

static SWITCH: OnceLock<Switch> = OnceLock::new();
static SEEN: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

fn read() -> Switch {
    let number = std::env::var("DIORITE_MUTANT").ok();
    let path = std::env::var_os("DIORITE_MUTANTS_SEEN");
    Switch {
        on: number.map_or(0, |n| n.parse().expect("DIORITE_MUTANT is a number")),
        record: path.map(|path| File::options().write(true).open(path).expect("the record can be opened")),
    }
}

/// True if mutant `number` is on; records the call if `DIORITE_MUTANTS_SEEN` is set.
pub fn on(number: u32) -> bool {
    let switch = SWITCH.get_or_init(read);
    if let Some(record) = &switch.record
        && !SEEN[number as usize].swap(true, Ordering::Relaxed)
    {
        record.write_all_at(&[1], u64::from(number)).expect("the record can be written");
    }
    switch.on == number
}
