//! The failures: wrong arguments, a volume for reading, no space, a device that fails, an atomic change, a volume that is closed.
//!
//! Input: the calls. Output: none. Invariants: a world for each call, so no call meets what another has left. Limits: a device that fails a
//! write may end all changes until the volume is opened again; then what is on the device counts.

use crate::common::watch::Watchdog;
use crate::refused::calls::{BAD, Call, GOOD};
use crate::refused::world::{State, World, check};
use diorite::{Error, Fallocate};
use std::time::Duration;

/// Far more than a call takes.
const LIMIT: Duration = Duration::from_secs(120);

/// Makes the call on this world, which is to be as before if it fails. Returns whether it has failed.
fn fails(world: &World, (name, call): &Call, what: &str) -> bool {
    let label = format!("{name}, {what}");
    let before = world.state().unwrap();
    let done = call(world);
    let Err(error) = done else { return false };
    expect_same(
        &before,
        &world.state().unwrap(),
        &format!("{label}: {error}"),
    );
    true
}

fn expect_same(before: &State, after: &State, label: &str) {
    assert!(before == after, "{label}\n{}", before.difference(after));
}

/// Asserts that the volume, in which nothing can be changed any more, is consistent when it is opened again.
fn expect_consistent(world: World) {
    let mem = world.mem.clone();
    drop(world);
    check(&mem);
}

/// Every call succeeds with a dirty page and a flusher. The defect: some took a lock under which nothing can be written back.
#[test]
fn every_call_is_made_with_dirty_pages() {
    for (name, call) in GOOD {
        let _watchdog = Watchdog::new(LIMIT, *name);
        let world = World::new();
        world.make_dirty();
        call(&world).unwrap_or_else(|e| panic!("{name}: {e}"));
        if !name.starts_with("rename") {
            world.expect_flusher(name);
        }
        world.end(name);
    }
}

#[test]
fn wrong_arguments_change_nothing() {
    for bad in BAD {
        let _watchdog = Watchdog::new(LIMIT, bad.0);
        let world = World::new();
        let free = world.free();
        world.make_dirty();
        assert!(
            fails(&world, bad, "wrong arguments"),
            "{}: it is done",
            bad.0
        );
        world.expect_flusher(bad.0);
        world.expect_service(bad.0);
        assert_eq!(world.free(), free, "{}", bad.0);
        world.end(bad.0);
    }
}

#[test]
fn a_volume_for_reading_stays_as_it_is() {
    for call in GOOD.iter().chain(BAD) {
        let _watchdog = Watchdog::new(LIMIT, call.0);
        let world = World::opened(|options| options.write = false);
        let before = (world.state().unwrap(), world.bytes());
        let _either = call.1(&world);
        expect_same(&before.0, &world.state().unwrap(), call.0);
        assert!(before.1 == world.bytes(), "{}: it was written to", call.0);
    }
}

/// No free block, or no free inode.
#[test]
fn a_full_volume_keeps_what_it_has() {
    let mut failed = 0;
    for (what, fill) in [
        ("no block", World::take_blocks as fn(&World)),
        ("no inode", World::take_inodes),
    ] {
        for good in GOOD {
            let _watchdog = Watchdog::new(LIMIT, format!("{}, {what}", good.0));
            let world = World::new();
            fill(&world);
            let free = world.free();
            world.make_dirty();
            if fails(&world, good, what) {
                failed += 1;
                world.expect_flusher(good.0);
                world.expect_service(good.0);
                assert_eq!(world.free(), free, "{}, {what}", good.0);
            }
            world.end(good.0);
        }
    }
    assert!(failed > 15, "{failed}");
}

