//! Who submits the requests of tasks and takes their completions in.
//!
//! Input: the table of requests. Output: submissions, completions, woken tasks. Invariants: a request that waits in the table is submitted
//! by the task that made it, by the driver, or by whoever makes room for it, so none is forgotten; wakers are called, cloned and dropped
//! without a lock. Limits: one driver at a time; a driver that is dropped before the last file leaves its work to a thread.
//!
//! | driver | submits | waits |
//! |---|---|---|
//! | a thread | the task that asks, at its first poll; the thread, what had no room | in the queue's ring |
//! | a task of a runtime | the task, all that was asked for since its last turn | for the queue's eventfd, by the runtime's reactor |

use crate::ASYNC_TABLE;
use crate::table::{Asked, Left, Table};
use diorite::{Buf, Completion, Error, File, FileId, Queue, Request, Volume};
use diorite_block::DeviceError;
use diorite_block::sync::{Condvar, Mutex, MutexGuard, thread};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

/// A request may wait for one of another queue of the volume, whose owner does not reap; then nothing signals the eventfd. A task looks
/// again after this time, as [`Queue::eventfd`] asks for.
#[cfg(any(feature = "tokio", feature = "smol"))]
pub(crate) const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(5);

/// So many times a task goes on at once when the queue has something to do, or others have something to submit; then other tasks have
/// their turn.
const TURNS: usize = 4;

/// What the driver and the tasks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    state: Mutex<State>,
    /// For a thread that has nothing under way: there is something, or nobody is left.
    changed: Condvar,
    /// Takes the buffers of cancelled requests.
    takes_back: OnceLock<Back>,
}

/// See [`crate::AsyncVolume::on_cancelled`].
struct Back(Box<dyn Fn(Buf) + Send + Sync>);

impl std::fmt::Debug for Back {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Back")
    }
}

#[derive(Debug)]
struct State {
    table: Table<Arc<Attached>>,
    driver: By,
    /// The last handle is gone.
    closed: bool,
    /// A thread submits what is pending, and goes on until nothing is; others need not.
    submits: bool,
    batch: VecDeque<Request>,
}

#[derive(Debug)]
enum By {
    Thread,
    /// With the waker of a task that is not to have its turn anyway.
    Task(Option<Waker>),
}

fn host(what: &str, error: io::Error) -> Error {
    DeviceError::host(what, error).into()
}

/// Wakes a task. A panic was reported by its hook; tasks of others are woken all the same.
pub(crate) fn wake_safely(waker: Waker) {
    drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
}

/// What a driver keeps from turn to turn.
#[derive(Debug, Default)]
struct Lists {
    done: Vec<Completion>,
    wake: Vec<Waker>,
    left: Left<Arc<Attached>>,
}

impl Shared {
    fn new(volume: &Volume, depth: u32, driver: By) -> Result<Arc<Shared>, Error> {
        let queue = volume.queue(depth)?;
        let state = State {
            table: Table::new(queue.depth()),
            driver,
            closed: false,
            submits: false,
            batch: VecDeque::new(),
        };
        Ok(Arc::new(Shared {
            queue,
            state: Mutex::new(&ASYNC_TABLE, state),
            changed: Condvar::new(),
            takes_back: OnceLock::new(),
        }))
    }

    /// Begins a request; returns its number in the table.
    pub(crate) fn start(&self, request: Request, waker: Waker) -> u32 {
        let mut state = self.state.lock();
        let number = state.table.insert(request, waker);
        match &mut state.driver {
            By::Task(waiting) => {
                let waker = waiting.take();
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            By::Thread => self.submit(state),
        }
        number
    }

    /// Submits what is pending and has room, unless another thread does.
    fn submit<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.submits {
            return;
        }
        let mut batch = std::mem::take(&mut state.batch);
        let mut turns = 0;
        // Others may ask as fast as this thread submits. What it leaves is submitted by whoever takes the next completion in.
        while (turns < TURNS || !state.table.is_busy()) && state.table.next_batch(&mut batch) {
            turns += 1;
            state.submits = true;
            drop(state);
            self.queue.submit_from(&mut batch);
            state = self.state.lock();
            state.submits = false;
            if !batch.is_empty() {
                state.table.put_back(&mut batch);
                break;
            }
        }
        state.batch = batch;
        drop(state);
        self.changed.notify_all();
    }

