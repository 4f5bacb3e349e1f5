//! A log file that several threads append to. A record is durable when its call returns; threads that wait at the same time share a
//! commit.
//!
//!     cargo run --release -p diorite --example append_log -- disk.img /log
//!
//! Input: an image, and the path of a log in it. Output: the log, longer by the records of four threads. Invariants: records do not
//! overlap, whichever threads append; what `append` has acknowledged survives a power cut. Limits: records are whole blocks, as
//! direct I/O requires.

use diorite::{Buf, Error, File, OpenOptions, Volume};

const THREADS: u8 = 4;
const RECORD: usize = 4096;

/// Appends one record, makes it durable, and returns its offset.
fn append(log: &File, record: Buf) -> Result<u64, Error> {
    let (_buf, at) = log.append_buf(record);
    // Syncs that wait while a commit runs all share the next commit.
    log.sync_data()?;
    at
}

/// Each thread appends `records` records. Returns how many commits of the journal that took.
pub fn append_log(image: &str, path: &str, records: usize) -> Result<u64, Error> {
    let volume = Volume::open(image, &OpenOptions::writable())?;
    let log = volume.create(path, 0o644)?;
    volume.sync()?;
    let before = volume.journal_stats().commits;
    std::thread::scope(|scope| {
        let writer = |who: u8| {
            let log = &log;
            move || -> Result<(), Error> {
                for _ in 0..records {
                    let mut record = Buf::zeroed(RECORD);
                    record.as_mut_slice().fill(who);
                    append(log, record)?;
                }
                Ok(())
            }
        };
        let writers: Vec<_> = (1..=THREADS).map(|who| scope.spawn(writer(who))).collect();
        for writer in writers {
            writer.join().expect("a writer does not panic")?;
        }
        Ok::<(), Error>(())
    })?;
    let commits = volume.journal_stats().commits - before;
    drop(log);
    volume.close()?;
    Ok(commits)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, path] = &words[..] else {
        return Err("usage: append_log IMAGE PATH".into());
    };
    let commits = append_log(image, path, 250)?;
    let records = usize::from(THREADS) * 250;
    eprintln!("{path}: {records} durable records in {commits} commits");
    Ok(())
}
