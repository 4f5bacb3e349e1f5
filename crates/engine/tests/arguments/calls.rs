//! Calls of every kind, with arbitrary arguments.
//!
//! Input: a world and randomness. Output: a changed world. Invariant: every call returns: a success, or an error whose message can
//! be formatted. Limits: files that serve as bystanders are never named.

use crate::common::Rng;
use crate::values::{self, length, number, one, path, rarely};
use crate::world::{Lane, World, expect};
use diorite::device::{Bio, BioFlags, BioList, BioOp, Device, QueueOptions};
use diorite::format::Timestamp;
use diorite::xattr::XattrWhen;
use diorite::{
    Buf, File, FileId, FileType, Ino, InodeFlags, LoopDevice, Rdev, RenameFlags, Request, Seek,
    SetAttr,
};
use std::time::Duration;

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
    ("group, close", 1, group_or_close),
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

fn file(world: &mut World, rng: &mut Rng) -> Option<File> {
    if world.files.is_empty() {
        open(world, rng);
    }
    let at = rng.below(world.files.len().max(1) as u64) as usize;
    world.files.get(at).cloned()
}

fn lane<'a>(world: &'a mut World, rng: &mut Rng) -> Option<&'a mut Lane> {
    if world.lanes.is_empty() {
        queues(world, rng);
    }
    let at = rng.below(world.lanes.len().max(1) as u64) as usize;
    world.lanes.get_mut(at)
}

/// A file id: mostly a valid one, else a detached one, or one of another queue or volume.
fn any_id(world: &World, lane: usize, rng: &mut Rng) -> Option<FileId> {
    let mine = &world.lanes[lane];
    let of = match rng.below(12) {
        0 => &mine.stale,
        1 => &world.lanes[rng.below(world.lanes.len() as u64) as usize].ids,
        2 => &world.strangers.ids,
        _ => &mine.ids,
    };
    (!of.is_empty()).then(|| one(rng, of))
}

fn any_request(file: FileId, rng: &mut Rng) -> Request {
    let op = values::op(rng);
    let buf = values::buf(rng);
    let len = match rng.below(12) {
        0 => number(rng),
        1 => buf.len() as u64,
        2 => buf.len() as u64 + 1,
        3 => (buf.len() as u64).saturating_sub(1),
        _ if matches!(op, diorite::Op::Fallocate(_)) => length(rng),
        _ => 0,
    };
    Request {
        op,
        file,
        pos: number(rng),
        buf,
        len,
        token: rng.next(),
        flags: values::request_flags(rng),
    }
}

fn requests(world: &mut World, rng: &mut Rng) {
    if lane(world, rng).is_none() {
        return;
    }
    let at = rng.below(world.lanes.len() as u64) as usize;
    let mut batch: Vec<Request> = (0..1 + rng.below(12))
        .filter_map(|_| any_id(world, at, rng).map(|id| any_request(id, rng)))
        .collect();
    if rarely(rng, 20) {
        batch.push(Request::sync_volume(rng.next()));
    }
    let queue = &world.lanes[at].queue;
    match rng.below(3) {
        0 => drop(queue.submit_from(&mut batch)),
        1 => drop(queue.submit(&mut batch.into())),
        _ => {
            for request in batch {
                drop(queue.push(request));
            }
        }
    }
}

/// Requests that are submitted while the file is quiesced wait, and are still there afterwards.
fn requests_while_quiet(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    let guard = file.quiesce();
    requests(world, rng);
    drop(guard);
}

fn reap(world: &mut World, rng: &mut Rng) {
    let timeout = one(
        rng,
        &[
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_millis(2),
            Duration::from_millis(2),
        ],
    );
    let (min, one_only, forever) = (rng.below(40) as usize, rarely(rng, 3), rarely(rng, 4));
    let absurd = one(rng, &[usize::MAX, 1 << 31, 1 << 32]);
    let many = rarely(rng, 8);
    let Some(lane) = lane(world, rng) else { return };
    let timeout = if forever {
        Some(Duration::MAX)
    } else {
        Some(timeout)
    };
    if one_only {
        expect(
            lane.queue
                .reap_one(timeout)
                .map_or(Ok(0), |done| done.result),
        );
        return;
    }
    let mut out = Vec::new();
    lane.queue
        .reap(&mut out, if many { absurd } else { min }, timeout);
    for done in out {
        expect(done.result);
    }
    if lane.queue.in_use() > 0 {
        lane.queue.wait(min, Some(Duration::from_millis(1)));
    }
}

