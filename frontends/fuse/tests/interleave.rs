//! Interleavings of the threads of a mount: whoever waits for the next request, is parked, or executes one that blocks.
//!
//! The room's own file is compiled into this test, with a kernel that is a list. Clients send one request after the other, as system calls
//! do, and wait for each; some requests end only when others have been executed, which a thread has to receive meanwhile. A schedule in
//! which nobody receives them is a deadlock, which shuttle reports.
#![cfg(feature = "_shuttle")]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../src/transport/watch.rs"]
mod watch;

/// Processors are not kept awake under shuttle.
mod awake {
    #[derive(Debug)]
    pub(super) struct Awake;

    impl Awake {
        pub(super) fn open() -> Option<Awake> {
            None
        }
        pub(super) fn came_soon(&self) {}
        pub(super) fn rest(&self) {}
    }
}

use Kind::{Brief, Quick, Slow, Stuck};
use diorite_block::sync::{Condvar, LockClass, Mutex, thread};
use shuttle::rand::Rng as _;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use watch::{Source, Watch};

/// So many steps, less one, a program takes before a call.
const PAUSE: u32 = 40;

static KERNEL: LockClass = LockClass::new("test-kernel", 900);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Ends at once.
    Quick,
    /// The same, and nobody waits for it.
    Brief,
    /// Ends when so many quick ones have been executed. It is known that it may block.
    Slow(usize),
    /// The same, which nobody expects.
    Stuck(usize),
}

#[derive(Debug, Default)]
struct State {
    list: VecDeque<(usize, Kind)>,
    /// By client: requests that have been answered.
    answered: Vec<usize>,
    quick: usize,
    is_gone: bool,
}

#[derive(Debug)]
struct Kernel {
    state: Mutex<State>,
    changed: Condvar,
}

impl Kernel {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        let mut state = self.state.lock();
        while !is_so(&state) {
            state = self.changed.wait(state);
        }
    }

    /// A program that makes these calls.
    fn call_all(&self, client: usize, calls: &[Kind]) {
        let mut sent = 0;
        for call in calls {
            // The deputy sleeps when nothing has come for some time.
            let pause = shuttle::rand::thread_rng().gen_range(0..PAUSE);
            (0..pause).for_each(|_| thread::yield_now());
            self.change(|state| state.list.push_back((client, *call)));
            if *call != Brief {
                sent += 1;
                self.wait_until(|state| state.answered[client] == sent);
            }
        }
    }
}

/// One thread of the mount.
struct Server {
    kernel: Arc<Kernel>,
    watch: Arc<Watch>,
    request: Option<(usize, Kind)>,
}

impl Source for Server {
    type Error = Infallible;

    fn take(&mut self) -> Result<Option<bool>, Infallible> {
        let state = &mut *self.kernel.state.lock();
        self.request = state.list.pop_front();
        Ok(match self.request {
            Some(_) => Some(true),
            None => state.is_gone.then_some(false),
        })
    }

    fn is_ready(&self, waits: bool) -> Result<bool, Infallible> {
        let is_so = |state: &State| !state.list.is_empty() || state.is_gone;
        if waits {
            self.kernel.wait_until(is_so);
        }
        Ok(is_so(&self.kernel.state.lock()))
    }

    fn is_brief(&self) -> bool {
        matches!(self.request, Some((_, Brief)))
    }
}

impl Server {
    fn run(mut self) {
        let watch = self.watch.clone();
        while watch.receive(&mut self).unwrap() {
            let (client, kind) = self.request.unwrap();
            if matches!(kind, Slow(_)) {
                watch.hand_over();
            }
            match kind {
                Slow(others) | Stuck(others) => {
                    self.kernel.wait_until(|state| state.quick >= others);
                }
                Quick => self.kernel.change(|state| state.quick += 1),
                Brief => continue,
            }
            self.kernel.change(|state| state.answered[client] += 1);
            watch.replied();
        }
    }
}

/// Runs the programs on a mount with so many threads, then unmounts it.
fn run(threads: usize, programs: &'static [&'static [Kind]]) {
    let state = State {
        answered: vec![0; programs.len()],
        ..State::default()
    };
    let kernel = Arc::new(Kernel {
        state: Mutex::new(&KERNEL, state),
        changed: Condvar::new(),
    });
    let watch = Arc::new(Watch::new(false));
    // Nobody looks under shuttle, as where rings have most requests.
    watch.sleeps_at_once();
    assert!(!watch.may_look());
    let serve = |_| {
        let server = Server {
            kernel: kernel.clone(),
            watch: watch.clone(),
            request: None,
        };
        thread::spawn(move || server.run())
    };
    let servers: Vec<_> = (0..threads).map(serve).collect();
    let call = |client: usize| {
        let kernel = kernel.clone();
        thread::spawn(move || kernel.call_all(client, programs[client]))
    };
    let clients: Vec<_> = (0..programs.len()).map(call).collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    kernel.change(|state| state.is_gone = true);
    servers
        .into_iter()
        .for_each(|server| server.join().unwrap());
}

/// `DIORITE_SCHEDULES` sets more schedules.
fn check(threads: usize, programs: &'static [&'static [Kind]]) {
    let more = std::env::var("DIORITE_SCHEDULES").ok();
    let schedules = more.and_then(|n| n.parse().ok()).unwrap_or(3000);
    let test = move || run(threads, programs);
    shuttle::check_random(test, schedules);
    shuttle::check_pct(test, schedules / 3, 3);
}

#[test]
fn every_request_is_received() {
    check(1, &[&[Quick, Brief, Quick], &[Quick, Quick]]);
    check(3, &[&[Quick, Brief, Quick], &[Brief, Quick], &[Quick]]);
}

#[test]
fn what_is_behind_a_request_that_blocks_is_received() {
    check(2, &[&[Slow(2)], &[Quick, Quick]]);
    check(3, &[&[Slow(2), Quick], &[Slow(1)], &[Brief, Quick, Quick]]);
}

/// The deputy sees that nobody receives.
#[test]
fn what_is_behind_a_request_that_blocks_unexpectedly_is_received() {
    check(2, &[&[Stuck(1)], &[Quick]]);
    check(3, &[&[Stuck(2), Quick], &[Slow(2)], &[Quick, Brief, Quick]]);
}
