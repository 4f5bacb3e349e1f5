//! Queues for blocking calls: one request at a time, in the calling thread.
//!
//! Input: a file and one request. Output: its completion. Invariant: the queue belongs to one caller at a time, whose thread also runs the
//! request's deferred work, without a hop to a worker. Limits: the file of the last call stays attached, for the next call.

use super::{File, Queue};
use crate::error::Error;
use crate::request::{Completion, FileId, Request};
use crate::slots::{BlockingWork, Service};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many bios of a blocking request may be in flight at once.
const DEPTH: u32 = 32;

/// A queue for blocking calls, with the file of the last call.
#[derive(Debug)]
pub(crate) struct SyncQueue {
    queue: Queue,
    attached: Option<(File, FileId)>,
    batch: VecDeque<Request>,
    done: Vec<Completion>,
}

impl SyncQueue {
    pub(crate) fn open(service: &Arc<Service>) -> Result<SyncQueue, Error> {
        let queue = Queue::open(service, DEPTH, BlockingWork::Caller)?;
        Ok(SyncQueue {
            queue,
            attached: None,
            batch: VecDeque::new(),
            done: Vec::new(),
        })
    }

    /// See [`Queue::is_makeshift`].
    pub(crate) fn is_makeshift(&self) -> bool {
        self.queue.is_makeshift()
    }

    /// Detaches the file of the last call if it has no name any more, so that it can be deleted when its last user is gone.
    pub(crate) fn let_go_of_unlinked(&mut self) {
        if let Some((_, id)) = self.attached.take_if(|(f, _)| f.inode().is_unlinked()) {
            self.queue.detach(id);
        }
    }

    fn attach(&mut self, file: &File) -> Result<FileId, Error> {
        match &self.attached {
            Some((known, id)) if known.open_file().is_same(file.open_file()) => Ok(*id),
            _ => {
                if let Some((_, old)) = self.attached.take() {
                    self.queue.detach(old);
                }
                let id = self.queue.attach(file)?;
                self.attached = Some((file.kept(), id));
                Ok(id)
            }
        }
    }

    /// Runs one request of the file until it has ended. Blocks.
    pub(crate) fn call(&mut self, file: &File, request: Request) -> Completion {
        let file = match self.attach(file) {
            Ok(file) => file,
            Err(error) => return request.failed(error),
        };
        self.batch.push_back(Request { file, ..request });
        self.queue.submit(&mut self.batch);
        while self.done.is_empty() {
            self.queue.reap(&mut self.done, 1, None);
        }
        self.done
            .pop()
            .expect("the loop ended with a completion in the list")
    }
}
