//! The five techniques, each as it was and as it is here.
//! Input: nothing. Output: the drawings of the book's page of the techniques. Limits: one request or two, not a schedule of many.

use super::svg::{Drawing, Kind};
use Kind::{Area, Ours, Theirs, Wait};

const WIDE: u32 = 760;

pub(super) fn all() -> Vec<(&'static str, Drawing)> {
    vec![
        ("t1", inline()),
        ("t2", overwrites()),
        ("t3", reads()),
        ("t4", parts_of_blocks()),
        ("t5", loop_device()),
    ]
}

/// A row of boxes with arrows between them.
fn row(mut drawing: Drawing, y: u32, boxes: &[(u32, u32, Kind, &[&str])]) -> Drawing {
    for (x, wide, kind, words) in boxes {
        drawing = drawing.block((*x, y), (*wide, 46), *kind, words);
    }
    for pair in boxes.windows(2) {
        if let [(x, wide, ..), (next, ..)] = pair {
            drawing = drawing.arrow(&[(x + wide, y + 23), (next - 2, y + 23)]);
        }
    }
    drawing
}

fn two_rows(height: u32, title: &str, before: &str, after: &str) -> Drawing {
    Drawing::new(WIDE, height, title)
        .heading((12, 22), before)
        .heading((12, 112), after)
}

fn inline() -> Drawing {
    let drawing = two_rows(
        184,
        "T1: completion inline",
        "before: a worker for each write",
        "diorite: in the thread that reaps",
    );
    let drawing = row(
        drawing,
        34,
        &[
            (12, 120, Theirs, &["device ends"]),
            (158, 120, Theirs, &["interrupt"]),
            (304, 140, Wait, &["work queue:", "wake a thread"]),
            (470, 120, Wait, &["worker runs", "the completion"]),
            (616, 132, Theirs, &["caller sees it"]),
        ],
    );
    row(
        drawing,
        124,
        &[
            (12, 120, Theirs, &["device ends"]),
            (
                304,
                286,
                Ours,
                &[
                    "reap: verdict and completion,",
                    "unless pages must be dropped first",
                ],
            ),
            (616, 132, Theirs, &["caller sees it"]),
        ],
    )
}

fn overwrites() -> Drawing {
    let drawing = two_rows(
        184,
        "T2: overwrites",
        "before: every write may have to convert",
        "diorite: known at submission",
    );
    let drawing = row(
        drawing,
        34,
        &[
            (12, 150, Theirs, &["write, any kind"]),
            (190, 120, Theirs, &["device ends"]),
            (
                338,
                250,
                Wait,
                &["worker: extent to convert?", "size to move? mostly neither"],
            ),
            (616, 132, Theirs, &["caller sees it"]),
        ],
    );
    row(
        drawing,
        124,
        &[
            (12, 150, Ours, &["written extent,", "inside the size"]),
            (190, 120, Theirs, &["device ends"]),
            (338, 250, Ours, &["nothing owed: inline"]),
            (616, 132, Theirs, &["caller sees it"]),
        ],
    )
}

fn reads() -> Drawing {
    Drawing::new(WIDE, 236, "T3: reads take no inode lock")
        .heading(
            (12, 22),
            "before: one lock for readers and writers of a file",
        )
        .block((12, 34), (90, 40), Theirs, &["reader"])
        .block((118, 34), (90, 40), Theirs, &["reader"])
        .block((224, 34), (90, 40), Theirs, &["writer"])
        .arrow(&[(314, 54), (358, 54)])
        .block((360, 34), (150, 40), Wait, &["inode lock"])
        .arrow(&[(510, 54), (554, 54)])
        .block((556, 34), (192, 40), Theirs, &["map, then device"])
        .heading(
            (12, 112),
            "diorite: a count in flight, and a map that never changes under a reader",
        )
        .block((12, 126), (90, 40), Theirs, &["reader"])
        .block((118, 126), (90, 40), Theirs, &["reader"])
        .arrow(&[(208, 146), (358, 146)])
        .block((360, 126), (150, 40), Ours, &["size, then the map"])
        .arrow(&[(510, 146), (554, 146)])
        .block((556, 126), (192, 40), Theirs, &["device"])
        .block((12, 184), (90, 40), Theirs, &["writer"])
        .arrow(&[(102, 204), (126, 204)])
        .block(
            (128, 184),
            (206, 40),
            Ours,
            &["new blocks: not yet visible"],
        )
        .arrow(&[(334, 204), (358, 204)])
        .block((360, 184), (150, 40), Theirs, &["data on the device"])
        .arrow(&[(510, 204), (554, 204)])
        .block((556, 184), (192, 40), Ours, &["a new map is published"])
}

