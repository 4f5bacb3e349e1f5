//! Workers: the threads of one volume that may block, in classes.
//!
//! Input: work that may block. Output: messages to queues. Invariants: a class waits only for classes to its right in this list
//! (write-back, range, buffered, submit, prepare, complete, sync) and for the volumes below, but a sync of the volume waits for prepare and
//! complete, if pages are dirty; a worker holds no lock while it blocks. Limits: at most a fixed number of threads per class, started
//! when first needed; if the host gives no thread the work fails; the slots of the queues bound the lists.

use super::{JournalledJob, LoadJob, PrepareJob, RangeJob, VolumeJob, WriteBackJob};
use crate::inode::Job;
use crate::locks::WORKERS;
use crate::threads::{Class, NoLead, Task, Threads, contained};
use diorite_block::sync::{Mutex, thread};
use std::sync::Arc;

/// A piece of work that may block.
#[derive(Debug)]
pub(crate) enum Work {
    /// Dirty pages in the way of a direct request. Class `write-back`.
    WriteBack(WriteBackJob),
    /// A range operation, with the exclusive turn.
    Range(RangeJob),
    /// A read or write of a file whose data goes through the journal. Class `buffered`.
    Journalled(JournalledJob),
    /// Load a part of a file's map, for a request before its data goes down. Class `submit`.
    Load(LoadJob),
    /// Claim blocks and read metadata, for a write into new space before its data goes down.
    Prepare(PrepareJob),
    /// The deferred half of the completion of a request.
    Complete(Job),
    /// A sync of the volume.
    SyncVolume(VolumeJob),
}

impl Work {
    /// Runs it in this thread. Blocks.
    pub(crate) fn run(self) {
        let _said = contained(|| {
            match self {
                Work::WriteBack(job) => WriteBackJob::run(&mut vec![job], &NoLead),
                Work::Range(job) => RangeJob::run(&mut vec![job], &NoLead),
                Work::Journalled(job) => JournalledJob::run(&mut vec![job], &NoLead),
                Work::Load(job) => LoadJob::run(&mut vec![job], &NoLead),
                Work::Prepare(job) => PrepareJob::run(&mut vec![job], &NoLead),
                Work::Complete(job) => Job::run(&mut vec![job], &NoLead),
                Work::SyncVolume(job) => VolumeJob::run(&mut vec![job], &NoLead),
            }
            Ok(())
        });
    }
}

/// The workers of a volume.
#[derive(Debug)]
pub(crate) struct Workers {
    write_back: Arc<Class<WriteBackJob>>,
    range: Arc<Class<RangeJob>>,
    journalled: Arc<Class<JournalledJob>>,
    submit: Arc<Class<LoadJob>>,
    prepare: Arc<Class<PrepareJob>>,
    complete: Arc<Class<Job>>,
    sync: Arc<Class<VolumeJob>>,
    threads: Threads,
}

impl Workers {
    /// At most `most` threads per class, none of them started yet.
    pub(crate) fn new(level: u8, most: u32) -> Workers {
        let threads: Threads = Arc::new(Mutex::at_level(&WORKERS, level, Vec::new()));
        Workers {
            write_back: Class::new(level, most, &threads),
            range: Class::new(level, most, &threads),
            journalled: Class::new(level, most, &threads),
            submit: Class::new(level, most, &threads),
            prepare: Class::new(level, most, &threads),
            complete: Class::new(level, most, &threads),
            sync: Class::new(level, most, &threads),
            threads,
        }
    }

    /// Gives work to the threads of its class. Does not block.
    pub(crate) fn push(&self, work: Work) {
        match work {
            Work::WriteBack(job) => self.write_back.push([job]),
            Work::Range(job) => self.range.push([job]),
            Work::Journalled(job) => self.journalled.push([job]),
            Work::Load(job) => self.submit.push([job]),
            Work::Prepare(job) => self.prepare.push([job]),
            Work::Complete(job) => self.complete.push([job]),
            Work::SyncVolume(job) => self.sync.push([job]),
        }
    }

    /// Gives the deferred completions of one pass to their class together, so that they share handles and commits. Does not block.
    pub(crate) fn push_all(&self, jobs: &mut Vec<Job>) {
        self.complete.push(jobs.drain(..));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.write_back.stop();
        self.range.stop();
        self.journalled.stop();
        self.submit.stop();
        self.prepare.stop();
        self.complete.stop();
        self.sync.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // If one of the volume's own workers drops the last reference to the volume, it cannot join itself; it ends anyway.
            if thread.thread().id() != thread::current().id() {
                let _said = thread.join();
            }
        }
    }
}
