//! What cached pages do to the completion of direct writes, under each policy.

use crate::cached::alone;
use crate::common::fixture::{attached, filled, run_all};
use crate::common::fsck;
use diorite::{Policy, Request};
use std::collections::BTreeMap;

/// Rule C1, the conditions of T1: `linux-4.15` and `linux-6.19` look at the pages of the inode, `linux-5.10` defers in any case, and
/// `diorite` looks at the pages of the range.
#[test]
fn policies_look_at_pages_of_the_inode_or_of_the_range() {
    let (_dir, image, volume) = alone("128M", &["-t", "ext4", "-b", "4096"]);
    let cached = "deferred-cached-pages";
    let policy = "deferred-policy";
    // With no pages, with pages elsewhere, with pages in the range.
    let expected = [
        ("linux-4.15", ["inline", cached, cached]),
        ("linux-5.10", [policy, policy, policy]),
        ("linux-6.5", [policy, policy, policy]),
        ("linux-6.19", ["inline", cached, cached]),
        ("diorite", ["inline", "inline", cached]),
    ];
    for (name, [none, elsewhere, inside]) in expected {
        volume.set_policy(name.parse::<Policy>().unwrap());
        let file = volume.create(&format!("/{name}"), 0o644).unwrap();
        for at in 0..16 {
            file.write_at(at << 20, filled(1, 1 << 20)).1.unwrap();
        }
        file.sync().unwrap();
        let (queue, id) = attached(&volume, &file, 4);
        let how = |pos: u64| {
            let before: BTreeMap<String, u64> = queue.counters().named().collect();
            let done = run_all(&queue, vec![Request::write(id, pos, filled(2, 4096), 0)]);
            assert_eq!(*done[0].result.as_ref().unwrap(), 4096);
            let after = queue.counters();
            let moved = after.named().filter(|(name, count)| before[name] < *count);
            moved.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(how(8 << 20), [none], "{name}: no pages");
        let mut bytes = vec![0; 65_536];
        file.read_bytes(0, &mut bytes).unwrap();
        assert_eq!(how(8 << 20), [elsewhere], "{name}: pages elsewhere");
        assert_eq!(how(4096), [inside], "{name}: pages in the range");
        file.read_bytes(0, &mut bytes).unwrap();
        assert_eq!((bytes[4095], bytes[4096], bytes[8192]), (1, 2, 1));
        drop((queue, file));
    }
    volume.close().unwrap();
    fsck(&image);
}