fn parts_of_blocks() -> Drawing {
    let mut drawing = Drawing::new(WIDE, 250, "T4: overwrites of parts of blocks")
        .heading((12, 22), "before: one at a time for the whole file")
        .heading(
            (12, 126),
            "diorite: side by side; in a new block the second waits for the first",
        );
    for (x, words) in [(12, "0-2k"), (98, "2-4k"), (184, "4-6k"), (270, "6-8k")] {
        drawing = drawing
            .block((x, 34), (78, 34), Theirs, &[words])
            .block((x, 138), (78, 34), Theirs, &[words])
            .arrow(&[(x + 39, 172), (x + 39, 198)]);
    }
    drawing
        .arrow(&[(348, 51), (392, 51)])
        .block((394, 34), (160, 34), Wait, &["exclusive, drained"])
        .arrow(&[(554, 51), (598, 51)])
        .block((600, 34), (148, 34), Theirs, &["one write"])
        .block((12, 200), (164, 36), Ours, &["block 0, written"])
        .block((184, 200), (164, 36), Wait, &["block 1, new"])
        .words((394, 158), "block 0: both go down at once, shared lock")
        .words((394, 180), "block 1: 4-6k pads the block with zeros and")
        .words((394, 198), "enters the pending map; 6-8k is parked, and")
        .words((394, 216), "then finds a written block")
}

fn loop_device() -> Drawing {
    Drawing::new(WIDE, 272, "T5: the loop device")
        .heading((12, 22), "before: a worker, and the data cached twice")
        .block(
            (12, 34),
            (130, 46),
            Theirs,
            &["inner volume,", "its page cache"],
        )
        .arrow(&[(142, 57), (176, 57)])
        .block(
            (178, 34),
            (150, 46),
            Wait,
            &["loop: a thread makes", "blocking calls"],
        )
        .arrow(&[(328, 57), (362, 57)])
        .block(
            (364, 34),
            (170, 46),
            Wait,
            &["page cache of the", "file: a second copy"],
        )
        .arrow(&[(534, 57), (568, 57)])
        .block((570, 34), (178, 46), Theirs, &["outer volume, device"])
        .heading(
            (12, 116),
            "diorite: submit and reap call the queue below; no thread, no copy, any depth",
        )
        .block((12, 130), (606, 64), Area, &["one process"])
        .block((20, 156), (150, 28), Ours, &["inner volume"])
        .arrow(&[(170, 170), (216, 170)])
        .block((218, 156), (190, 28), Ours, &["loop device on a file"])
        .arrow(&[(408, 170), (454, 170)])
        .block((456, 156), (150, 28), Ours, &["outer volume"])
        .arrow(&[(606, 170), (660, 170), (660, 210)])
        .block(
            (456, 212),
            (292, 36),
            Theirs,
            &["device: all requests in flight at once"],
        )
        .words(
            (12, 216),
            "flush = fsync of the file, FUA = a durable write,",
        )
        .words((12, 236), "discard = a hole, requests of other sectors are")
        .words((12, 256), "read, changed and written in order")
}
