//! What the file below the library is protected from, write by write, and what a failed write or sync leaves.

use super::super::{Below, ROOTS, Role, Roots, lock};
use super::{BLOCK, Log, SIZE, Step, file, header, opened};
use crate::judge::{FAR, judge};
use diorite_block::RunsBios;
use diorite_block::{Bio, BioFlags, Buf};
use imago::{Storage, StorageExt};
use std::fs;
use std::io;
use std::path::Path;

/// Data over a table, and what is far away or behind the end, whatever the tables say by now.
#[test]
fn what_the_file_is_protected_from() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    let ([tables, data], _, end) = sides(&path);
    let (before, header) = (fs::read(&path).expect("a file"), header(&path));
    let (cluster, bytes) = (header.cluster, vec![1; 512]);
    for at in [0, header.l1.0, header.counts.0, 2 * cluster + 1024] {
        let error = data.write(&bytes, at).expect_err("a table is there");
        assert!(
            error.to_string().contains("overwrite a table"),
            "{at}: {error}"
        );
    }
    for one in [&tables, &data] {
        assert!(one.write(&bytes, end + 2 * FAR).is_err());
        assert!(one.read(&mut vec![0; 512], end).is_err());
    }
    assert!(fs::read(&path).expect("a file") == before);
    data.write(&bytes, end).expect("it is free");
    // A new block of counts: from now on no data is written there.
    let entry = (end + cluster).to_be_bytes();
    tables
        .write(&vec![0; cluster as usize], end + cluster)
        .expect("it is free");
    tables
        .write(&entry[..], header.counts.0 + 8)
        .expect("an entry");
    assert!(data.write(&bytes, end + cluster).is_err());
    tables
        .write(&[0; 8][..], header.counts.0 + 8)
        .expect("an entry");
    data.write(&bytes, end + cluster).expect("it is free again");
}

/// A new disk as its file: of tables, and of data; and where the first table of clusters and the end are.
fn sides(path: &Path) -> ([Below; 2], u64, u64) {
    fs::write(path, []).expect("a file");
    crate::create(path, SIZE).expect("a disk");
    let header = header(path);
    let judged = judge(&fs::File::open(path).expect("a file"), &header).expect("it is new");
    let roots = Roots {
        clusters: header.l1,
        counts: (header.counts.0, header.counts.1 as u64),
    };
    let len = fs::metadata(path).expect("a file").len();
    let end = len.next_multiple_of(header.cluster);
    let sides = Below::ordered(file(path), header.cluster, roots, judged.taken);
    (sides, header.l1.0, end)
}

/// The defects: a new table took a cluster that a durable table of clusters still led to, and tables and data one that a root led to.
#[test]
fn what_led_to_a_cluster_is_gone_before_it_is_used_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    let table = vec![0; 65536];
    for (by_root, as_table) in [(true, true), (true, false), (false, true), (false, false)] {
        let ([tables, data], l1, end) = sides(&path);
        let (other, used) = (end, end + 65536);
        let write = |below: &Below, bytes: &[u8], at: u64| {
            below.write(bytes, at).expect("it is free");
        };
        // A table that stays, and one that a root leads to, or data that the other leads to.
        write(&tables, &table, other);
        write(&tables, &other.to_be_bytes(), l1);
        write(&tables, &table, used);
        let entry = if by_root { l1 + 8 } else { other };
        write(&tables, &used.to_be_bytes(), entry);
        tables.sync().expect("the host's file works");
        write(&tables, &[0; 8], entry);
        let log = Log::default();
        tables.watch().log(log.clone());
        let below = if as_table { &tables } else { &data };
        write(below, &table, used);
        let steps = lock(&log).clone();
        assert!(
            matches!(steps[..], [Step::Sync, Step::Write(..)]),
            "by a root: {by_root}, as a table: {as_table}"
        );
    }
}

/// What a write of a root has changed before it failed counts.
#[test]
fn a_root_whose_write_failed_is_not_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    let ([tables, data], l1, end) = sides(&path);
    tables.sync().expect("the host's file works");
    let shared = &tables.shared;
    let failed = shared.write(Role::Tables, l1, 8, || {
        shared.file.write(&end.to_be_bytes()[..], l1)?;
        Err(io::Error::from_raw_os_error(5))
    });
    assert!(failed.is_err() && !tables.watch().is_lost());
    assert!(shared.loose.has(ROOTS));
    assert!(data.write(&[1; 512][..], end).is_err(), "it is a table now");
}

/// The defect: Linux tells a failed write-back once per descriptor, so the next sync succeeded, and a flush said that everything is
/// durable. Rules D1, M4.
#[test]
fn after_a_failed_sync_nothing_is_durable() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("disk");
    fs::write(&path, []).expect("a file");
    crate::create(&path, SIZE).expect("a disk");
    let disk = opened(&path).expect("a new file");
    let result = |mut bio: Bio| {
        disk.run(&mut bio);
        bio.result
    };
    let write = |flags: BioFlags| {
        let mut bio = Bio::write(0, Buf::zeroed(BLOCK as usize), 0);
        bio.flags = flags;
        result(bio)
    };
    let fua = BioFlags::default().fua(true);
    write(BioFlags::default()).expect("the host's file works");
    result(Bio::flush(0)).expect("the host's file works");
    write(BioFlags::default()).expect("the host's file works");
    disk.below.fail_sync();
    for round in 0..3 {
        assert!(result(Bio::flush(0)).is_err(), "flush {round}");
    }
    assert!(write(fua).is_err());
    result(Bio::read(0, Buf::zeroed(BLOCK as usize), 0)).expect("it can be read");
    // The same of a file that is not ordered: one of data that the image names.
    let other = Below::plain(file(&path), 65536);
    other.watch().fail_sync();
    assert!(other.sync().is_err() && other.sync().is_err());
}
