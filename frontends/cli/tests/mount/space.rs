//! The space of removed files.
//!
//! Input: files that are written, changed and removed. Output: none. Invariant: free space is what the kernel's ext4 shows, as soon as
//! the server knows that the file is closed. Limits: none of its own.

use crate::bed::Bed;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

fn free(at: &Path) -> u64 {
    rustix::fs::statvfs(at).unwrap().f_bfree
}

/// The defect: a file that was written, and then had its size or its times changed, kept its space after it was removed, for as long as
/// nothing else was. And a removal that the kernel had not finished yet was not in the count.
#[test]
fn the_space_of_a_removed_file_is_free_at_once() {
    let Some(bed) = Bed::new(&[]) else { return };
    bed.mount(&[]);
    // A directory that has had its names once does not grow any more.
    let (path, second) = (bed.path("file"), bed.path("second"));
    fs::write(&second, "x").unwrap();
    fs::remove_file(&second).unwrap();
    let empty = free(&bed.at);
    let changes: [fn(&File); 5] = [
        |_| {},
        |file| file.set_len(1 << 19).unwrap(),
        |file| file.set_len(4 << 20).unwrap(),
        |file| file.set_modified(SystemTime::UNIX_EPOCH).unwrap(),
        |file| file.sync_all().unwrap(),
    ];
    for round in 0..20 {
        for (n, change) in changes.iter().enumerate() {
            let file = File::create(&path).unwrap();
            file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
            change(&file);
            match round % 3 {
                0 => {
                    drop(file);
                    fs::remove_file(&path).unwrap();
                }
                1 => {
                    drop(file);
                    fs::write(&second, "").unwrap();
                    fs::rename(&second, &path).unwrap();
                    crate::life::until("replaced", || free(&bed.at) == empty);
                    fs::remove_file(&path).unwrap();
                }
                _ => {
                    fs::remove_file(&path).unwrap();
                    assert_ne!(free(&bed.at), empty, "it is open: {round}, {n}");
                    drop(file);
                }
            }
            // close(2) does not wait for its server: on a busy host that may hear of it after the question.
            crate::life::until("free", || free(&bed.at) == empty);
        }
    }
    bed.end();
}

/// What a removal frees can be written at once. The defect: now and then the write came before the kernel's word that the file was gone.
#[test]
fn the_space_of_a_removed_file_can_be_written_at_once() {
    let Some(bed) = Bed::sized(&["-m", "0"], "24M") else {
        return;
    };
    bed.mount(&[]);
    let path = bed.path("file");
    let space = rustix::fs::statvfs(&bed.at).unwrap();
    let most = usize::try_from(space.f_bfree * space.f_frsize * 3 / 4).unwrap();
    let data = vec![5; most];
    for round in 0..60 {
        fs::write(&path, &data).unwrap_or_else(|e| panic!("round {round}: {e}"));
        fs::remove_file(&path).unwrap();
    }
    bed.end();
}

/// A write waits for the space of a file whose end the server is about to hear of. The defect: close(2) does not wait for the server, and
/// as long as that held the removed file open the write failed at once. Here the file is really closed a moment later. On a busy host that
/// may be too late, but not each time.
#[test]
fn a_write_waits_for_a_removed_file_that_is_being_closed() {
    let Some(bed) = Bed::sized(&["-m", "0"], "24M") else {
        return;
    };
    bed.mount(&[]);
    let (path, second) = (bed.path("file"), bed.path("second"));
    let space = rustix::fs::statvfs(&bed.at).unwrap();
    let most = usize::try_from(space.f_bfree * space.f_frsize).unwrap();
    let (data, more) = (vec![5; most - (1 << 20)], vec![6; 2 << 20]);
    let waited = (0..30).any(|_| {
        let file = File::create(&path).unwrap();
        file.write_all_at(&data, 0).unwrap();
        fs::remove_file(&path).unwrap();
        let closer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(file);
        });
        let done = fs::write(&second, &more);
        closer.join().unwrap();
        fs::remove_file(&second).unwrap();
        crate::life::until("free", || free(&bed.at) == space.f_bfree);
        done.is_ok()
    });
    assert!(waited, "no write waited");
    bed.end();
}
