//! Interleavings of the marks of `inode/written`: queues note times while another thread writes them to the inode.
//!
//! Input: two queues with a shard each, a thread that writes times, a queue that lets the file go. Output: assertions. Invariants: a time
//! is owed or in the inode as soon as its write has noted it. Limits: the shards are passed in, so no thread needs a slot.

use super::shuttled::check;
use super::written::{OWED, Written};
use super::*;
use diorite_block::sync::atomic::AtomicU64;

/// A file's marks, and the time that its inode has.
struct Marked {
    written: Written,
    inode: AtomicU64,
}

impl Marked {
    /// As a direct write does: alone in its queue's mark if that is owed, else under the lock.
    fn write(&self, shard: &Arc<Shard>, now: u64) {
        if !Written::note_again(shard, now) {
            thread::yield_now();
            self.written.note(Some(shard), now);
        }
    }

    /// As the thread does that writes noted times.
    fn put(&self) {
        let noted = self.written.noted(|| 1 << 40);
        if noted.latest & OWED != 0 {
            self.inode.fetch_max(noted.latest >> 1, Ordering::SeqCst);
            thread::yield_now();
            self.written.settle(&noted);
        }
    }

    fn has(&self, time: u64) -> bool {
        self.written.is_owed() || self.inode.load(Ordering::SeqCst) >= time
    }
}

/// Whoever asks for owed times after a write has ended finds its time, whatever other queues and the thread that writes times do meanwhile.
#[test]
fn no_time_of_a_write_is_lost() {
    check(|| {
        let gate = Gate::new(1);
        let marked = Arc::new(Marked {
            written: Written::new(1),
            inode: AtomicU64::new(0),
        });
        let mut threads: Vec<_> = (0..2u64)
            .map(|n| {
                let (marked, shard) = (marked.clone(), gate.add_shard());
                thread::spawn(move || {
                    for time in [10 + n, 20 + n, 30 + n] {
                        marked.write(&shard, time);
                        assert!(marked.has(time), "the time {time} is lost");
                    }
                    if n == 1 {
                        marked.written.take_over(&shard);
                        assert!(marked.has(31), "it was the queue's, which has let go");
                    }
                })
            })
            .collect();
        let writer = marked.clone();
        threads.push(thread::spawn(move || (0..3).for_each(|_| writer.put())));
        threads.into_iter().for_each(|t| t.join().unwrap());
        marked.put();
        assert_eq!(marked.inode.load(Ordering::SeqCst), 31);
        assert!(!marked.written.is_owed(), "nothing is left to be written");
    });
}

/// A view that its publisher keeps is freed once, and only when no reader has it.
#[test]
fn a_replaced_view_lives_as_long_as_its_readers() {
    check(|| {
        let published = Arc::new(Published::new(1, 0usize));
        let retired = Arc::new(Retired::new(1));
        let mut threads: Vec<_> = (0..2)
            .map(|_| {
                let (published, retired) = (published.clone(), retired.clone());
                let mut cached = published.cached();
                thread::spawn(move || {
                    let mut last = 0;
                    for _ in 0..3 {
                        let now = latest(&mut cached, &published);
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                        retired.sweep();
                    }
                })
            })
            .collect();
        let (from, list) = (published.clone(), retired.clone());
        threads.push(thread::spawn(move || {
            for n in 1..4 {
                list.keep(from.replace(Arc::new(n)));
            }
        }));
        threads.into_iter().for_each(|t| t.join().unwrap());
        retired.sweep();
        assert!(retired.is_empty(), "every reader has let go");
        assert_eq!(*published.load(), 3);
    });
}
