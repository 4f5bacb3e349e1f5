//! How diorite is built: the crates, the route of a request, the states of a cached page, the steps of a commit, the threads.
//! Input: nothing. Output: the drawings of ARCHITECTURE.md. Limits: what stands there in words and tables is not repeated.

use super::svg::{Drawing, Kind};
use Kind::{Area, Ours, Theirs, Wait};

pub(super) fn all() -> Vec<(&'static str, Drawing)> {
    vec![
        ("house", house()),
        ("request", request()),
        ("page", page()),
        ("commit", commit()),
        ("threads", threads()),
    ]
}

fn house() -> Drawing {
    let mut drawing = Drawing::new(
        860,
        398,
        "The crates of diorite, each above those that it uses",
    );
    let frontends = [("cli", 12), ("bench", 132), ("fuse", 252), ("nbd", 372)];
    drawing = drawing.block(
        (4, 6),
        (484, 74),
        Area,
        &["frontends: a protocol into calls"],
    );
    for (name, x) in frontends {
        drawing = drawing.block((x, 34), (106, 36), Ours, &[name]);
    }
    drawing = drawing
        .block((500, 6), (356, 74), Area, &["not in the default build"])
        .block((510, 34), (76, 36), Theirs, &["xtask"])
        .block((596, 34), (76, 36), Theirs, &["crash"])
        .block((682, 34), (76, 36), Theirs, &["mutants"])
        .block((768, 34), (76, 36), Theirs, &["fuzz"])
        .block(
            (12, 112),
            (226, 36),
            Ours,
            &["image: trees, archives, layers"],
        )
        .block((252, 112), (226, 36), Ours, &["check: judges a volume"])
        .block(
            (510, 112),
            (334, 36),
            Ours,
            &["qcow2: a file as a device (imago)"],
        )
        .block(
            (12, 180),
            (466, 58),
            Ours,
            &[
                "diorite, the engine: no unsafe, no clock of its own",
                "queue, inode, map, journal, allocation, names, page cache",
            ],
        )
        .block(
            (12, 270),
            (466, 36),
            Ours,
            &["mkfs: new file systems, and new groups, maps, directories"],
        )
        .block(
            (12, 340),
            (226, 46),
            Ours,
            &["format: bytes to checked", "values; no I/O, no unsafe"],
        )
        .block(
            (252, 340),
            (592, 46),
            Ours,
            &[
                "block: devices, rings, buffers, locks; unsafe; knows no ext4",
                "io_uring, Linux AIO, threads, memory, a simulated disk",
            ],
        );
    for (from, to) in [
        ((65, 70), (65, 110)),
        ((365, 148), (365, 178)),
        ((125, 148), (125, 178)),
        ((125, 238), (125, 268)),
        ((125, 306), (125, 338)),
        ((365, 306), (365, 338)),
        ((677, 148), (677, 338)),
    ] {
        drawing = drawing.arrow(&[from, to]);
    }
    drawing
        .arrow(&[(305, 70), (305, 92), (245, 92), (245, 178)])
        .arrow(&[(425, 70), (425, 92), (494, 92), (494, 338)])
}

fn request() -> Drawing {
    Drawing::new(860, 380, "The route of a request from Queue::submit to Queue::reap")
        .heading((12, 22), "down: Queue::submit")
        .block((12, 34), (150, 44), Ours, &["a slot of the", "queue's fixed pool"])
        .arrow(&[(162, 56), (186, 56)])
        .block((188, 34), (190, 44), Ours, &["fast: one written extent,", "inside the size"])
        .arrow(&[(378, 56), (690, 56)])
        .words((440, 48), "one bio, nothing owed at the end")
        .block((692, 34), (156, 44), Ours, &["bios in the", "queue's list"])
        .arrow(&[(283, 78), (283, 102)])
        .words((292, 95), "everything else")
        .block((188, 104), (190, 44), Ours, &["check, lock, gate, size,", "map, plan, issue"])
        .arrow(&[(378, 126), (770, 126), (770, 80)])
        .arrow(&[(230, 148), (230, 172)])
        .arrow(&[(336, 148), (336, 172)])
        .block((12, 174), (220, 44), Wait, &["parked on a gate or a range:", "no thread waits"])
        .block((248, 174), (270, 44), Wait, &["a worker: map to load, space to claim,", "pages to write back, a commit"])
        .arrow(&[(122, 174), (122, 126), (186, 126)])
        .arrow(&[(518, 196), (560, 196), (560, 142), (380, 142)])
        .words((568, 178), "then on, or the checks again;")
        .words((568, 196), "with nowait: an error that")
        .words((568, 214), "names what it waits for")
        .block((12, 236), (836, 36), Theirs, &["the device: io_uring, Linux AIO, threads, memory, or a loop device whose queue is below"])
        .heading((12, 300), "up: Queue::reap")
        .block((12, 312), (150, 50), Ours, &["drain: ended bios,", "then the inbox"])
        .arrow(&[(162, 337), (186, 337)])
        .block((188, 312), (190, 50), Ours, &["ioend: first error, one", "verdict for a request"])
        .arrow(&[(378, 325), (690, 325)])
        .words((440, 318), "inline: nothing owed")
        .block((692, 312), (156, 50), Ours, &["completion, once,", "with its buffer"])
        .arrow(&[(378, 349), (430, 349)])
        .block((432, 334), (218, 40), Wait, &["deferred: map, size, flush"])
        .arrow(&[(650, 354), (690, 354)])
        .arrow(&[(834, 78), (834, 234)])
        .arrow(&[(220, 272), (220, 290), (140, 290), (140, 310)])
}

