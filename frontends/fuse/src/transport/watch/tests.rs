//! Who is on watch, who is parked, and who comes when a request blocks.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use super::*;
use crate::transport::{Channel, Incoming};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::thread;

fn watch() -> Watch {
    Watch {
        looks: true,
        ..Watch::new(true)
    }
}

/// Has a thread wait its turn, until it is parked. It tells when it is not any more.
fn park(watch: &Arc<Watch>) -> Receiver<()> {
    let before = watch.idle.load(SeqCst);
    let (tell, called) = channel();
    let of = watch.clone();
    thread::spawn(move || {
        assert!(of.take().is_none(), "somebody else was on watch");
        tell.send(()).unwrap();
    });
    while watch.idle.load(SeqCst) == before {
        thread::yield_now();
    }
    called
}

#[test]
fn one_thread_is_on_watch_at_a_time() {
    let watch = Arc::new(watch());
    let on_watch = watch.take().unwrap();
    let others = [park(&watch), park(&watch)];
    drop(on_watch);
    watch.hand_over();
    watch.hand_over();
    for called in others {
        called.recv().unwrap();
    }
    assert_eq!(watch.idle.load(SeqCst), 0);
    let mut looks = 0;
    let on_watch = watch.take().unwrap();
    let found = on_watch.look(|| {
        looks += 1;
        (looks == 3).then_some(looks)
    });
    assert_eq!(found, Some(3));
}

/// Who hands over while somebody is on watch calls nobody: that thread takes the next request.
#[test]
fn nobody_is_called_while_one_is_on_watch() {
    let watch = Arc::new(watch());
    let on_watch = watch.take().unwrap();
    let parked = park(&watch);
    watch.hand_over();
    assert_eq!(watch.idle.load(SeqCst), 1);
    drop(on_watch);
    watch.hand_over();
    parked.recv().unwrap();
}

#[test]
fn what_is_behind_a_request_gets_a_thread() {
    let watch = Arc::new(watch());
    watch.received(|| unreachable!("nobody could take it"));
    let on_watch = watch.take().unwrap();
    let [first, second] = [park(&watch), park(&watch)];
    watch.received(|| false);
    assert_eq!(watch.idle.load(SeqCst), 2);
    watch.received(|| true);
    assert_eq!(watch.idle.load(SeqCst), 1);
    second.recv().unwrap();
    watch.received(|| true);
    first.recv().expect("the deputy comes last");
    drop(on_watch);
}

#[test]
fn all_come_at_the_end() {
    let watch = Arc::new(watch());
    let on_watch = watch.take().unwrap();
    let others = [park(&watch), park(&watch), park(&watch)];
    watch.end();
    for called in others {
        called.recv().unwrap();
    }
    assert!(watch.take().is_none(), "nobody is parked any more");
    drop(on_watch);
}

#[test]
fn nobody_looks_while_requests_are_rare() {
    let watch = watch();
    let on_watch = watch.take().unwrap();
    let looks = || {
        let mut looks = 0;
        on_watch.look(|| {
            looks += 1;
            None::<()>
        });
        looks
    };
    for _ in 0..IN_VAIN {
        assert!(looks() > 0, "some looks in vain are no reason");
    }
    assert_eq!(looks(), 0);
    thread::sleep(2 * LOOK);
    on_watch.woken();
    assert_eq!(looks(), 0, "that request came late");
    watch.replied.store(u64::MAX, Relaxed);
    on_watch.woken();
    assert!(looks() > 0, "that one came at once");
}

#[test]
fn nobody_looks_who_must_not() {
    let watch = Watch::new(false);
    let found = watch.take().unwrap().look(|| -> Option<()> {
        unreachable!("no look");
    });
    assert_eq!(found, None);
}

/// Requests through a pipe, received by so many threads, which tell of each and execute it until all have one.
fn receivers(threads: usize) -> (OwnedFd, Receiver<()>) {
    let (from, to) = rustix::pipe::pipe().unwrap();
    let first = Channel::new(from, true);
    let (tell, received) = channel();
    let all_have_one = Arc::new(Barrier::new(threads));
    for _ in 0..threads {
        let (line, tell, all_have_one) = (first.clone(), tell.clone(), all_have_one.clone());
        thread::spawn(move || {
            let mut request = Incoming::try_new().unwrap();
            while line.receive(&mut request) == Ok(true) && !request.before().is_empty() {
                if tell.send(()).is_err() {
                    return;
                }
                all_have_one.wait();
            }
        });
    }
    (to, received)
}

/// Each request blocks, and no one has said that it may: whoever is parked receives those that come later, one after the other.
#[test]
fn a_request_that_blocks_unexpectedly_holds_up_nobody() {
    const THREADS: usize = 4;
    let (to, received) = receivers(THREADS);
    for round in 0..30 {
        // Long enough for the deputy to fall asleep, now and then.
        if round % 10 == 9 {
            thread::sleep(TICK * (QUIET + 10));
        }
        for _ in 0..THREADS {
            rustix::io::write(&to, &[1]).unwrap();
            let came = received.recv_timeout(Duration::from_secs(60));
            came.expect("a thread that is not in a request receives this one");
        }
    }
}