    /// The completion of a request, if it has ended; otherwise `waker` is woken when it has.
    pub(crate) fn take(&self, number: u32, waker: &Waker) -> Option<Completion> {
        loop {
            let asked = self.state.lock().table.take(number, waker);
            match asked {
                Asked::Ended(done) => return Some(done),
                Asked::Waits => return None,
                Asked::WaitsForAnother => {
                    let waker = waker.clone();
                    let other = self.state.lock().table.exchange(number, waker);
                    drop(other);
                }
            }
        }
    }

    pub(crate) fn abandon(&self, number: u32, file: &Arc<Attached>) {
        let (buf, waker) = self.state.lock().table.abandon(number, file);
        drop(waker);
        buf.into_iter().for_each(|buf| self.give_back(buf));
    }

    /// Sets who takes the buffers of cancelled requests. False if that is set.
    pub(crate) fn set_takes_back(&self, take: impl Fn(Buf) + Send + Sync + 'static) -> bool {
        self.takes_back.set(Back(Box::new(take))).is_ok()
    }

    pub(crate) fn give_back(&self, buf: Buf) {
        if let Some(Back(take)) = self.takes_back.get() {
            // The panic was reported by its hook; requests of others go on.
            drop(catch_unwind(AssertUnwindSafe(|| take(buf))));
        }
    }

    /// Gives completions to their tasks. Returns how many there were.
    fn end(&self, lists: &mut Lists) -> usize {
        let count = lists.done.len();
        if count == 0 {
            return 0;
        }
        let Lists { done, wake, left } = lists;
        let mut state = self.state.lock();
        state.table.end(done, wake, left);
        if state.table.has_batch() {
            self.submit(state);
        } else {
            drop(state);
        }
        wake.drain(..).for_each(wake_safely);
        for (completion, file) in left.drain(..) {
            self.give_back(completion.buf);
            drop(file);
        }
        count
    }

    /// Starts a thread that drives. It begins with what waits for a driver.
    fn start_thread(self: &Arc<Self>) -> io::Result<thread::JoinHandle<()>> {
        let drives = self.clone();
        thread::Builder::new()
            .name("diorite-async".into())
            .spawn(move || {
                drives.submit(drives.state.lock());
                drives.run();
            })
    }

    /// The life of a thread that drives.
    fn run(&self) {
        let mut lists = Lists::default();
        let mut found = true;
        loop {
            let mut state = self.state.lock();
            loop {
                match state.table.is_busy() {
                    false if state.closed => return,
                    // What another thread is submitting is not in the queue yet.
                    true if found || !state.submits => break,
                    _ => state = self.changed.wait(state),
                }
            }
            drop(state);
            self.queue.reap(&mut lists.done, 1, None);
            found = self.end(&mut lists) > 0;
        }
    }

    fn close(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.closed = true;
        match &mut state.driver {
            By::Task(waker) => waker.take(),
            By::Thread => {
                drop(state);
                self.changed.notify_all();
                None
            }
        }
    }
}

/// Held by every handle and file: when the last one is gone the driver ends.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Owner {
    /// With a thread that drives.
    pub(crate) fn with_thread(volume: &Volume, depth: u32) -> Result<Arc<Owner>, Error> {
        let shared = Shared::new(volume, depth, By::Thread)?;
        let thread = shared
            .start_thread()
            .map_err(|e| host("the thread that completes requests", e))?;
        Ok(Arc::new(Owner {
            shared,
            thread: Mutex::new(&ASYNC_TABLE, Some(thread)),
        }))
    }

    /// With a driver for the program to run.
    #[cfg(any(feature = "tokio", feature = "smol"))]
    pub(crate) fn with_task(
        volume: &Volume,
        depth: u32,
        ready: impl FnOnce(&Queue) -> io::Result<Box<dyn Ready>>,
    ) -> Result<(Arc<Owner>, Driver), Error> {
        let shared = Shared::new(volume, depth, By::Task(None))?;
        let ready = ready(&shared.queue)
            .map_err(|e| host("the runtime's reactor takes no descriptor", e))?;
        let driver = Driver {
            shared: shared.clone(),
            ready,
            lists: Lists::default(),
        };
        let thread = Mutex::new(&ASYNC_TABLE, None);
        Ok((Arc::new(Owner { shared, thread }), driver))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(waker) = self.shared.close() {
            waker.wake();
        }
        // Nothing is under way any more, so the thread ends at once: the volume is free when this returns. The last file of all may be
        // dropped by the thread itself.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            // A panic of the thread was reported by its own hook.
            drop(thread.join());
        }
    }
}