fn page() -> Drawing {
    let states: [(u32, Kind, [&str; 2], [&str; 2]); 4] = [
        (
            12,
            Wait,
            ["dirty", "in memory, space reserved"],
            ["after a cut:", "not written"],
        ),
        (
            228,
            Wait,
            ["being written", "lent to a bio, no copy"],
            ["after a cut:", "old or zero"],
        ),
        (
            444,
            Wait,
            ["written, not flushed", "mapped, inside the size"],
            ["after a cut:", "old, zero or new"],
        ),
        (
            660,
            Ours,
            ["durable", "and clean: may be dropped"],
            ["after a cut:", "new"],
        ),
    ];
    let mut drawing = Drawing::new(
        860,
        240,
        "The states of a byte that was written through the page cache",
    );
    for (x, kind, words, after) in states {
        drawing = drawing
            .block((x, 60), (188, 50), kind, &words)
            .centred((x + 94, 134), after[0])
            .centred((x + 94, 152), after[1]);
    }
    drawing
        .heading((12, 24), "write_bytes")
        .arrow(&[(106, 30), (106, 58)])
        .arrow(&[(200, 85), (226, 85)])
        .arrow(&[(416, 85), (442, 85)])
        .arrow(&[(632, 85), (658, 85)])
        .centred((213, 186), "write-back: a sync, the flusher,")
        .centred((213, 204), "a throttled writer, a direct request")
        .arrow(&[(213, 172), (213, 90)])
        .centred((434, 224), "end of the request: map, then size")
        .arrow(&[(429, 210), (429, 90)])
        .centred((645, 186), "a flush, and the commit")
        .centred((645, 204), "of its map")
        .arrow(&[(645, 172), (645, 90)])
        .arrow(&[(754, 60), (754, 40), (150, 40), (150, 58)])
        .words((400, 34), "written again")
}

fn commit() -> Drawing {
    let steps: [(u32, Kind, [&str; 3]); 5] = [
        (
            12,
            Ours,
            [
                "handles join the",
                "running transaction;",
                "data ended before",
            ],
        ),
        (
            184,
            Wait,
            ["begin to close:", "new handles wait,", "open ones end"],
        ),
        (
            356,
            Ours,
            [
                "log: descriptors,",
                "blocks and revokes;",
                "flush (covers data)",
            ],
        ),
        (
            528,
            Ours,
            ["log: the commit", "block, with FUA or", "a flush behind it"],
        ),
        (
            700,
            Ours,
            [
                "checkpoint: blocks",
                "home, flush, tail of",
                "the log moves on",
            ],
        ),
    ];
    let mut drawing = Drawing::new(860, 190, "The steps of a commit of the journal");
    for (x, kind, words) in steps {
        drawing = drawing.block((x, 30), (148, 70), kind, &words);
    }
    for x in [160, 332, 504, 676] {
        drawing = drawing.arrow(&[(x, 65), (x + 22, 65)]);
    }
    drawing
        .centred((258, 124), "new handles go on here:")
        .centred((258, 142), "they join the next transaction")
        .arrow(&[(430, 104), (430, 138), (366, 138)])
        .centred((602, 124), "durable from here:")
        .centred((602, 142), "every sync that waits is answered")
        .centred((430, 176), "a cut before the commit block: nothing of it is there; behind it: recovery writes all blocks home")
}

fn threads() -> Drawing {
    Drawing::new(
        860,
        250,
        "Threads of a volume: each class waits only for classes to its right",
    )
    .block((12, 34), (130, 50), Theirs, &["submitter", "(caller)"])
    .block(
        (12, 104),
        (130, 50),
        Theirs,
        &["reaper (caller,", "or any drain)"],
    )
    .block(
        (12, 174),
        (130, 50),
        Theirs,
        &["blocking call:", "does its own work"],
    )
    .block((178, 20), (126, 218), Area, &["submit"])
    .block((186, 50), (110, 40), Ours, &["submit:", "loads maps"])
    .block((186, 98), (110, 40), Ours, &["prepare: space"])
    .block((186, 146), (110, 40), Ours, &["range,", "journalled"])
    .block((186, 192), (110, 36), Ours, &["write-back"])
    .block((340, 20), (126, 218), Area, &["complete"])
    .block(
        (348, 70),
        (110, 110),
        Ours,
        &[
            "convert, map,",
            "move sizes,",
            "one flush for",
            "all that wait",
        ],
    )
    .block((502, 20), (146, 218), Area, &["journal"])
    .block((512, 60), (126, 54), Ours, &["who commits:", "any thread"])
    .block(
        (512, 140),
        (126, 60),
        Ours,
        &["keeper: commits", "by time,", "checkpoints"],
    )
    .block((684, 20), (164, 218), Area, &["device"])
    .block((694, 60), (144, 54), Theirs, &["rings, AIO,", "threads"])
    .block(
        (694, 140),
        (144, 60),
        Theirs,
        &[
            "or the queue of",
            "the volume below,",
            "with its own classes",
        ],
    )
    .arrow(&[(142, 59), (176, 59)])
    .arrow(&[(304, 125), (338, 125)])
    .arrow(&[(466, 125), (500, 125)])
    .arrow(&[(648, 125), (682, 125)])
    .arrow(&[(142, 129), (160, 129), (160, 12), (402, 12), (402, 18)])
}
