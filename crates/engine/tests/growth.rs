//! Writes into new space against a byte array: holes, appends, writes past the end, aligned and not, many in flight. Every byte is
//! read back by diorite and by debugfs, and e2fsck judges the image.

use crate::common::fixture::writable;
use crate::common::{Rng, bytes, fsck, image, run, scaled, scratch, words};
use diorite::policy::PRESETS;
use diorite::{File, Op, OpenFlags, OpenOptions, Policy, Queue, Request, RequestFlags, Volume};
use diorite_block::Buf;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

const KINDS: [(&str, &str, &str); 7] = [
    ("ext4-4k", "64M", "-t ext4 -b 4096"),
    ("ext4-1k", "48M", "-t ext4 -b 1024"),
    ("ext4-nojournal", "48M", "-t ext4 -b 4096 -O ^has_journal"),
    ("ext3-1k", "48M", "-t ext3 -b 1024"),
    ("ext2-1k", "48M", "-t ext2 -b 1024"),
    (
        "ext4-2k-nocsum",
        "48M",
        "-t ext4 -b 2048 -O ^metadata_csum,^64bit",
    ),
    (
        "ext4-clusters",
        "64M",
        "-t ext4 -b 1024 -O bigalloc -C 16384",
    ),
];

/// An image with a few files: an empty one, one of odd size, a sparse one.
fn make(dir: &Path, size: &str, args: &str) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("empty"), b"").unwrap();
    std::fs::write(tree.join("odd"), vec![0x55; 100_001]).unwrap();
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    image(dir, size, &words(args), &tree)
}

/// The expected contents of a file.
struct Model {
    name: &'static str,
    bytes: Vec<u8>,
}

