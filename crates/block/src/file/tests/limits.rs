//! Hosts with restrictions: seccomp forbids io_uring, a limit restricts locked memory.

use super::*;
use std::process::Command;

/// Forbids system calls to the calling thread and its children, as containers do: they fail with `errno`.
fn forbid(calls: &[libc::c_long], errno: i32) {
    let op = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in calls {
        program.push(op(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            *call as u32,
        ));
        let refuse = libc::SECCOMP_RET_ERRNO | errno as u32;
        program.push(op(libc::BPF_RET | libc::BPF_K, 0, refuse));
    }
    program.push(op(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: prctl takes integers here; seccomp reads the program, which lives through the call.
    let res = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const filter,
            )
    };
    assert_eq!(res, 0, "{}", std::io::Error::last_os_error());
}

/// Opens an image in a thread that may not make these calls, reads from it, and returns the device's report.
fn report_without(calls: &'static [libc::c_long]) -> DeviceReport {
    let run = move || {
        forbid(calls, libc::EPERM);
        let image = Image::new("/dev/shm", 65536).expect("tmpfs");
        let device = FileDevice::open(&FileOptions {
            path: image.path.clone(),
            ..FileOptions::default()
        })
        .expect("blocked io_uring is never an error");
        let bio = Own::new(&device, 4).one(Bio::read(4096, Buf::zeroed(4096), 0));
        assert_eq!((bio.result, bio.buf.as_slice()[1]), (Ok(()), pattern(4097)));
        let forced = FileDevice::open(&FileOptions {
            force: true,
            ..options(&image.path, IoEngine::Uring)
        });
        let error = forced.map(drop).expect_err("it is forbidden");
        assert!(error.what.contains("io_uring was asked for"), "{error}");
        device.report()
    };
    std::thread::spawn(run).join().expect("it does not panic")
}

#[test]
fn forbidden_io_uring_falls_back_and_says_so() {
    let report = report_without(&[libc::SYS_io_uring_setup]);
    assert_eq!(report.engine, "aio", "{report:?}");
    assert!(
        report.fallbacks[0].contains("not io_uring: Operation not permitted"),
        "{report:?}"
    );
}

#[test]
fn where_aio_is_forbidden_too_threads_do_it() {
    let report = report_without(&[libc::SYS_io_uring_setup, libc::SYS_io_setup]);
    assert_eq!(report.engine, "threads", "{report:?}");
    assert!(
        report.fallbacks[1].contains("not aio: Operation not permitted"),
        "{report:?}"
    );
}

/// An io_uring that can be set up but not used further is detected when the first queue is opened.
#[test]
fn a_ring_that_cannot_register_falls_back() {
    let report = report_without(&[libc::SYS_io_uring_register]);
    assert_eq!(report.engine, "aio", "{report:?}");
}

/// Defect: a filter that allowed rings to be made, but not used, was noticed by nobody: requests never ended.
#[test]
fn a_ring_that_cannot_be_entered_falls_back() {
    let report = report_without(&[libc::SYS_io_uring_enter]);
    assert_eq!(report.engine, "aio", "{report:?}");
    assert!(
        report.fallbacks[0].contains("not io_uring: Operation not permitted"),
        "{report:?}"
    );
}

/// Defect: the same of an AIO context: each request failed.
#[test]
fn a_context_that_takes_nothing_falls_back() {
    let report = report_without(&[libc::SYS_io_uring_setup, libc::SYS_io_submit]);
    assert_eq!(report.engine, "threads", "{report:?}");
}

/// A kernel without memory for requests takes none: the entries stay in the ring, and the next caller submits them.
#[test]
fn what_the_kernel_does_not_take_at_once_is_not_lost() {
    let image = Image::new("/dev/shm", 1 << 20).expect("tmpfs");
    let device = image.open(IoEngine::Uring);
    let own = Own::new(&device, 64);
    for round in 0..5u64 {
        let mut bios: BioList = (0..80u64)
            .map(|i| Bio::read(i * 4096, Buf::zeroed(4096), i))
            .collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                forbid(&[libc::SYS_io_uring_enter], libc::EAGAIN);
                own.queue.submit(&mut bios);
                own.queue.reap(&mut BioList::new());
                own.queue.wait(1, Some(Duration::from_millis(1)));
            });
        });
        assert_eq!((own.queue.in_flight(), bios.len()), (64, 16), "{round}");
        for bio in own.run(bios.drain(..)) {
            assert_eq!(bio.result, Ok(()));
            assert_eq!(
                bio.buf.as_slice()[5],
                pattern(bio.token as usize * 4096 + 5)
            );
        }
        while own.queue.in_flight() > 0 {
            own.queue.wait(1, None);
            own.queue.reap(&mut BioList::new());
        }
    }
}