fn attach(world: &mut World, rng: &mut Rng) {
    let (file, foreign) = (file(world, rng), world.stranger.clone());
    let wrong = rarely(rng, 10);
    let Some(lane) = lane(world, rng) else { return };
    if wrong {
        assert!(
            lane.queue.attach(&foreign).is_err(),
            "a file of another volume"
        );
    } else if let Some(id) = file.and_then(|file| expect(lane.queue.attach(&file))) {
        lane.ids.push(id);
    }
}

fn detach(world: &mut World, rng: &mut Rng) {
    let foreign = one(rng, &world.strangers.ids);
    let wrong = rarely(rng, 4);
    let at = rng.next() as usize;
    let Some(lane) = lane(world, rng) else { return };
    if wrong || lane.ids.is_empty() {
        lane.queue.detach(foreign);
        return;
    }
    let id = lane.ids.swap_remove(at % lane.ids.len());
    lane.queue.detach(id);
    lane.stale.push(id);
    // A second detach does nothing.
    lane.queue.detach(id);
}

fn queues(world: &mut World, rng: &mut Rng) {
    if world.lanes.len() > 3 {
        // Drops a queue with requests in flight.
        world.lanes.swap_remove(rng.below(4) as usize);
        return;
    }
    let depth = match rarely(rng, 30) {
        true => one(rng, &[0, 32_767, 32_768, 32_769, u32::MAX]),
        false => 1 + rng.below(40) as u32,
    };
    if let Some(queue) = expect(world.volume.queue(depth)) {
        let (ids, stale) = (Vec::new(), Vec::new());
        assert_eq!(queue.depth(), queue.free());
        if rarely(rng, 4) {
            let _watched = queue.eventfd();
        }
        world.lanes.push(Lane { queue, ids, stale });
    }
}

fn open(world: &mut World, rng: &mut Rng) {
    let (path, flags) = (path(rng), values::open_flags(rng));
    let found = match rng.below(4) {
        0 => world.volume.create(&path, number(rng) as u16),
        1 => world
            .volume
            .temporary(if rarely(rng, 2) { &b"/"[..] } else { &path[..] }, 0o600),
        _ => world.volume.open_path(&path, flags),
    };
    // Directories take no data, so most are dropped: most calls are to have a file.
    let keeps = |file: &File| file.metadata().is_file() || rarely(rng, 8);
    if let Some(file) = expect(found).filter(keeps) {
        world.files.push(file);
    }
    if world.files.len() > 12 {
        world.files.swap_remove(rng.below(12) as usize);
    }
}

fn let_go(world: &mut World, rng: &mut Rng) {
    if !world.files.is_empty() {
        let at = rng.below(world.files.len() as u64) as usize;
        world.files.swap_remove(at);
    }
}

fn blocking(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    let (pos, buf) = (number(rng), values::buf(rng));
    let asked = buf.len();
    match rng.below(9) {
        0 => drop(expect(file.sync())),
        1 => drop(expect(file.sync_data())),
        2 => drop(expect(file.append(buf).1)),
        3 => {
            let (back, result) = file.write_last(pos, buf, number(rng));
            assert_eq!(back.len(), asked);
            expect(result);
        }
        4 => {
            let mut out = vec![0; one(rng, &[0usize, 1, 511, 4096, 70_000])];
            let count = expect(file.read_bytes(pos, &mut out));
            assert!(count.is_none_or(|n| n <= out.len()));
        }
        5 | 6 => {
            let (back, result) = file.write_at(pos, buf);
            assert_eq!(back.len(), asked, "the buffer comes back whole: {result:?}");
            assert!(expect(result).is_none_or(|n| n == asked), "rule G7");
        }
        7 => {
            let (op, flags) = (values::op(rng), values::request_flags(rng));
            let (back, result) = file.call(op, pos, buf, flags);
            assert_eq!(back.len(), asked, "{op:?}: {result:?}");
            expect(result);
        }
        _ => {
            let (back, result) = file.read_at(pos, buf);
            assert_eq!(back.len(), asked);
            assert!(expect(result).is_none_or(|n| n <= asked));
        }
    }
}

fn range(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    match rng.below(4) {
        0 => drop(expect(file.truncate(number(rng)))),
        _ => drop(expect(file.fallocate(
            values::fallocate(rng),
            number(rng),
            length(rng),
        ))),
    }
    // So that not every file has the largest size.
    if rarely(rng, 3) {
        expect(file.truncate(rng.below(256) * 512));
    }
}

