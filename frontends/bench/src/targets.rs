//! The performance targets, in one table: ratios within one run, on the default device.
//!
//! Input: an id. Output: its target. Invariant: the meaning of an id never changes. Limits: targets are only for reports; no
//! test asserts a time.

/// The direction of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Good {
    /// The ratio should be at least the number.
    AtLeast,
    /// The ratio should be at most the number.
    AtMost,
}

/// One target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Goal {
    pub(super) id: &'static str,
    pub(super) good: Good,
    pub(super) value: f64,
    pub(super) what: &'static str,
}

const fn least(id: &'static str, value: f64, what: &'static str) -> Goal {
    Goal {
        id,
        good: Good::AtLeast,
        value,
        what,
    }
}

const fn most(id: &'static str, value: f64, what: &'static str) -> Goal {
    Goal {
        id,
        good: Good::AtMost,
        value,
        what,
    }
}

/// Every target.
pub(super) const GOALS: [Goal; 98] = [
    least(
        "raw-fio-read",
        0.95,
        "4k random read, depth 64: raw queue / fio's io_uring",
    ),
    least(
        "raw-fio-write",
        0.95,
        "4k random overwrite, depth 64: raw queue / fio's io_uring",
    ),
    least(
        "read-raw-1",
        0.99,
        "4k random read, depth 64, 1 thread: file in image / raw",
    ),
    least(
        "write-raw-1",
        0.99,
        "4k random overwrite, depth 64, 1 thread: file in image / raw",
    ),
    least(
        "read-raw-4",
        0.97,
        "4k random read, depth 64, 4 threads on one file: file in image / raw",
    ),
    least(
        "write-raw-4",
        0.97,
        "4k random overwrite, depth 64, 4 threads on one file: file in image / raw",
    ),
    least(
        "read-kernel",
        1.2,
        "4k random read, depth 64, 1 thread: diorite / the kernel's ext4",
    ),
    least(
        "write-kernel",
        1.2,
        "4k random overwrite, depth 64, 1 thread: diorite / the kernel's ext4",
    ),
    least(
        "inline-deferred",
        1.23,
        "4k random overwrite, depth 128, one CPU: completion inline / deferred",
    ),
    least(
        "unaligned-sim",
        185.0,
        "2k on 4k blocks, 8 jobs x 256, sim at 230 us: concurrent / exclusive",
    ),
    least(
        "unaligned-raw",
        0.97,
        "2k random overwrite, 8 jobs x 256: file in image / raw",
    ),
    least(
        "unaligned-raw-seq",
        0.97,
        "2k sequential overwrite, 8 jobs x 256 on the same file: file in image / raw",
    ),
    most(
        "contended",
        0.0,
        "contended lock acquisitions, 4 threads reading one file",
    ),
    least(
        "sync-qd1",
        0.97,
        "blocking 4k overwrites, one at a time: file in image / raw",
    ),
    most(
        "instructions",
        600.0,
        "instructions per 4k read, submit to reaped, on mem: without the copy",
    ),
    most(
        "instructions-over-raw",
        200.0,
        "the same, minus the raw device queue's",
    ),
    most(
        "open-rss",
        24.0,
        "open a 1 TiB image and stat one file: resident memory, MiB",
    ),
    most(
        "open-bytes",
        4.0,
        "open a 1 TiB image and stat one file: bytes read from the device, MiB",
    ),
    most(
        "extents-100k",
        2.0,
        "time per random 4k read on mem:, file of 100,000 extents / of 1 extent",
    ),
    least(
        "append-kernel",
        4.0,
        "append 4k, depth 64, one file: diorite / the kernel's ext4",
    ),
    least(
        "holes-kernel",
        3.0,
        "random 4k writes into holes, depth 64: diorite / the kernel's ext4",
    ),
    least(
        "unwritten-overwrite",
        0.6,
        "random 4k writes, depth 64: into preallocated space / overwrites",
    ),
    least(
        "append-async",
        20.0,
        "4k writes past the end, depth 64, sim at 80 us: async / waiting",
    ),
    least(
        "subblock-new",
        20.0,
        "512-byte writes, sectors of new blocks, 8 jobs x 32, sim at 80 us: pending map / exclusive",
    ),
    least(
        "fsync-kernel",
        1.0,
        "fsync after each 4k overwrite, 4 threads: diorite / the kernel's ext4",
    ),
    least(
        "fsync-append-kernel",
        1.0,
        "fsync after each 4k append, 4 threads: diorite / the kernel's ext4",
    ),
    least(
        "dsync-fua",
        0.9,
        "4k overwrites, depth 32, FUA or no volatile cache: O_DSYNC / plain",
    ),
    most(
        "handles",
        100.0,
        "journal handles per 1,000 converted 4k writes, depth 64, sim at 80 us",
    ),
    most(
        "commits-dsync",
        50.0,
        "commits per 1,000 O_DSYNC 4k appends, depth 64, sim at 80 us",
    ),
    most(
        "rss-random",
        256.0,
        "a sparse file of 100 GiB written at random for a minute: resident memory, MiB",
    ),
    least(
        "create-kernel",
        1.0,
        "creating 100,000 empty files in 100 directories, 2 threads: diorite / the kernel's ext4",
    ),
    least(
        "unlink-kernel",
        1.0,
        "deleting them again: diorite / the kernel's ext4",
    ),
    least(
        "rename-kernel",
        1.0,
        "100,000 renames across directories, 2 threads: diorite / the kernel's ext4",
    ),
    most(
        "lookup-million",
        3.0,
        "time per random lookup, warm: directory of 1,000,000 names / of 1,000",
    ),
    least(
        "buf-seqwrite",
        1.0,
        "a file written in calls of 1 MiB, then fsync: buffered / the kernel's ext4, buffered",
    ),
    least(
        "buf-seqread",
        0.95,
        "the cold half of a file read behind another half, sim at 2 GB/s: buffered / raw, 1 MiB at depth 4",
    ),
    least(
        "buf-cached",
        2.0,
        "4k random read of cached bytes, 1 thread: diorite / the kernel's pread",
    ),
    least(
        "buf-small",
        1.2,
        "100,000 files of 8 KiB, created, written, closed, synced: diorite / the kernel's ext4",
    ),
    least(
        "buf-sync",
        1.0,
        "appends of 16 KiB, each with fdatasync, 4 threads: diorite / the kernel's ext4",
    ),
    most(
        "buf-extents",
        4.0,
        "extents per file after 16 buffered writers side by side, 64 MiB each: median",
    ),
    least(
        "dio-beside-cache",
        0.99,
        "direct 4k overwrites, depth 64: with cached pages elsewhere in the file / with none",
    ),
    least(
        "loop-randwrite-16",
        1.22,
        "4k random writes, buffered inside an image on loop, 16 jobs, sim at 100 us: direct-async / buffered-sync",
    ),
    least("loop-randwrite-1", 1.29, "the same, 1 job"),
    least("loop-write-16", 0.95, "sequential writes, 16 jobs"),
    least("loop-write-1", 0.95, "the same, 1 job"),
    least("loop-read-16", 0.95, "sequential reads, 16 jobs"),
    least("loop-read-1", 0.95, "the same, 1 job"),
    least("loop-randread-16", 0.95, "4k random reads, 16 jobs"),
    least("loop-randread-1", 0.95, "the same, 1 job"),
    most(
        "loop-switches",
        0.5,
        "context switches per request of loop-randread-16: direct-async / buffered-sync",
    ),
    least(
        "loop-direct-16",
        4.0,
        "16 direct random readers in the inner volume: direct-async / buffered-sync",
    ),
    most(
        "loop-memory",
        32.0,
        "all of an image read and written through loop: page cache and resident memory grown by, MiB",
    ),
    least(
        "loop-layer",
        0.95,
        "4k random read, depth 64: loop device on the file / the file",
    ),
    least(
        "loop-layer-write",
        0.95,
        "4k random overwrite, depth 64: loop device on the file / the file",
    ),
    least(
        "loop-layer3",
        0.85,
        "4k random read, depth 64: loop device three volumes deep / the file of the lowest",
    ),
    least(
        "loop-layer3-write",
        0.85,
        "4k random overwrite, depth 64: loop device three volumes deep / the file of the lowest",
    ),
    least(
        "loop-kernel",
        1.0,
        "4k random read of a file of the host, depth 64: in process / the kernel's loop, direct I/O",
    ),
    least(
        "loop-kernel-write",
        1.0,
        "4k random overwrite of it, depth 64: in process / the kernel's loop, direct I/O",
    ),
    least(
        "nbd-qemu",
        3.0,
        "4k random read over a Unix socket, fio at depth 64: diorite / qemu-nbd, io_uring, no cache",
    ),
    least("nbd-qemu-write", 3.0, "4k random writes, the same two"),
    least("nbd-nbdkit", 2.0, "4k random read, diorite / nbdkit file"),
    least("nbd-nbdkit-write", 2.0, "4k random writes, the same two"),
    least(
        "nbdcopy-qemu",
        1.5,
        "nbdcopy of 4 GiB, half of it holes, to null: diorite / qemu-nbd",
    ),
    least("nbdcopy-nbdkit", 1.2, "the same, diorite / nbdkit file"),
    least(
        "nbd-inside",
        5.0,
        "4k random read of a file in an ext4 image, 4 connections: diorite / nbdkit's ext2 filter",
    ),
    least(
        "fuse-read-f2",
        3.0,
        "4k random direct read, depth 64, 2 jobs: diorite mount / fuse2fs",
    ),
    least(
        "fuse-read-k",
        0.5,
        "the same, diorite mount / the kernel's ext4",
    ),
    least(
        "fuse-write-f2",
        6.0,
        "4k random direct overwrite, depth 64: diorite mount / fuse2fs",
    ),
    least(
        "fuse-write-k",
        0.5,
        "the same, diorite mount / the kernel's ext4",
    ),
    least(
        "fuse-unaligned-f2",
        6.0,
        "2k direct overwrite, 8 jobs of depth 256: diorite mount / fuse2fs",
    ),
    least(
        "fuse-unaligned-k",
        0.4,
        "the same, diorite mount / the kernel's ext4",
    ),
    least(
        "fuse-append-f2",
        1.4,
        "4k direct append: diorite mount / fuse2fs",
    ),
    least(
        "fuse-append-k",
        0.4,
        "the same, diorite mount / the kernel's ext4",
    ),
    least(
        "fuse-holes-f2",
        10.0,
        "4k random direct write into holes: diorite mount / fuse2fs",
    ),
    least(
        "fuse-holes-k",
        1.0,
        "the same, diorite mount / the kernel's ext4",
    ),
    least(
        "fuse-seqread-f2",
        5.0,
        "1 MiB sequential direct read, depth 8: diorite mount / fuse2fs",
    ),
    least(
        "fuse-seqread-k",
        0.8,
        "the same, diorite mount / the kernel's ext4",
    ),
    least(
        "fuse-seqwrite-f2",
        6.0,
        "1 MiB sequential direct write, depth 8: diorite mount / fuse2fs",
    ),
    least(
        "fuse-seqwrite-k",
        0.8,
        "the same, diorite mount / the kernel's ext4",
    ),
    least(
        "fuse-unpack-f2",
        3.0,
        "unpack a source tree: diorite mount / fuse2fs",
    ),
    least(
        "fuse-readall-f2",
        3.0,
        "find and cat all of it, nothing cached: diorite mount / fuse2fs",
    ),
    least("fuse-rm-f2", 3.0, "rm -r of it: diorite mount / fuse2fs"),
    least(
        "fuse-fsync-k",
        0.5,
        "4 threads, 4k write and fsync: diorite mount / the kernel's ext4",
    ),
    least(
        "check-e2fsck",
        2.0,
        "an image of 500,000 files, 20 GiB used, all cached: time of e2fsck -fn / of check",
    ),
    most(
        "check-rss",
        256.0,
        "checking that image: resident memory, MiB",
    ),
    least(
        "import-dir",
        2.5,
        "an image of a tree of 52,000 files: diorite import / mke2fs -d",
    ),
    least(
        "import-tar-mke2fs",
        3.0,
        "an image of a tar archive on standard input: diorite import / mke2fs -d",
    ),
    least(
        "import-tar-kernel",
        2.0,
        "the same, diorite import / tar x into the kernel's ext4, and sync",
    ),
    least(
        "export-tar",
        1.0,
        "a tar archive of the image: diorite export / tar c of the kernel's mount",
    ),
    least(
        "mkfs-20g",
        1.0,
        "an empty file system of 20 GiB: diorite mkfs / mke2fs",
    ),
    least(
        "mkfs-1t",
        2.0,
        "an empty file system of 1 TiB, inode tables zeroed: diorite mkfs / mke2fs",
    ),
    most(
        "zst-out",
        1.2,
        "the image of that tree compressed by zstd: time of diorite copy / zstd -3",
    ),
    most(
        "zst-out-size",
        1.02,
        "the same: bytes of diorite copy / zstd -3",
    ),
    most(
        "import-rss",
        128.0,
        "imports of that tree and archive: resident memory, MiB",
    ),
    most(
        "autosize",
        1.0,
        "an image whose size is found: free beyond what was asked / the larger of 1 MiB and 1 %",
    ),
    least(
        "atomic-doublewrite",
        1.5,
        "16k untorn durable overwrites, depth 32, sim at 80 us and 1000 MiB/s: atomic / written twice",
    ),
    least(
        "atomic-plain",
        0.5,
        "16k overwrites, depth 32, sim at 80 us: atomic / plain",
    ),
    most(
        "start",
        1.2,
        "user and system time of a command: diorite info / dumpe2fs -h",
    ),
];

/// The target of an id, if it has one.
pub(super) fn goal(id: &str) -> Option<&'static Goal> {
    GOALS.iter().find(|g| g.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<_> = GOALS.iter().map(|g| g.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), GOALS.len());
        assert!(goal("nothing").is_none() && goal("contended").is_some());
    }
}
