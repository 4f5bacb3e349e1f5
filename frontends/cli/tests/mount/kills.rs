//! Kills of the processes of a mount, at any moment.
//!
//! Input: programs that use a mount in every way; its server, its keeper or both are killed. Output: none. Invariants: every program ends
//! with an error, soon; no process of the mount is left; the mount is gone; the image is sound behind recovery. Limits:
//! programs stay in the mount by their working directory: whoever opens a path again finds what is below the mount point.
//! `DIORITE_KILLS=1000` sets the rounds, `DIORITE_SEED` the moments.

use crate::bed::{Bed, DIORITE, diorite, has, is_root, said, texts, within};
use crate::common::skip;
use crate::life::until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xtask::rng::Rng;

/// Until it fails. By its exit status it tells whether it was in the mount.
const CLIENT: &str = r#"
import fcntl, mmap, os, random, sys
# Not by '..': in a mount that is just being taken away that is the mount itself.
outside, number = os.stat(os.path.dirname(sys.argv[1])).st_dev, sys.argv[2]
choice = random.Random(int(number))
try:
    os.chdir(sys.argv[1])
    if os.stat('.').st_dev == outside:
        sys.exit(3)
    path = 'file' + number
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 1 << 20)
    memory = mmap.mmap(file, 1 << 20)
    def write_and_sync():
        os.pwrite(file, b'x' * choice.randrange(1, 70000), choice.randrange(900000))
        os.fsync(file)
    def store():
        memory[choice.randrange(1 << 20)] = 1
    def store_and_sync():
        memory[0] = 2
        memory.flush()
    def lock():
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
        fcntl.lockf(file, fcntl.LOCK_UN, 10, 0)
        fcntl.flock(file, fcntl.LOCK_UN)
    def rename():
        os.rename(path, path + 'a')
        os.rename(path + 'a', path)
    def make_and_remove():
        other = os.open(path + 't', os.O_RDWR | os.O_CREAT)
        os.write(other, b'y' * 100000)
        os.close(other)
        os.unlink(path + 't')
    calls = [write_and_sync, store, store_and_sync, lock, rename, make_and_remove,
             lambda: os.pread(file, 5000, choice.randrange(900000)),
             lambda: os.stat(path), lambda: os.listdir('.'), lambda: os.statvfs('.'),
             lambda: os.lseek(file, 0, os.SEEK_DATA), lambda: os.posix_fallocate(file, 0, 1 << 20)]
    while True:
        choice.choice(calls)()
except OSError:
    sys.exit(0)
"#;

/// Until it fails: renames, each of which has the server ask for pages that the kernel has collected.
const RENAMER: &str = r#"
import mmap, os, sys
try:
    os.chdir(sys.argv[1])
    file = os.open('a', os.O_RDWR | os.O_CREAT)
    size = 4 << 20
    os.ftruncate(file, size)
    memory = mmap.mmap(file, size)
    while True:
        memory[:] = b'z' * size
        os.rename('a', 'b')
        os.rename('b', 'a')
except OSError:
    sys.exit(0)
"#;

/// How long callers may take to have their errors: they do as soon as their server has gone, which a busy host delays.
const SOON: Duration = Duration::from_secs(15);

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |text| text.parse().unwrap())
}

fn kill(pids: &[i32]) {
    for pid in pids {
        // One may end because of another.
        let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
    }
}

fn client(bed: &Bed, script: &str, number: u64) -> Child {
    let mut client = Command::new("python3");
    client.args(["-c", script, bed.at.to_str().unwrap(), &number.to_string()]);
    client.stdout(Stdio::null()).stderr(Stdio::null());
    client.spawn().unwrap()
}