/// Defect: entries that the kernel had not taken were never submitted if the queue's owner only polls or already slept. Both
/// are notified.
#[test]
fn what_the_kernel_does_not_take_is_told_to_who_sleeps() {
    let image = Image::new("/dev/shm", 1 << 20).expect("tmpfs");
    let device = image.open(IoEngine::Uring);
    for polls in [true, false] {
        let own = Own::new(&device, 4);
        if polls {
            own.waker.watch();
            own.queue.signal_waker();
            own.waker.clear();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Usually long enough for the other thread to fall asleep.
                std::thread::sleep(Duration::from_millis(2));
                forbid(&[libc::SYS_io_uring_enter], libc::EAGAIN);
                let read = Bio::read(0, Buf::zeroed(4096), 0);
                own.queue.submit(&mut [read].into());
            });
            while own.queue.reap(&mut BioList::new()) == 0 {
                if polls {
                    own.waker.wait(None);
                } else {
                    own.queue.wait(1, None);
                }
                own.waker.clear();
            }
        });
    }
}

/// Defect: a thread armed the poll of the waker, was refused, and nobody told the kernel of it: kicks woke no later waiter.
#[test]
fn a_kick_is_seen_though_the_poll_for_it_was_refused() {
    let image = Image::new("/dev/shm", 1 << 20).expect("tmpfs");
    let device = image.open(IoEngine::Uring);
    let own = Own::new(&device, 4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            forbid(&[libc::SYS_io_uring_enter], libc::EAGAIN);
            own.queue.wait(1, Some(Duration::from_millis(1)));
        });
    });
    own.waker.clear();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(2));
            own.waker.kick();
        });
        while !own.waker.is_kicked() {
            own.queue.wait(1, None);
        }
    });
}

const CHILD: &str = "DIORITE_BLOCK_TEST_CHILD";

/// The limit applies to a process, so the test starts itself as a child.
#[test]
fn registration_beyond_the_memory_lock_limit_goes_plain() {
    let own = std::env::current_exe().expect("a test has a program");
    let name = "file::tests::limits::child_with_little_locked_memory";
    let child = Command::new(own)
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("the test's own program runs");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&child.stderr)
    );
}

#[test]
#[ignore = "run by registration_beyond_the_memory_lock_limit_goes_plain"]
fn child_with_little_locked_memory() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let limit = libc::rlimit {
        rlim_cur: 64 << 10,
        rlim_max: 64 << 10,
    };
    // SAFETY: setrlimit reads one structure, which lives through the call; setuid takes an integer. The process is the
    // test's own child and runs nothing else.
    let res = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) | nobody() };
    assert_eq!(res, 0, "{}", std::io::Error::last_os_error());
    let image = Image::new("/dev/shm", 1 << 20).expect("tmpfs");
    let device = image.open(IoEngine::Uring);
    let own = Own::new(&device, 32);
    // 16 KiB fit, 256 KiB do not.
    for (size, want) in [(4, (1, 0)), (64, (1, 1)), (64, (1, 2))] {
        let pool = BufPool::new(4096, size);
        for _ in 0..10 {
            let reads = (0..4u64).map(|i| Bio::read(i * 4096, pool.get().expect("4 bufs"), i));
            for bio in own.run(reads) {
                assert_eq!(bio.result, Ok(()));
                assert_eq!(
                    bio.buf.as_slice()[3],
                    pattern(bio.token as usize * 4096 + 3)
                );
                pool.put(bio.buf);
            }
        }
        let report = device.report();
        assert_eq!((report.registered, report.plain), want, "{report:?}");
    }
}

/// The limit does not apply to root: switch to nobody.
fn nobody() -> libc::c_int {
    // SAFETY: geteuid and setuid take and give integers.
    unsafe {
        if libc::geteuid() == 0 {
            libc::setuid(65534)
        } else {
            0
        }
    }
}
