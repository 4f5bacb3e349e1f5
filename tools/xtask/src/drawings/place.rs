//! Where diorite stands beside the kernel's ext4, fuse2fs, mke2fs -d and qemu-nbd: which programs a byte passes on its way to an image.
//! Input: nothing. Output: the drawing. Limits: mounts by root, builders and servers; other tools are in the book's comparison.

use super::svg::{Drawing, Kind};
use Kind::{Area, Ours, Theirs, Wait};

pub(super) fn place() -> Drawing {
    let mut drawing = Drawing::new(
        920,
        372,
        "Where diorite stands: ext4 in one process, for builders, mounts, virtual machines and programs",
    );
    // Each column: who uses it, what is between, and what that has.
    let columns: [(u32, &str, &str, [&str; 3]); 4] = [
        (
            12,
            "programs",
            "kernel's ext4",
            ["root, loop device,", "a host that trusts", "the image"],
        ),
        (
            162,
            "programs",
            "fuse2fs",
            ["one lock for all", "calls; writes no", "journal"],
        ),
        (
            312,
            "builds",
            "mke2fs -d, debugfs",
            [
                "new images; changes",
                "without a journal,",
                "exit 0 on errors",
            ],
        ),
        (
            482,
            "virtual machines",
            "qemu-nbd",
            ["image as a disk;", "no file in it is", "seen or changed"],
        ),
    ];
    for (x, user, name, has) in columns {
        let wide = 140 + if x == 312 { 20 } else { 0 };
        drawing = drawing
            .block((x, 40), (wide, 34), Theirs, &[user])
            .block((x, 110), (wide, 34), Theirs, &[name])
            .block((x, 170), (wide, 76), Wait, &has)
            .arrow(&[(x + wide / 2, 74), (x + wide / 2, 108)])
            .arrow(&[(x + wide / 2, 246), (x + wide / 2, 298)]);
    }
    drawing = drawing
        .heading((12, 24), "Four programs for four users")
        .heading((650, 24), "diorite: one for all of them")
        .block(
            (640, 40),
            (268, 34),
            Theirs,
            &["programs, builds, virtual machines"],
        )
        .arrow(&[(690, 74), (690, 108)])
        .arrow(&[(774, 74), (774, 108)])
        .arrow(&[(858, 74), (858, 108)])
        .block((640, 110), (268, 136), Area, &["one process, no root"])
        .block((650, 138), (80, 40), Ours, &["mount", "(FUSE)"])
        .block((736, 138), (80, 40), Ours, &["command,", "library"])
        .block((822, 138), (76, 40), Ours, &["NBD"])
        .block(
            (650, 186),
            (248, 50),
            Ours,
            &[
                "engine: ext4, journal, page cache,",
                "loop devices, many requests",
            ],
        )
        .arrow(&[(774, 246), (774, 298)]);
    drawing
        .block((12, 300), (896, 34), Theirs, &["an image file, a partition, a block device, or a file in another image (diorite only)"])
        .centred((460, 358), "e2fsck and the kernel read what diorite wrote, and diorite what they wrote, after a crash too")
}