fn models() -> Vec<Model> {
    vec![
        Model {
            name: "empty",
            bytes: Vec::new(),
        },
        Model {
            name: "odd",
            bytes: vec![0x55; 100_001],
        },
        Model {
            name: "sparse",
            bytes: vec![0; 3 << 20],
        },
    ]
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xee; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn same(what: &str, found: &[u8], model: &Model) {
    assert_eq!(
        found.len(),
        model.bytes.len(),
        "{what}, {}: size",
        model.name
    );
    if let Some(at) = (0..found.len()).find(|i| found[*i] != model.bytes[*i]) {
        panic!(
            "{what}, {}: byte {at} is {:#x}, not {:#x}",
            model.name, found[at], model.bytes[at]
        );
    }
}

/// Compares with e2fsck, with debugfs, and with a newly opened volume.
fn judge(what: &str, image: &Path, dir: &Path, models: &[Model]) {
    fsck(image);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    for model in models {
        let file = volume
            .open_path(&format!("/{}", model.name), OpenFlags::default())
            .unwrap();
        same(&format!("{what}, opened again"), &read_all(&file), model);
        let out = dir.join("dumped");
        let dump = format!("dump /{} {}", model.name, out.to_str().unwrap());
        run("debugfs", &["-R", &dump, image.to_str().unwrap()]);
        same(
            &format!("{what}, debugfs"),
            &std::fs::read(&out).unwrap(),
            model,
        );
    }
}

/// One round of random writes that do not overlap, all in flight together.
fn round(volume: &Volume, queue: &Queue, files: &[File], models: &mut [Model], rng: &mut Rng) {
    let logical = volume.device().geometry().logical as u64;
    let ids: Vec<_> = files.iter().map(|f| queue.attach(f).unwrap()).collect();
    let mut batch = VecDeque::new();
    let mut flying: HashMap<u64, (usize, Vec<u8>)> = HashMap::new();
    for (which, id) in ids.iter().enumerate() {
        // Positions increase, so that no two writes of a round overlap.
        let mut at = rng.below(64) * logical;
        for _ in 0..rng.below(12) {
            let most = if rng.below(3) == 0 { 40 } else { 9 };
            let sectors = 1 + rng.below(most);
            let len = sectors * logical;
            let append = which == 0 && rng.below(3) == 0;
            let mut data = vec![0u8; len as usize];
            rng.fill(&mut data);
            let mut buf = Buf::zeroed(len as usize);
            buf.copy_in(0, &data);
            let token = batch.len() as u64;
            let request = if append {
                Request::append(*id, buf, token)
            } else {
                Request::write(*id, at, buf, token)
            };
            let flags = RequestFlags::default().dsync(rng.below(8) == 0);
            batch.push_back(request.with_flags(flags));
            flying.insert(token, (which, data));
            at += len + rng.below(200) * logical;
        }
    }
    // Appends would race with writes past the end, so in each file a round has only one of the two.
    let appended: Vec<bool> = (0..files.len())
        .map(|w| {
            batch
                .iter()
                .any(|r: &Request| r.op == Op::Append && r.file == ids[w])
        })
        .collect();
    batch.retain(|r: &Request| {
        let w = ids.iter().position(|id| *id == r.file).unwrap();
        let keep = r.op == Op::Append || !appended[w];
        if !keep {
            flying.remove(&r.token);
        }
        keep
    });
    let count = batch.len();
    assert_eq!(queue.submit(&mut batch), count);
    let mut done = Vec::new();
    while done.len() < count {
        queue.reap(&mut done, 1, None);
    }
    for completion in done {
        let (which, data) = flying.remove(&completion.token).unwrap();
        assert_eq!(completion.result.unwrap(), data.len());
        bytes::write(&mut models[which].bytes, completion.pos as usize, &data);
    }
    ids.into_iter().for_each(|id| queue.detach(id));
}

fn campaign(what: &str, args: (&str, &str), policy: Policy, rounds: u64, rng: &mut Rng) {
    let dir = scratch();
    let image = make(dir.path(), args.0, args.1);
    let mut models = models();
    for part in 0..3 {
        let options = OpenOptions::writable().policy(policy);
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let files: Vec<File> = models
            .iter()
            .map(|m| {
                volume
                    .open_path(&format!("/{}", m.name), writable())
                    .unwrap()
            })
            .collect();
        let queue = volume.queue(64).unwrap();
        for n in 0..rounds {
            round(&volume, &queue, &files, &mut models, rng);
            for (file, model) in files.iter().zip(&models) {
                same(
                    &format!("{what}, part {part}, round {n}"),
                    &read_all(file),
                    model,
                );
            }
            if rng.below(4) == 0 {
                files[rng.below(3) as usize].sync().unwrap();
            }
        }
        drop((queue, files));
        volume.close().unwrap();
        judge(what, &image, dir.path(), &models);
    }
}

/// Rules U1, U4, U9, U11, B4, B5, as far as contents show them.
#[test]
fn every_kind_of_volume() {
    let mut rng = Rng::from_env("growth");
    for (name, size, args) in KINDS {
        campaign(
            name,
            (size, args),
            Policy::DIORITE,
            scaled("DIORITE_ROUNDS", 12),
            &mut rng,
        );
    }
}

#[test]
fn every_policy() {
    let mut rng = Rng::from_env("growth under policies");
    for (name, policy) in PRESETS {
        campaign(name, (KINDS[1].1, KINDS[1].2), policy, 5, &mut rng);
    }
}

/// Appends from many queues: each byte is there once, without gaps, and the sizes are in order.
#[test]
fn appends_from_everywhere() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0].1, KINDS[0].2);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/empty", writable()).unwrap();
    let (threads, each, len) = (4u64, 200u64, 1536usize);
    let places = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for t in 0..threads {
            let (volume, file, places) = (&volume, &file, &places);
            scope.spawn(move || {
                let queue = volume.queue(32).unwrap();
                let id = queue.attach(file).unwrap();
                let (mut sent, mut back, mut done) = (0, 0, Vec::new());
                while back < each {
                    let mut batch: VecDeque<Request> = VecDeque::new();
                    while sent < each && (sent - back) < 32 {
                        let mut buf = Buf::zeroed(len);
                        let mark = (t * each + sent).to_le_bytes();
                        buf.as_mut_slice()
                            .chunks_mut(8)
                            .for_each(|c| c.copy_from_slice(&mark));
                        batch.push_back(Request::append(id, buf, t * each + sent));
                        sent += 1;
                    }
                    queue.submit(&mut batch);
                    queue.reap(&mut done, 1, None);
                    for c in done.drain(..) {
                        assert_eq!(c.result.unwrap(), len);
                        assert!(
                            file.size() >= c.pos + len as u64,
                            "acknowledged before the size covers it"
                        );
                        places.lock().unwrap().push((c.pos, c.token));
                        back += 1;
                    }
                }
            });
        }
    });
    let mut places = places.into_inner().unwrap();
    places.sort_unstable();
    assert_eq!(file.size(), threads * each * len as u64);
    let bytes = read_all(&file);
    for (n, (pos, token)) in places.iter().enumerate() {
        assert_eq!(*pos, (n * len) as u64);
        let got = &bytes[*pos as usize..*pos as usize + len];
        assert!(
            got.chunks(8).all(|c| c == token.to_le_bytes()),
            "append {token} at {pos}"
        );
    }
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}