/// A file that is attached to a queue.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) owner: Arc<Owner>,
    pub(crate) file: File,
    pub(crate) id: FileId,
}

impl Attached {
    pub(crate) fn new(owner: &Arc<Owner>, file: File) -> Result<Arc<Attached>, Error> {
        let id = owner.shared.queue.attach(&file)?;
        Ok(Arc::new(Attached {
            owner: owner.clone(),
            file,
            id,
        }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }
}

/// No request of the file is left: each has its own reference.
impl Drop for Attached {
    fn drop(&mut self) {
        self.owner.shared.queue.detach(self.id);
    }
}

/// Tells that a queue's eventfd is readable, by the reactor of a runtime.
pub(crate) trait Ready: Send {
    /// Ready if the descriptor may have become readable since the last call; otherwise the task is woken when it has.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready after [`LOOK_AGAIN`], again and again.
    fn poll_look_again(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Submits and completes the requests of an [`crate::AsyncVolume`]: a future for the program to spawn as a task of its own. It ends when
/// the last handle and the last file are gone. If it is dropped before, as by the end of its runtime, a thread takes its place.
#[must_use = "requests make no progress unless the driver runs: spawn it"]
pub struct Driver {
    shared: Arc<Shared>,
    ready: Box<dyn Ready>,
    lists: Lists,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    /// Submits and completes what there is.
    fn turn(&mut self, waker: &Waker) -> Turn {
        self.shared.submit(self.shared.state.lock());
        self.shared.queue.reap(&mut self.lists.done, 0, None);
        let ended = self.shared.end(&mut self.lists) > 0;
        let by = By::Task(Some(waker.clone()));
        let mut state = self.shared.state.lock();
        let busy = state.table.is_busy();
        if state.closed && !busy {
            return Turn::Over;
        }
        if state.table.has_batch() {
            return Turn::Again;
        }
        let before = std::mem::replace(&mut state.driver, by);
        drop(state);
        drop(before);
        match (ended, busy) {
            (true, _) => Turn::Again,
            (_, true) => Turn::Busy,
            _ => Turn::Idle,
        }
    }
}

/// How a turn of a driver has ended.
enum Turn {
    /// There may be more to do.
    Again,
    /// Requests are under way.
    Busy,
    Idle,
    /// Nobody is left.
    Over,
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS {
            // Looked at before the queue is: what comes later wakes this task.
            let readable = match self.ready.poll_readable(cx) {
                Poll::Ready(Ok(())) => true,
                // Without a reactor a thread goes on. Whoever polled this may keep it, so its drop would be too late.
                Poll::Ready(Err(_)) => {
                    self.hand_over();
                    return Poll::Ready(());
                }
                Poll::Pending => false,
            };
            let look = match self.turn(cx.waker()) {
                Turn::Over => return Poll::Ready(()),
                Turn::Again => true,
                Turn::Busy => self.ready.poll_look_again(cx).is_ready(),
                Turn::Idle => false,
            };
            if !readable && !look {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Driver {
    /// A thread takes this driver's place, unless nobody is left or one has taken it already.
    fn hand_over(&self) {
        let mut state = self.shared.state.lock();
        let before = std::mem::replace(&mut state.driver, By::Thread);
        let over = state.closed && !state.table.is_busy();
        drop(state);
        if over || matches!(before, By::Thread) {
            return;
        }
        drop(before);
        if let Err(error) = self.shared.start_thread() {
            panic!("no thread can take the driver's place: {error}");
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.hand_over();
    }
}
