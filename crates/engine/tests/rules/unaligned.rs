//! Overwrites of parts of blocks: exactly their sectors are written; which run alone under which policy (rules B1 to B3, B8).
//!
//! Input: recipes of known files on a simulated disk that counts. Output: none. Invariant: counts are asserted, times never.
//! Limits: overwrites.

use crate::common::Rng;
use crate::common::fixture::{LIMIT, NOWAIT, known, made, run_all, sim, writable};
use crate::common::watch::Watchdog;
use diorite::policy::PRESETS;
use diorite::{Error, OpenOptions, Request, Wait};
use diorite_block::Buf;
use std::collections::VecDeque;

/// Rule B8: an overwrite of sectors in written blocks writes exactly these sectors, and reads nothing.
#[test]
fn sector_overwrites_touch_their_sectors_only() {
    let mut rng = Rng::from_env("sectors");
    let _watchdog = Watchdog::new(LIMIT, "sectors");
    let (_dir, image, files) = made(0);
    for (_, policy) in PRESETS {
        let stage = sim(&image, "cache=none");
        let volume = stage.open(&OpenOptions::writable().policy(policy)).unwrap();
        let even = known(&files, "/even");
        let file = volume.open_path("/even", writable()).unwrap();
        file.mappings(0, file.size()).unwrap();
        let queue = volume.queue(32).unwrap();
        let id = queue.attach(&file).unwrap();
        let (before, image_before) = (stage.disk().counters(), stage.bytes());
        let mut model = even.bytes.clone();
        let mut requests = Vec::new();
        for n in 0..100u64 {
            let (first, sectors) = (n * 20 + rng.below(4), 1 + rng.below(16));
            let mut buf = Buf::zeroed(sectors as usize * 512);
            rng.fill(buf.as_mut_slice());
            model[first as usize * 512..][..buf.len()].copy_from_slice(buf.as_slice());
            requests.push(Request::write(id, first * 512, buf, n));
        }
        let bytes: u64 = requests.iter().map(|r| r.buf.len() as u64).sum();
        assert!(run_all(&queue, requests).iter().all(|d| d.result.is_ok()));
        let did = stage.disk().counters().since(&before);
        assert_eq!((did.write_bytes, did.reads), (bytes, 0));
        let mut out = vec![0; model.len()];
        file.read_bytes(0, &mut out).unwrap();
        assert!(out == model);
        let changed = image_before
            .iter()
            .zip(stage.bytes())
            .filter(|(a, b)| **a != *b)
            .count() as u64;
        assert!(changed <= bytes);
    }
}

/// Rules B1 to B3: which writes a policy runs alone. Writes that were submitted at once are on the device, the others are parked;
/// both are counted while the disk holds its completions back.
#[test]
fn the_presets_run_alone_what_they_say() {
    let _watchdog = Watchdog::new(LIMIT, "presets");
    let (_dir, image, files) = made(0);
    let pieces = known(&files, "/pieces");
    for (name, policy) in PRESETS {
        let stage = sim(&image, "cache=none");
        let volume = stage.open(&OpenOptions::writable().policy(policy)).unwrap();
        let file = volume.open_path("/pieces", writable()).unwrap();
        let mappings = file.mappings(0, file.size()).unwrap();
        // Where one extent ends and the next begins: the block before.
        let border = mappings
            .iter()
            .map(|m| m.start + m.len)
            .find(|b| *b > 2 && pieces.overwrites((b - 1) * 4096, 8192));
        let border = border.unwrap() * 4096;
        let exclusive = matches!(name, "linux-2.6.31" | "linux-4.15" | "linux-5.10");
        let by_extent = matches!(name, "linux-6.5" | "linux-6.19");
        let cases = [
            (
                "aligned",
                vec![(0, 4096), (8192, 4096), (16384, 8192)],
                false,
            ),
            (
                "unaligned in one extent",
                vec![(0, 512), (512, 1024), (2048, 2048)],
                exclusive,
            ),
            (
                "unaligned, as long as it lies far in, then aligned ones",
                vec![(2048, 2048), (8192, 4096), (16384, 8192)],
                exclusive,
            ),
            (
                "unaligned over two extents",
                vec![
                    (border - 512, 1024),
                    (border - 2048, 1024),
                    (border + 1024, 512),
                ],
                exclusive || by_extent,
            ),
        ];
        for (case, writes, alone) in cases {
            let queue = volume.queue(16).unwrap();
            let id = queue.attach(&file).unwrap();
            stage.disk().hold(true);
            let mut batch: VecDeque<Request> = writes
                .iter()
                .zip(0..)
                .map(|(&(pos, len), n)| Request::write(id, pos, Buf::zeroed(len), n))
                .collect();
            queue.submit(&mut batch);
            let parked = queue.counters().parked;
            // A later aligned write and a read wait for it, too; with NOWAIT they get EAGAIN (rule G12).
            let mut more = VecDeque::from([
                Request::read(id, 1 << 20, Buf::zeroed(4096), 10).with_flags(NOWAIT),
                Request::write(id, 1 << 20, Buf::zeroed(4096), 11).with_flags(NOWAIT),
            ]);
            queue.submit(&mut more);
            stage.disk().hold(false);
            // The first write runs alone and keeps the two others waiting.
            assert_eq!(parked, if alone { 2 } else { 0 }, "{name}: {case}");
            let mut done = Vec::new();
            while done.len() < 5 {
                queue.reap(&mut done, 1, None);
            }
            for done in done {
                let kept_out = done.token >= 10 && alone;
                let eagain = matches!(
                    done.result,
                    Err(Error::WouldBlock(Wait::Gate | Wait::Exclusive))
                );
                assert!(
                    if kept_out {
                        eagain
                    } else {
                        done.result.is_ok()
                    },
                    "{name}: {case}: {done:?}"
                );
            }
        }
    }
}