fn look(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    match rng.below(3) {
        0 => {
            let from = number(rng);
            let what = one(rng, &[Seek::Data, Seek::Hole]);
            let found = expect(file.seek(from, what)).flatten();
            assert!(found.is_none_or(|at| at >= from), "{found:?} from {from}");
        }
        1 => {
            let mappings = expect(file.mappings(number(rng), number(rng)));
            assert!(mappings.is_none_or(|all| all.iter().all(|m| m.len > 0)));
        }
        _ => {
            let _ = (file.size(), file.ino(), file.metadata());
        }
    }
}

fn name(world: &mut World, rng: &mut Rng) {
    let (path, volume) = (path(rng), &world.volume);
    match rng.below(8) {
        0 => drop(expect(volume.unlink(&path))),
        1 => drop(expect(volume.rmdir(&path))),
        2 => drop(expect(volume.mkdir(&path, number(rng) as u16))),
        3 => drop(expect(volume.symlink(&values::path(rng), &path))),
        4 => {
            let kind = one(
                rng,
                &[
                    FileType::Fifo,
                    FileType::CharDevice,
                    FileType::Regular,
                    FileType::Directory,
                ],
            );
            let device = Rdev {
                major: number(rng) as u32,
                minor: number(rng) as u32,
            };
            expect(volume.mknod(&path, kind, 0o600, device));
        }
        5 => {
            let found = expect(volume.resolve(&path, rarely(rng, 2)));
            if let Some(ino) = found {
                expect(volume.read_link(ino));
            }
        }
        _ => drop(expect(volume.create(&path, 0o644))),
    }
}

fn link(world: &mut World, rng: &mut Rng) {
    let (from, to) = (path(rng), path(rng));
    let flags = RenameFlags {
        no_replace: rarely(rng, 4),
        exchange: rarely(rng, 5),
        whiteout: rarely(rng, 8),
    };
    let file = file(world, rng);
    let (volume, foreign) = (&world.volume, &world.stranger);
    match (rng.below(6), file) {
        (0, _) => drop(expect(volume.link(&from, &to))),
        (1, Some(file)) => drop(expect(volume.link_file(&file, &to))),
        (2, Some(file)) => drop(expect(volume.replace_file(&file, &to))),
        (3, _) => {
            assert!(
                volume.link_file(foreign, &to).is_err(),
                "a file of another volume"
            );
            assert!(volume.replace_file(foreign, &to).is_err());
        }
        _ => drop(expect(volume.rename(&from, &to, flags))),
    }
}

fn attributes(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    let (volume, ino) = (&world.volume, file.ino());
    let odd = vec![b'n'; one(rng, &[249, 250, 251, 300])];
    let long = [b"user.".to_vec(), odd].concat();
    let name = one::<&[u8]>(
        rng,
        &[
            b"user.a",
            b"user.b",
            b"",
            b"user.",
            b"user",
            b"nobody.x",
            b"user.\xff",
            b"user.a\0b",
            b"system.posix_acl_access",
            b"system.data",
            b"security.capability",
            &long,
        ],
    );
    let value = vec![7; one(rng, &[0, 1, 100, 3000, 4096, 65536, 65537])];
    match rng.below(5) {
        0 => drop(expect(volume.xattrs(ino))),
        1 => drop(expect(volume.xattr(ino, name))),
        2 => drop(expect(volume.remove_xattr(ino, name))),
        _ => {
            let when = one(
                rng,
                &[XattrWhen::Always, XattrWhen::Missing, XattrWhen::Present],
            );
            expect(volume.set_xattr_when(ino, name, &value, when));
        }
    }
}

fn set_of(rng: &mut Rng) -> SetAttr {
    let time = |rng: &mut Rng| {
        rarely(rng, 2).then(|| Timestamp {
            secs: number(rng) as i64,
            nanos: one(rng, &[0, 999_999_999, 1_000_000_000, u32::MAX]),
        })
    };
    SetAttr {
        permissions: rarely(rng, 2).then(|| number(rng) as u16),
        uid: rarely(rng, 2).then(|| number(rng) as u32),
        gid: rarely(rng, 2).then(|| number(rng) as u32),
        atime: time(rng),
        mtime: time(rng),
    }
}

fn flags(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    expect(file.set_attr(&set_of(rng)));
    let has = file.metadata().flags;
    let wanted = match rng.below(4) {
        0 => InodeFlags::from_bits(rng.next() as u32),
        1 => has.with(one(
            rng,
            &[
                InodeFlags::APPEND,
                InodeFlags::IMMUTABLE,
                InodeFlags::SYNC,
                InodeFlags::JOURNAL_DATA,
            ],
        )),
        _ => has,
    };
    expect(file.set_flags(wanted));
    if !rarely(rng, 3) {
        let plain = InodeFlags::APPEND.with(InodeFlags::IMMUTABLE);
        expect(file.set_flags(file.metadata().flags.without(plain)));
    }
}

