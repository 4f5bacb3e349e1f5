use super::super::history::Sync;
use super::*;

fn slot(dir: u32, slot: u32) -> Slot {
    let thread = 0;
    Slot { dir, thread, slot }
}

fn named(change: Change, asked: usize) -> Named {
    Named {
        thread: 0,
        change,
        promised: change.is_promised(),
        asked,
        acked: Some(asked + 1),
    }
}

fn synced(of: Of) -> History {
    History {
        syncs: vec![Sync {
            of,
            promise: Promise::Times,
            asked: 10,
            acked: Some(11),
        }],
        ..History::default()
    }
}

/// The names are those after some change, and not after one before the last change that a sync of its directory has promised.
#[test]
fn names_are_as_after_a_change_that_is_late_enough() {
    let (one, two) = (slot(0, 0), slot(0, 1));
    let changes = [
        named(Change::Create(one, 8), 0),
        named(Change::Rename(one, two), 2),
        named(Change::Unlink(two), 20),
    ];
    let shown = |names: &[(Slot, u32)]| names.iter().copied().collect::<Shown>();
    let well = |history: &History, names: &[(Slot, u32)], cut| {
        judge((history, &changes), 0, &shown(names), cut).is_none()
    };
    let none = History::default();
    assert!(well(&none, &[], 30) && well(&none, &[(one, 8)], 30) && well(&none, &[(two, 8)], 30));
    assert!(!well(&none, &[(one, 8), (two, 8)], 30), "half a rename");
    assert!(!well(&none, &[(two, 9)], 30), "another file");
    assert!(!well(&none, &[(two, 8)], 1), "before it was asked for");
    let dir = synced(Of::Dir(0));
    assert!(!well(&dir, &[], 15) && !well(&dir, &[(one, 8)], 15) && well(&dir, &[(two, 8)], 15));
    assert!(well(&synced(Of::File(8)), &[(one, 8)], 15));
    assert!(!well(&synced(Of::File(8)), &[], 15));
    assert!(well(&synced(Of::Dir(1)), &[], 15));
}

#[test]
fn names_in_a_synchronous_directory_are_promised_at_once() {
    let change = Change::Create(slot(SYNC_DIR, 0), 8);
    let changes = [named(change, 0)];
    let none = History::default();
    assert!(judge((&none, &changes), 0, &Shown::new(), 1).is_none());
    assert!(judge((&none, &changes), 0, &Shown::new(), 2).is_some());
}
