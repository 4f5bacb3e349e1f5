//! Any call with any arguments, from a seed, returns an error or a success. It never panics, hangs, leaks, or changes a file that
//! was not named.
//!
//! Input: images of mke2fs, `DIORITE_SEED`, `DIORITE_STEPS` calls. Output: nothing, or the call that failed. Invariants: a seed
//! always makes the same calls; rules D7, D8, D11 are checked at the end of each world. Limits: one thread calls; the workers run
//! beside it.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod devices;
mod files;
mod names;
mod queues;
mod values;
mod world;

use common::watch::Watchdog;
use common::{Rng, scaled};
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;
use world::World;

/// The number of calls on one world.
const SESSION: u64 = 400;

/// The call under way.
static NOW: Mutex<String> = Mutex::new(String::new());

/// A panic in any thread ends the process: the engine would turn a panic of its worker into an error, and a panic here may cause a
/// hang.
fn end_at_a_panic() {
    let said = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        said(info);
        // Not by a macro: the harness keeps what those print until the test ends, which it never does.
        let now = NOW.lock().unwrap();
        let _ = writeln!(std::io::stderr(), "{info}\nin {now}");
        std::process::abort();
    }));
}

/// Rules D7, D8, D11.
#[test]
fn any_call_with_any_arguments_is_answered() {
    end_at_a_panic();
    let steps = scaled("DIORITE_STEPS", 2_000);
    let mut rng = Rng::from_env("arguments");
    let first = rng.below(1 << 32);
    let watchdog = Watchdog::new(Duration::from_secs(120), "the beginning");
    let now = |what: String| {
        watchdog.feed(what.clone());
        *NOW.lock().unwrap() = what;
    };
    for seed in first..first + steps.div_ceil(SESSION) {
        now(format!("session {seed}: its beginning"));
        let mut world = World::new(seed, &mut rng);
        for step in 0..SESSION {
            let (name, _, call) = calls::KINDS[calls::pick(&mut rng)];
            now(format!("session {seed}, call {step}: {name}"));
            call(&mut world, &mut rng);
        }
        now(format!("session {seed}: its end"));
        world.judge(&mut rng);
    }
}
