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

/// Rule D1: nothing that was promised is lost on disks of any kind that report their cache correctly.
#[test]
fn promises_are_kept() {
    let keep = tempfile::tempdir().expect("a scratch directory");
    for cache in Cache::ALL {
        let outcome = run(&wish(120, cache, &keep), &mut |_| ()).expect("it runs");
        assert_eq!(outcome.found, [], "{cache:?}");
        assert_eq!(outcome.states, 120);
    }
}

/// The judge finds lost data: on a disk that hides its cache, promises cannot be kept. Judging the kept state again finds it, too.
#[test]
fn what_a_disk_loses_is_found() {
    let keep = tempfile::tempdir().expect("a scratch directory");
    let outcome = run(&wish(120, Cache::Denied, &keep), &mut |_| ()).expect("it runs");
    let (dir, _) = outcome.found.first().expect("something is lost");
    let (origin, again) = super::super::keep::repeat(dir).expect("it is kept");
    assert!(origin.starts_with("seed 7, round "), "{origin}");
    assert!(!again.is_empty());
}