/// Waits for the end of a program, and returns how long; after [`SOON`] it is killed, and the test fails.
fn must_end(client: &mut Child, bed: &Bed, what: &str) -> Duration {
    let began = Instant::now();
    while client.try_wait().unwrap().is_none() {
        if began.elapsed() > SOON {
            // Where in the kernel it is, if it is there.
            let told = ["stack", "wchan", "syscall", "status"].map(|name| {
                let told = fs::read_to_string(format!("/proc/{}/{name}", client.id()));
                format!("{name}: {}", told.unwrap_or_default())
            });
            let _ = client.kill();
            let left = (bed.mountinfo(), bed.keepers(), bed.processes());
            panic!(
                "{what}: a program goes on; mount, keepers and processes: {left:?}\n{}",
                told.join("\n")
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    began.elapsed()
}

/// Waits for the end of all clients and of the mount's processes. Returns the longest wait for a client.
fn all_end(clients: &mut [Child], bed: &Bed, what: &str) -> Duration {
    let waits = clients.iter_mut().map(|client| must_end(client, bed, what));
    let longest = waits.fold(Duration::ZERO, Duration::max);
    until("its processes end", || bed.processes().is_empty());
    assert!(!bed.is_mounted(), "{what}");
    longest
}

#[test]
fn whoever_is_killed_every_caller_has_its_error() {
    let Some(bed) = Bed::new(&[]) else { return };
    if !has("python3") {
        return;
    }
    let now = std::process::id();
    let seed = number("DIORITE_SEED", now.into());
    eprintln!("kills: DIORITE_SEED={seed}");
    let (mut dice, mut longest) = (Rng::new(seed), Duration::ZERO);
    for round in 0..number("DIORITE_KILLS", 12) {
        let options = ["rw", "writeback_cache", "direct_io", "io_uring"];
        let options = options[usize::try_from(dice.below(4)).unwrap()];
        let victim = ["server", "keeper", "both"][usize::try_from(round % 3).unwrap()];
        let what = format!("seed {seed}, round {round}, {options}, {victim}");
        bed.mount(&["-o", options]);
        let mut clients: Vec<_> = (0..3).map(|n| client(&bed, CLIENT, n)).collect();
        std::thread::sleep(Duration::from_millis(dice.below(600)));
        let mut victims = match victim {
            "server" => bed.processes_with("--server="),
            "keeper" => bed.keepers(),
            _ => [bed.keepers(), bed.processes_with("--server=")].concat(),
        };
        if dice.below(2) == 0 {
            victims.reverse();
        }
        assert!(!victims.is_empty(), "{what}");
        kill(&victims);
        longest = longest.max(all_end(&mut clients, &bed, &what));
        if round % 6 == 5 {
            bed.mount(&[]);
            bed.unmount();
            bed.check();
        }
    }
    eprintln!("kills: every caller had its error after {longest:?} at most");
}

/// The states of a process's threads: a letter each, of proc(5).
fn states(pid: Pid) -> Vec<u8> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).unwrap();
    let state = |task: fs::DirEntry| {
        let line = fs::read(task.path().join("stat")).ok()?;
        let name_ends = line.iter().rposition(|byte| *byte == b')')?;
        line.get(name_ends + 2).copied()
    };
    tasks.flatten().filter_map(state).collect()
}

/// Stops the server in a moment in which one of its threads waits, where no signal reaches it, for a request that only the other threads
/// could answer.
fn stop_while_it_waits(server: Pid) {
    for _ in 0..2000 {
        kill_process(server, Signal::STOP).unwrap();
        // Nobody is between two states.
        let mut now = states(server);
        for _ in 0..100 {
            let before = now;
            std::thread::sleep(Duration::from_millis(2));
            now = states(server);
            if now == before && now.iter().all(|state| b"TD".contains(state)) {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        if states(server) == now && now.contains(&b'D') {
            return;
        }
        kill_process(server, Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
    panic!("no thread of the server waits for pages");
}

/// The defect: the thread that waited for the kernel's pages kept `/dev/fuse` open after the kill. Its request was never answered, and
/// neither was anybody else's.
#[test]
fn a_server_that_is_killed_while_it_waits_for_its_pages_ends() {
    let Some(bed) = Bed::new(&[]) else { return };
    if !has("python3") {
        return;
    }
    let mut longest = Duration::ZERO;
    for round in 0..number("DIORITE_KILLS", 8) {
        let options = ["writeback_cache", "rw"][usize::from(round % 8 > 3)];
        bed.mount(&["-o", options]);
        let mut clients = [client(&bed, RENAMER, 0), client(&bed, CLIENT, 1)];
        let keepers = bed.keepers();
        let server = Pid::from_raw(bed.processes_with("--server=")[0]).unwrap();
        stop_while_it_waits(server);
        let what = format!("round {round}, {options}");
        match round % 4 {
            // A process that is dumped is no zombie: the defect was the same.
            3 => {
                kill_process(server, Signal::ABORT).unwrap();
                kill_process(server, Signal::CONT).unwrap();
            }
            2 => kill(&[&keepers[..], &[server.as_raw_nonzero().get()]].concat()),
            1 => {
                let left = within("umount", &["-l", bed.at.to_str().unwrap()]);
                assert!(!is_root() || left.status.success(), "{}", texts(&left).1);
                kill(&[server.as_raw_nonzero().get()]);
            }
            _ => kill(&[server.as_raw_nonzero().get()]),
        }
        longest = longest.max(all_end(&mut clients, &bed, &what));
        bed.mount(&[]);
        bed.unmount();
        bed.check();
    }
    eprintln!("kills: every caller had its error after {longest:?} at most");
}

/// A mount whose keeper was killed ends in order: what was written without a sync is there. The defect: it stayed, without a keeper.
#[test]
fn a_killed_keeper_costs_nothing_that_was_written() {
    let Some(bed) = Bed::new(&[]) else { return };
    for is_used in [false, true] {
        bed.mount(&[]);
        fs::write(bed.path("file"), [u8::from(is_used); 100_000]).unwrap();
        let user = is_used.then(|| fs::File::open(bed.path("file")).unwrap());
        // It has no reason to end.
        for pid in bed.processes_with("--sweep=") {
            for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1] {
                kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
            }
        }
        kill(&bed.keepers());
        until("its processes end", || bed.processes().is_empty());
        assert!(!bed.is_mounted());
        drop(user);
        bed.check();
        bed.mount(&[]);
        assert!(fs::read(bed.path("file")).unwrap() == [u8::from(is_used); 100_000]);
        bed.unmount();
    }
}

/// Whoever unmounts while the server dies is told by what.
#[test]
fn an_unmount_tells_what_has_killed_the_server() {
    let Some(bed) = Bed::new(&[]) else { return };
    for signal in [Signal::KILL, Signal::ABORT] {
        bed.mount(&[]);
        let server = Pid::from_raw(bed.processes_with("--server=")[0]).unwrap();
        // It answers nobody, so that the unmount waits for it.
        kill_process(server, Signal::STOP).unwrap();
        let unmount = Command::new(DIORITE)
            .args(["umount", bed.at.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("it is unmounted", || !bed.is_mounted());
        kill_process(server, signal).unwrap();
        // It may be gone already.
        let _ = kill_process(server, Signal::CONT);
        let done = unmount.wait_with_output().unwrap();
        let (_, err) = texts(&done);
        assert_eq!(done.status.code(), Some(1), "{err}");
        let killed = format!("its server was killed by signal {}", signal.as_raw());
        assert!(err.contains(&killed), "{err}");
        until("it ends", || bed.processes().is_empty());
    }
    bed.mount(&[]);
    bed.end();
}

/// Where it is permitted the kernel ends other processes first when memory is short.
#[test]
fn a_mount_is_spared_when_memory_is_short() {
    let lower = "echo -900 > /proc/self/oom_score_adj";
    let may = Command::new("sh")
        .args(["-c", lower])
        .stderr(Stdio::null())
        .status();
    let Some(bed) = Bed::new(&[]) else { return };
    let may = may.unwrap().success();
    if !may {
        skip("this user may not lower oom_score_adj: only that nothing changes is tested");
    }
    bed.mount(&[]);
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    for pid in bed.processes() {
        let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert_eq!(score.trim(), if may { "-900" } else { own.trim() });
    }
    bed.end();
}

/// The unmount of one mount of several waits for nobody. The defect: it waited for a minute for the end of a server that went on, and
/// failed.
#[test]
fn an_unmount_of_one_mount_of_several_is_done_at_once() {
    /// Less than a server is waited for.
    const AT_ONCE: Duration = Duration::from_secs(20);
    let Some(bed) = Bed::of_root("a bind mount needs root") else {
        return;
    };
    bed.mount(&[]);
    let dir = bed.path("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "there").unwrap();
    let beside = bed.at.with_file_name("beside");
    fs::create_dir(&beside).unwrap();
    let (at, beside_at) = (bed.at.to_str().unwrap(), beside.to_str().unwrap());
    let unmounted = |place: &str| {
        let began = Instant::now();
        let done = diorite(&["umount", place]);
        assert!(done.status.success(), "{place}: {}", texts(&done).1);
        assert!(began.elapsed() < AT_ONCE, "{place}");
    };
    // Elsewhere, at a place of its own below itself, and on top of itself.
    for (from, to) in [
        (dir.to_str().unwrap(), beside_at),
        (at, dir.to_str().unwrap()),
        (at, at),
    ] {
        said("mount", &["--bind", from, to]);
        unmounted(to);
        assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "there");
    }
    // The first one may go before the other.
    said("mount", &["--bind", at, beside_at]);
    unmounted(at);
    assert_eq!(
        fs::read_to_string(beside.join("dir/file")).unwrap(),
        "there"
    );
    unmounted(beside_at);
    until("it ends", || bed.processes().is_empty());
    bed.check();
    // In another mount namespace, where it is seen a moment later.
    bed.mount(&[]);
    let mut other = Command::new("unshare")
        .args(["-m", "sh", "-c", "echo; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    unmounted(at);
    other.kill().unwrap();
    other.wait().unwrap();
    until("it ends", || bed.processes().is_empty());
    bed.check();
}

/// A mount that gets the device's numbers of one that is just unmounted does not make that durable. The defect: a moment later any mount
/// with these numbers was taken for another one of the same file system, and the unmount succeeded while the server still wrote.
#[test]
fn a_stranger_with_the_numbers_of_the_device_does_not_end_an_unmount() {
    // The keeper's name is not to be in the way of other mounts that get the numbers, so it is in a network namespace of its own.
    if !is_root() || !within("unshare", &["-n", "true"]).status.success() {
        return skip("a network namespace needs root");
    }
    let (Some(bed), Some(stranger)) = (Bed::new(&[]), Bed::new(&[])) else {
        return;
    };
    said("unshare", &[&["-n", DIORITE][..], &bed.args(&[])].concat());
    fs::write(bed.path("file"), "there").unwrap();
    let server = Pid::from_raw(bed.processes_with("--server=")[0]).unwrap();
    // It goes on writing for as long as the test likes.
    kill_process(server, Signal::STOP).unwrap();
    let mut unmount = Command::new("nsenter")
        .arg(format!("--net=/proc/{}/ns/net", bed.keepers()[0]))
        .args([DIORITE, "umount", bed.at.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("it is unmounted", || !bed.is_mounted());
    // The lowest free number is taken, as a rule.
    stranger.mount(&[]);
    std::thread::sleep(Duration::from_secs(2));
    let early = unmount.try_wait().unwrap();
    kill_process(server, Signal::CONT).unwrap();
    let done = unmount.wait_with_output().unwrap();
    assert_eq!(early, None, "the server was still there");
    assert!(done.status.success(), "{}", texts(&done).1);
    stranger.end();
    bed.check();
}
