use super::*;

fn wish(states: usize, cache: Cache, keep: &tempfile::TempDir) -> Wish {
    Wish {
        states,
        seed: 7,
        places: Place::all(false),
        caches: vec![cache],
        sample: 20,
        keep: keep.path().into(),
    }
}

/// Rule D1: on honest disks of every kind nothing that was promised is lost.
#[test]
fn promises_are_kept() {
    let keep = tempfile::tempdir().expect("a scratch directory");
    for cache in Cache::ALL {
        let outcome = run(&wish(120, cache, &keep), &mut |_| ()).expect("it runs");
        assert_eq!(outcome.found, [], "{cache:?}");
        assert_eq!(outcome.states, 120);
    }
}

/// The judge can find something: on a disk that denies its cache promises cannot be kept. A kept state repeats.
#[test]
fn what_a_disk_loses_is_found() {
    let keep = tempfile::tempdir().expect("a scratch directory");
    let outcome = run(&wish(120, Cache::Denied, &keep), &mut |_| ()).expect("it runs");
    let (dir, _) = outcome.found.first().expect("something is lost");
    let (origin, again) = super::super::keep::repeat(dir).expect("it is kept");
    assert!(origin.starts_with("seed 7, round "), "{origin}");
    assert!(!again.is_empty());
}