/// Nothing of the metadata is in memory that need not be.
#[test]
fn a_device_that_fails_reads_changes_nothing() {
    let mut failed = 0;
    for good in GOOD {
        let _watchdog = Watchdog::new(LIMIT, good.0);
        let world = World::opened(|options| {
            options.metadata_cache = 0;
            options.map_cache = 0;
        });
        let free = world.free();
        world.make_dirty();
        let before = world.state().unwrap();
        world.valve.fail_reads(0..u64::MAX);
        let done = good.1(&world);
        world.valve.fail_reads(0..0);
        if world.is_latched() {
            // The transaction in which blocks are freed is given up as a whole.
            expect_consistent(world);
            continue;
        }
        if let Err(error) = done {
            failed += 1;
            let label = format!("{}: {error}", good.0);
            expect_same(&before, &world.state().unwrap(), &label);
            world.expect_flusher(&label);
            world.expect_service(&label);
            assert_eq!(world.free(), free, "{label}");
        }
        world.end(good.0);
    }
    assert!(failed > 15, "{failed}");
}

/// If a commit fails, nothing can be changed until the volume is opened again.
#[test]
fn a_device_that_fails_writes_changes_nothing() {
    let mut failed = 0;
    for good in GOOD {
        let _watchdog = Watchdog::new(LIMIT, good.0);
        let world = World::new();
        let free = world.free();
        let before = world.state().unwrap().without_times();
        world.valve.fail_at(0..u64::MAX);
        let done = good.1(&world);
        world.valve.fail_at(0..0);
        let Err(error) = done else { continue };
        failed += 1;
        let label = format!("{}: {error}", good.0);
        if world.is_latched() {
            expect_consistent(world);
            continue;
        }
        let after = world.state().unwrap().without_times();
        expect_same(&before, &after, &label);
        // A sync of the volume may report what was not written back, too.
        let _told = world.volume.sync();
        world.expect_flusher(&label);
        world.expect_service(&label);
        assert_eq!(world.free(), free, "{label}");
        world.end(&label);
    }
    assert!(failed > 15, "{failed}");
}

/// An atomic change is open: what would need a commit in its middle is refused, and the atomic change can be committed.
#[test]
fn an_open_atomic_change_is_left_alone() {
    for good in GOOD {
        let _watchdog = Watchdog::new(LIMIT, good.0);
        let world = World::new();
        let free = world.free();
        let atomic = world.volume.atomic().unwrap();
        world.make_dirty();
        if fails(&world, good, "in an atomic change") {
            world.expect_service(good.0);
            atomic
                .commit()
                .unwrap_or_else(|e| panic!("{}: {e}", good.0));
            world.expect_flusher(good.0);
            assert_eq!(world.free(), free, "{}", good.0);
        } else {
            atomic
                .commit()
                .unwrap_or_else(|e| panic!("{}: {e}", good.0));
        }
        world.end(good.0);
    }
}

#[test]
fn a_closed_volume_is_not_written_to() {
    for good in GOOD {
        let _watchdog = Watchdog::new(LIMIT, good.0);
        let world = World::new();
        world.volume.clone().close().unwrap();
        let before = world.bytes();
        let _either = good.1(&world);
        assert!(before == world.bytes(), "{}: it was written to", good.0);
        check(&world.mem);
    }
}

/// The same for a volume whose space is nearly used up: the call may begin, and must give all back.
#[test]
fn a_call_that_runs_out_of_space_gives_all_back() {
    for good in GOOD {
        for left in [1, 3, 8] {
            let _watchdog = Watchdog::new(LIMIT, good.0);
            let world = World::new();
            world.take_blocks();
            let filler = world
                .volume
                .open_path("/filler", crate::refused::world::WRITE);
            let filler = filler.unwrap();
            let mode = Fallocate::PunchHole;
            filler.fallocate(mode, 0, left * 1024).unwrap();
            let free = world.free();
            let failed = match fails(&world, good, &format!("{left} blocks are left")) {
                true => world.free() == free,
                false => true,
            };
            assert!(failed, "{}, {left}: {free:?} {:?}", good.0, world.free());
            drop(filler);
            world.end(good.0);
        }
    }
}

#[test]
fn an_error_of_a_volume_that_is_closed_says_so() {
    let world = World::new();
    world.volume.clone().close().unwrap();
    let refused = world.volume.mkdir("/new", 0o755).unwrap_err();
    assert!(matches!(refused.root(), Error::ShutDown), "{refused}");
}