/// Calls by inode number, which may be that of any inode; so only calls that change no contents.
fn by_number(world: &mut World, rng: &mut Rng) {
    let volume = &world.volume;
    let last = volume.superblock().geometry().inodes_count();
    let numbers = [
        0,
        1,
        2,
        3,
        7,
        8,
        9,
        10,
        11,
        last,
        last.wrapping_add(1),
        last / 2,
        u32::MAX,
    ];
    let ino = Ino::new(one(rng, &numbers));
    let not_root = ino != Ino::ROOT;
    match rng.below(9) {
        0 => drop(expect(volume.open_ino(ino, values::open_flags(rng)))),
        1 => {
            let entries = expect(volume.read_dir(ino));
            entries
                .into_iter()
                .flatten()
                .take(1000)
                .for_each(|e| drop(expect(e)));
        }
        2 => drop(expect(volume.read_link(ino))),
        3 => drop(expect(volume.xattrs(ino))),
        4 => drop(expect(volume.xattr(ino, "user.a"))),
        5 => drop(expect(volume.set_xattr(ino, "user.a", b"value"))),
        6 if not_root => drop(expect(volume.set_attr(ino, &set_of(rng)))),
        7 if not_root => {
            let flags = InodeFlags::from_bits(rng.next() as u32);
            expect(volume.set_flags(ino, flags.without(InodeFlags::IMMUTABLE)));
        }
        _ => drop(expect(volume.set_generation(ino, rng.next() as u32))),
    }
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

fn any_bio(rng: &mut Rng) -> Bio {
    let op = one(
        rng,
        &[
            BioOp::Read,
            BioOp::Write,
            BioOp::Write,
            BioOp::Flush,
            BioOp::Discard,
            BioOp::WriteZeroes,
            BioOp::WriteZeroesUnmap,
        ],
    );
    let data = matches!(op, BioOp::Read | BioOp::Write) || rarely(rng, 8);
    let buf = if data { values::buf(rng) } else { Buf::empty() };
    let len = match rarely(rng, 8) {
        false if data => buf.len() as u64,
        _ => length(rng),
    };
    Bio {
        op,
        pos: number(rng),
        buf,
        len,
        token: rng.next(),
        flags: BioFlags {
            fua: rarely(rng, 4),
            nowait: rarely(rng, 5),
        },
        result: Ok(()),
    }
}

/// Bios of every kind on a loop device.
fn loop_device(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    let device = LoopDevice::new(file, "any file".into());
    let geometry = device.geometry();
    assert!(geometry.size.is_multiple_of(u64::from(geometry.logical)));
    let depth = one(rng, &[0, 1, 2, 16, u32::MAX]);
    let options = QueueOptions {
        depth,
        ..QueueOptions::new(1).unwrap()
    };
    let Ok(queue) = device.open_queue(options) else {
        return;
    };
    let mut bios: BioList = (0..1 + rng.below(20)).map(|_| any_bio(rng)).collect();
    let (mut ended, asked) = (BioList::new(), bios.len());
    loop {
        queue.submit(&mut bios);
        queue.reap(&mut ended);
        if bios.is_empty() && ended.len() == asked {
            break;
        }
        queue.wait(1, Some(Duration::from_millis(1)));
    }
    assert_eq!(queue.in_flight(), 0);
}

/// Calls that end a volume: an abandoned group, a close with requests in flight, a failure. Calls on what is closed return errors.
fn group_or_close(world: &mut World, rng: &mut Rng) {
    match rng.below(4) {
        0 => {
            expect(world.volume.clone().close());
        }
        1 => {
            if let Some(group) = expect(world.volume.atomic()) {
                (0..3).for_each(|_| name(world, rng));
                expect(group.abandon());
            }
        }
        _ => {
            if let Some(group) = expect(world.volume.atomic()) {
                for _ in 0..4 {
                    name(world, rng);
                    blocking(world, rng);
                }
                expect(group.commit());
            }
            if !world.faults {
                return;
            }
        }
    }
    for _ in 0..6 {
        let kind = pick(rng);
        if KINDS[kind].0 != "group, close" {
            KINDS[kind].2(world, rng);
        }
    }
    world.reopen(rng);
}
