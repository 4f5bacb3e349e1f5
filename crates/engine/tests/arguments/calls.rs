//! Calls of every kind, with arbitrary arguments: their list, and those of a volume as a whole.
//!
//! Input: a world and randomness. Output: a changed world. Invariant: every call returns: a success, or an error whose message can
//! be formatted. Limits: files that serve as bystanders are never named.

use crate::common::Rng;
use crate::devices::loop_device;
use crate::files::{blocking, let_go, look, open, range};
use crate::names::{attributes, by_number, flags, link, name};
use crate::queues::{attach, detach, queues, reap, requests, requests_while_quiet};
use crate::values::{self, number, path};
use crate::world::{World, expect};

/// A kind of call: its name, its relative frequency, the call.
type Kind = (&'static str, u64, fn(&mut World, &mut Rng));

/// All kinds of calls.
pub const KINDS: [Kind; 20] = [
    ("requests", 30, requests),
    ("requests while quiet", 2, requests_while_quiet),
    ("reap", 14, reap),
    ("attach", 6, attach),
    ("detach", 3, detach),
    ("queues", 1, queues),
    ("open", 8, open),
    ("let go", 3, let_go),
    ("blocking call", 10, blocking),
    ("range call", 8, range),
    ("look", 6, look),
    ("name", 10, name),
    ("link", 4, link),
    ("attributes", 4, attributes),
    ("flags", 2, flags),
    ("by number", 3, by_number),
    ("policy", 4, policy),
    ("volume", 3, volume),
    ("loop device", 5, loop_device),
    ("atomic, close", 1, atomic_or_close),
];

/// The next kind, chosen at random by frequency.
pub fn pick(rng: &mut Rng) -> usize {
    let mut at = rng.below(KINDS.iter().map(|k| k.1).sum());
    let found = KINDS.iter().position(|(_, share, _)| {
        let is_it = at < *share;
        at = at.wrapping_sub(*share);
        is_it
    });
    found.unwrap()
}

fn policy(world: &mut World, rng: &mut Rng) {
    let policy = values::policy(rng);
    world.volume.set_policy(policy);
    assert_eq!(world.volume.policy(), policy);
}

fn volume(world: &mut World, rng: &mut Rng) {
    let volume = &world.volume;
    match rng.below(4) {
        0 => drop(expect(volume.sync())),
        1 => drop(expect(volume.trim(number(rng)..number(rng), number(rng)))),
        2 => {
            let (uid, gid) = (number(rng) as u32, number(rng) as u32);
            expect(volume.with_owner(uid, gid).create(&path(rng), 0o600));
        }
        _ => {
            let _ = (
                volume.usage(),
                volume.counters(),
                volume.journal_stats(),
                volume.now(),
            );
            let _ = (volume.notes(), volume.groups(), volume.metadata_loads());
        }
    }
}

/// Calls that end a volume: an abandoned atomic change, a close with requests in flight, a failure. Calls on what is closed return errors.
fn atomic_or_close(world: &mut World, rng: &mut Rng) {
    match rng.below(4) {
        0 => {
            expect(world.volume.clone().close());
        }
        1 => {
            if let Some(atomic) = expect(world.volume.atomic()) {
                (0..3).for_each(|_| name(world, rng));
                expect(atomic.abandon());
            }
        }
        _ => {
            if let Some(atomic) = expect(world.volume.atomic()) {
                for _ in 0..4 {
                    name(world, rng);
                    blocking(world, rng);
                }
                expect(atomic.commit());
            }
            if !world.faults {
                return;
            }
        }
    }
    for _ in 0..6 {
        let kind = pick(rng);
        if KINDS[kind].0 != "atomic, close" {
            KINDS[kind].2(world, rng);
        }
    }
    world.reopen(rng);
}
