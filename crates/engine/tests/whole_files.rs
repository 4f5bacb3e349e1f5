//! Files that are stored as a whole: their last bytes need not fill a sector, they get a name only when they are complete, and they
//! replace the file with that name in one step.

use crate::common::{fsck, image, scratch};
use diorite::{Completion, Error, File, OpenFlags, OpenOptions, Queue, Request, Volume};
use diorite_block::Buf;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

const KINDS: [&[&str]; 6] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext2", "-b", "4096"],
    &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
];

fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    std::fs::write(tree.join("old"), vec![7; 300_001]).unwrap();
    image(dir, "48M", args, &tree)
}

fn open(image: &Path, data_journal: Option<bool>) -> Volume {
    let options = OpenOptions::writable().data_journal(data_journal);
    Volume::open(image.to_str().unwrap(), &options).unwrap()
}

/// Bytes that are never zero.
fn bytes_of(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from(n % 251 + 1).unwrap())
        .collect()
}

/// A buffer of whole sectors: the bytes, followed by garbage.
fn padded(bytes: &[u8]) -> Buf {
    let mut buf = Buf::zeroed(bytes.len().next_multiple_of(512));
    buf.as_mut_slice().fill(0xee);
    buf.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    buf
}

fn run(queue: &Queue, requests: impl IntoIterator<Item = Request>) -> Vec<Completion> {
    let mut batch: VecDeque<Request> = requests.into_iter().collect();
    let (all, mut done) = (batch.len(), Vec::new());
    while done.len() < all {
        queue.submit(&mut batch);
        queue.reap(&mut done, 1, None);
    }
    done
}

/// Writes all bytes of an empty file, in pieces that are in flight together; the last one ends inside a sector.
fn write_whole(volume: &Volume, file: &File, bytes: &[u8]) {
    const PIECE: usize = 64 << 10;
    let queue = volume.queue(32).unwrap();
    let id = queue.attach(file).unwrap();
    let requests = bytes.chunks(PIECE).enumerate().map(|(n, piece)| {
        let (pos, token) = ((n * PIECE) as u64, n as u64);
        Request::write_last(id, pos, padded(piece), piece.len() as u64, token)
    });
    for done in run(&queue, requests) {
        let token = usize::try_from(done.token).unwrap();
        let want = bytes.chunks(PIECE).nth(token).unwrap().len();
        assert_eq!(done.result.unwrap(), want);
    }
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xaa; usize::try_from(file.size()).unwrap()];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn read_path(volume: &Volume, path: &str) -> Vec<u8> {
    read_all(&volume.open_path(path, OpenFlags::default()).unwrap())
}

#[test]
fn any_size_without_a_name_first() {
    for args in KINDS {
        for data_journal in [None, Some(true)] {
            let journalled = args.contains(&"ext4") && data_journal.is_some();
            if data_journal.is_some() && !journalled {
                continue;
            }
            let dir = scratch();
            let image = make(dir.path(), args);
            let volume = open(&image, data_journal);
            let sizes = [1, 59, 511, 512, 513, 4095, 4096, 4097, 65_537, 300_000];
            for size in sizes {
                let file = volume.temporary("/sub", 0o640).unwrap();
                write_whole(&volume, &file, &bytes_of(size));
                assert_eq!(file.size(), size as u64, "{args:?}");
                volume.link_file(&file, &format!("/sub/{size}")).unwrap();
            }
            for size in sizes {
                assert_eq!(read_path(&volume, &format!("sub/{size}")), bytes_of(size));
            }
            volume.close().unwrap();
            fsck(&image);
            // Past the end there are zeros, which show when the file becomes longer.
            let volume = open(&image, None);
            for size in sizes {
                let path = format!("/sub/{size}");
                let write = OpenFlags::writable();
                let file = volume.open_path(&path, write).unwrap();
                file.truncate(size as u64 + 5000).unwrap();
                let bytes = read_all(&file);
                assert_eq!(bytes[..size], bytes_of(size), "{args:?}");
                assert_eq!(bytes[size..], [0; 5000], "{args:?}");
            }
            volume.close().unwrap();
            fsck(&image);
        }
    }
}

/// A write of last bytes is refused if the file has bytes after them, or if the buffer does not fit their length.
#[test]
fn only_the_last_bytes() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0]);
    let volume = open(&image, None);
    let write = OpenFlags::writable();
    let file = volume.open_path("/old", write).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    for (pos, len, has) in [
        (0, 100, 512),
        (299_520, 481, 512),
        (299_520, 512, 2048),
        (299_520, 1024, 512),
    ] {
        let request = Request::write_last(id, pos, Buf::zeroed(has), len, 0);
        let done = run(&queue, [request]).remove(0);
        let refused = matches!(done.result, Err(Error::Invalid(_)));
        assert!(refused, "{pos} {len} {has}: {:?}", done.result);
        assert_eq!(done.buf.len(), has);
    }
    assert_eq!(read_all(&file), vec![7; 300_001]);
    // One byte past the old end: the file becomes longer.
    let request = Request::write_last(id, 299_520, padded(&[9; 482]), 482, 0);
    assert_eq!(run(&queue, [request]).remove(0).result.unwrap(), 482);
    let mut want = vec![7; 299_520];
    want.extend([9; 482]);
    assert_eq!(read_all(&file), want);
    drop((queue, file));
    volume.close().unwrap();
    fsck(&image);
}

/// The name refers to the old file or to the complete new one; the old file stays usable for those who have it open, and under its
/// other names.
#[test]
fn in_the_place_of_another() {
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args);
        let volume = open(&image, None);
        let old = volume.open_path("/old", OpenFlags::default()).unwrap();
        volume.link("/old", "/sub/second").unwrap();
        for n in 1..4 {
            let file = volume.temporary("/", 0o600).unwrap();
            write_whole(&volume, &file, &bytes_of(n * 1000));
            volume.replace_file(&file, "/old").unwrap();
            // A second call changes nothing.
            volume.replace_file(&file, "/old").unwrap();
            assert_eq!(file.metadata().links, 1);
            assert_eq!(read_path(&volume, "/old"), bytes_of(n * 1000));
        }
        volume.unlink("/sub/second").unwrap();
        assert_eq!(read_all(&old), vec![7; 300_001]);
        drop(old);
        let file = volume.temporary("/", 0o600).unwrap();
        for (path, is) in [
            ("/sub", "directory"),
            ("/", "directory"),
            ("/old/", "file"),
            ("/no/such", "missing"),
        ] {
            let error = volume.replace_file(&file, path).unwrap_err();
            let fits = match is {
                "directory" => matches!(error, Error::IsADirectory { .. } | Error::Exists { .. }),
                "file" => matches!(error, Error::NotADirectory { .. }),
                _ => matches!(error, Error::NotFound { .. }),
            };
            assert!(fits, "{path}: {error}");
        }
        volume.replace_file(&file, "/new").unwrap();
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}
