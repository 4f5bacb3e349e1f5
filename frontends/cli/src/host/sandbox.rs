//! A sandbox for commands that serve clients: a client or an image that has found a bug reaches nothing else.
//!
//! Input: the files that the command needs; of a qcow2 image with `?backing` also those behind it. Output: a process that can open nothing
//! else (Landlock), run no program, and make only the system calls of the list below (seccomp). Invariants: both can only become stricter;
//! threads that start later are in the sandbox, too. Limits: what the kernel does not have is left out, and [`Sandbox::state`] says so.
//! Landlock is for the calling thread and those that it starts, so it has to be entered before the first of them; it does not cover what is
//! open already. Rings of io_uring do not ask seccomp, so none is made behind the filter, and those that were made ahead take no operations
//! but those of reading and writing.

use crate::output::report::Reason;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Resource, getrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The newest rights that are asked for; an older kernel has fewer of them.
const NEWEST: ABI = ABI::V6;

/// The files that a command needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    files: Vec<(PathBuf, BitFlags<AccessFs>)>,
    /// Files that images name, judged and open: another one that takes such a name is not permitted.
    behind: Vec<(PathBuf, File)>,
}

/// The rights to read a file or device.
fn reading() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::IoctlDev
}

impl Needs {
    /// What every command needs: the host's view of this process, of devices, and of limits, to be read.
    pub(crate) fn new() -> Needs {
        let mut needs = Needs::default();
        for place in [
            "/proc/self",
            "/sys/block",
            "/sys/dev",
            "/sys/devices",
            "/sys/fs/cgroup",
        ] {
            needs.look(place);
        }
        // Whether somebody has locked an image.
        needs.look("/proc/locks");
        needs
    }

    fn look(&mut self, place: &str) {
        let rights = AccessFs::ReadFile | AccessFs::ReadDir;
        self.files.push((place.into(), rights));
    }

    /// A file or device to be read.
    pub(crate) fn read(&mut self, path: &Path) {
        self.files.push((path.into(), reading()));
    }

    /// A file or device to be read and written.
    pub(crate) fn write(&mut self, path: &Path) {
        let rights = reading() | AccessFs::WriteFile | AccessFs::Truncate;
        self.files.push((path.into(), rights));
    }

    /// Files that an image names, to be read: those that are open, whatever takes their names.
    pub(crate) fn behind(&mut self, files: Vec<(PathBuf, File)>) {
        self.behind.extend(files);
    }

    /// From here on this thread, and those that it starts, open nothing else.
    ///
    /// # Errors
    /// The kernel has Landlock and refuses the rules.
    pub(crate) fn enter(&self) -> Result<Sandbox, Reason> {
        // Inside nobody sees what other processes have open.
        let named = self.files.iter().map(|(path, _)| path);
        for path in named.chain(self.behind.iter().map(|(path, _)| path)) {
            diorite_block::look_for_writers(path);
        }
        let status = self.rules().and_then(RulesetCreated::restrict_self);
        let status = status.map_err(no_sandbox)?;
        Ok(Sandbox {
            files: status.ruleset,
            calls: false,
        })
    }

    fn rules(&self) -> Result<RulesetCreated, landlock::RulesetError> {
        let mut rules = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?
            .create()?;
        for (path, rights) in &self.files {
            // Whoever opens a file that is not there gets that error.
            let Ok(there) = PathFd::new(path) else {
                continue;
            };
            let rights = match path.is_dir() {
                true => *rights,
                false => *rights & AccessFs::from_file(NEWEST),
            };
            rules = rules.add_rule(PathBeneath::new(there, rights))?;
        }
        for (_, file) in &self.behind {
            let rights = reading() & AccessFs::from_file(NEWEST);
            rules = rules.add_rule(PathBeneath::new(file, rights))?;
        }
        Ok(rules)
    }
}

/// What the process is limited to.
#[derive(Debug)]
pub(crate) struct Sandbox {
    files: RulesetStatus,
    calls: bool,
}

impl Sandbox {
    /// From here on all threads make only the system calls of the list. Up to so many rings are made before that, and none later.
    ///
    /// # Errors
    /// The kernel has seccomp and refuses the filter.
    pub(crate) fn limit_calls(&mut self, rings: usize) -> Result<(), Reason> {
        let Some(filter) = filter()? else {
            return Ok(());
        };
        let descriptors = getrlimit(Resource::Nofile).current;
        let most = descriptors.map_or(rings, |n| usize::try_from(n / 4).unwrap_or(rings));
        // Without one, files are read in another way.
        let _ = diorite_block::file::stock_rings(rings.min(most));
        apply_filter_all_threads(&filter).map_err(no_sandbox)?;
        self.calls = true;
        Ok(())
    }

    /// Why files are not limited, if they are not.
    pub(crate) fn gap(&self) -> Option<&'static str> {
        let is_open = self.files == RulesetStatus::NotEnforced;
        is_open.then_some("this kernel has no Landlock: what takes over this process can open all files that its user can open")
    }

    /// What is limited, as a line.
    pub(crate) fn state(&self) -> String {
        let files = match self.files {
            RulesetStatus::FullyEnforced => "limited to those that are served",
            RulesetStatus::PartiallyEnforced => {
                "limited to those that are served, as far as this kernel can"
            }
            RulesetStatus::NotEnforced => "not limited: this kernel has no Landlock",
        };
        let calls = match self.calls {
            true => "limited to those that serving takes",
            false => "not limited: their numbers are not known for this processor",
        };
        format!("sandbox: files {files}; system calls {calls}")
    }
}

fn no_sandbox(error: impl std::fmt::Display) -> Reason {
    Reason::new(format!(
        "no sandbox: {error} (--no-sandbox goes on without one)"
    ))
}

/// None if there are no filters for this processor.
fn filter() -> Result<Option<BpfProgram>, Reason> {
    let Ok(arch) = std::env::consts::ARCH.try_into() else {
        return Ok(None);
    };
    let mut rules: BTreeMap<_, _> = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    for (call, each) in limited() {
        let each: Result<Vec<_>, _> = each
            .into_iter()
            .map(|all| {
                let all: Result<Vec<_>, _> = all
                    .into_iter()
                    .map(|(argument, op, value)| {
                        // An address; the others are numbers of 32 bits, with anything above.
                        let len = match (call, argument) {
                            (libc::SYS_sendto, 4) => SeccompCmpArgLen::Qword,
                            _ => SeccompCmpArgLen::Dword,
                        };
                        SeccompCondition::new(argument, len, op, value)
                    })
                    .collect();
                all.and_then(SeccompRule::new)
            })
            .collect();
        rules.insert(call, each.map_err(no_sandbox)?);
    }
    // Libraries that ask for a newer call go on with an older one if it is not there.
    let refused = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch);
    let program = filter.and_then(BpfProgram::try_from);
    program.map(Some).map_err(no_sandbox)
}

/// What an argument of a call, by its number, has to be.
type Condition = (u8, SeccompCmpOp, u64);

/// A call, and what it may be used for: all conditions of one list have to hold.
type Limited = (libc::c_long, Vec<Vec<Condition>>);

/// Calls that may be used for some things only.
fn limited() -> Vec<Limited> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let number = |value: i32| u64::from(value.cast_unsigned());
    let one_of = |argument: u8, values: &[i32]| {
        let each = values
            .iter()
            .map(|value| vec![(argument, Eq, number(*value))]);
        each.collect::<Vec<_>>()
    };
    let none_of = |argument: u8, values: &[u64]| {
        let all = values.iter().map(|value| (argument, Ne, *value));
        vec![all.collect::<Vec<_>>()]
    };
    // A lease, by which one finds out whether others write a file, in place of SIGIO, which ends a process.
    let quiet_signal = || vec![vec![(1, Eq, F_SETSIG), (2, Eq, number(libc::SIGURG))]];
    let itself = number(std::process::id().cast_signed());
    let thread = number(libc::CLONE_THREAD);
    let fast_open = number(libc::MSG_FASTOPEN);
    vec![
        // Calls that name a process, for this one only.
        (libc::SYS_prlimit64, one_of(0, &[0])),
        (libc::SYS_sched_setaffinity, one_of(0, &[0])),
        // A thread may give way to all others.
        (
            libc::SYS_sched_setscheduler,
            vec![vec![(0, Eq, 0), (1, Eq, number(libc::SCHED_IDLE))]],
        ),
        (libc::SYS_tgkill, vec![vec![(0, Eq, itself)]]),
        // Threads, not processes, and no namespaces. The C library uses this call where clone3 is not there.
        (
            libc::SYS_clone,
            vec![vec![(0, MaskedEq(thread | NAMESPACES), thread)]],
        ),
        (libc::SYS_prctl, one_of(0, PROCESS)),
        (libc::SYS_io_uring_register, one_of(1, RING)),
        // No connection is made by sending.
        (
            libc::SYS_sendto,
            vec![vec![(3, MaskedEq(fast_open), 0), (4, Eq, 0)]],
        ),
        (libc::SYS_sendmsg, vec![vec![(2, MaskedEq(fast_open), 0)]]),
        // No signals to others, by descriptors that become readable, and no input for a terminal.
        (
            libc::SYS_fcntl,
            [none_of(1, SIGNALS), quiet_signal()].concat(),
        ),
        (libc::SYS_ioctl, none_of(1, CONTROLS)),
    ]
}

/// The flags of `clone` that make namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32 as u64;

/// What `prctl` is for: names of threads and of memory, the end with the parent, and PR_SET_IO_FLUSHER, how memory is given to a server of
/// a file system.
const PROCESS: &[i32] = &[
    libc::PR_SET_NAME,
    libc::PR_SET_VMA,
    libc::PR_SET_PDEATHSIG,
    57,
];

/// What is registered with rings: buffers, an eventfd, files; and a ring that was made ahead is enabled. Numbers of `io_uring_register(2)`.
const RING: &[i32] = &[1, 4, 5, 6, 12, 15, 16];

/// Sets the signal of a descriptor. It may be SIGURG, which is ignored unless a process wants it.
const F_SETSIG: u64 = 10;

/// What `fcntl` is not for: F_SETOWN, F_SETSIG, F_SETOWN_EX.
const SIGNALS: &[u64] = &[8, F_SETSIG, 15];

/// What `ioctl` is not for: TIOCSTI, TIOCLINUX, FIOSETOWN, SIOCSPGRP.
const CONTROLS: &[u64] = &[0x5412, 0x541c, 0x8901, 0x8902];

/// What serving takes, and what the standard library and the C library do by themselves. No call makes a socket, a ring or a process, runs
/// a program, looks into another process, mounts, or loads code into the kernel.
const CALLS: &[libc::c_long] = &[
    // Bytes of descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_io_uring_enter,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_cancel,
    libc::SYS_io_destroy,
    // Descriptors, and the files that Landlock leaves.
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_unlinkat,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    // Clients.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    // Threads, signals and time.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    // To give up rights.
    libc::SYS_setgroups,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // By this the C library has all threads change their user. Landlock keeps it from threads of others, where it knows signals.
    #[cfg(target_env = "musl")]
    libc::SYS_tkill,
    // The older names of some of them.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::location::Location;
    use diorite_block::locator::{FileLocator, ImageFormat};
    use diorite_block::{Locator, OpenOptions};
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::FileExt;
    use std::process::Command;

    const DIR: &str = "DIORITE_SANDBOX_TEST";

    /// Runs `inside` in a process of its own.
    #[test]
    fn what_is_not_needed_is_out_of_reach() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("run")).expect("a directory");
        for name in ["read", "write", "other", "base"] {
            fs::write(dir.path().join(name), "x").expect("a file");
        }
        for (name, base, format) in [
            ("over", "base", "raw"),
            ("top", "over", "qcow2"),
            ("plain", "other", "raw"),
        ] {
            overlay(&dir.path().join(name), base, format);
        }
        let this = std::env::current_exe().expect("this program");
        let ran = Command::new(this)
            .args([
                "--exact",
                "host::sandbox::tests::inside",
                "--ignored",
                "--nocapture",
            ])
            .env(DIR, dir.path())
            .output()
            .expect("it runs");
        let (out, err) = (
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr),
        );
        assert!(ran.status.success(), "{out}{err}");
        assert!(out.contains("test result: ok. 1 passed"), "{out}{err}");
    }

    /// An empty qcow2 image that names a file behind it: the name is behind the extensions of the header.
    fn overlay(path: &Path, base: &str, format: &str) {
        fs::write(path, "").expect("a file");
        diorite_qcow2::create(path, 1 << 20).expect("an image");
        let file = File::options().write(true).open(path).expect("an image");
        let len = |text: &str| {
            u32::try_from(text.len())
                .expect("a short text")
                .to_be_bytes()
        };
        let mut extension = [&0xE279_2ACA_u32.to_be_bytes()[..], &len(format)].concat();
        extension.extend(format.bytes());
        extension.resize(extension.len().next_multiple_of(8) + 8, 0);
        let at = 104 + extension.len() as u64;
        extension.extend(base.bytes());
        file.write_all_at(&extension, 104).expect("written");
        file.write_all_at(&at.to_be_bytes(), 8).expect("written");
        file.write_all_at(&len(base), 16).expect("written");
    }

    #[test]
    #[ignore = "run by what_is_not_needed_is_out_of_reach, as it cannot leave the sandbox again"]
    fn inside() {
        let dir = PathBuf::from(std::env::var_os(DIR).expect("it is run by the other test"));
        let at = |name: &str| dir.join(name);
        let mut needs = Needs::new();
        needs.read(&at("read"));
        needs.write(&at("write"));
        needs.read(&at("missing"));
        for (name, backing) in [("top", true), ("plain", false)] {
            let file = FileLocator {
                path: at(name),
                format: Some(ImageFormat::Qcow2),
                backing,
                ..FileLocator::default()
            };
            Location::of(Locator::File(file)).permit(&mut needs, true);
        }
        let mut sandbox = needs.enter().expect("a sandbox");
        sandbox.limit_calls(4).expect("a filter");
        let write = |name: &str| File::options().write(true).open(at(name));
        let is_limited = sandbox.files != RulesetStatus::NotEnforced;
        if is_limited {
            let denied = |result: std::io::Result<File>| {
                assert_eq!(
                    result.map(drop).map_err(|e| e.kind()),
                    Err(ErrorKind::PermissionDenied)
                );
            };
            denied(File::open(at("other")));
            denied(File::open("/etc/passwd"));
            // What other processes are, and were started with.
            denied(File::open("/proc/1/status"));
            denied(File::open("/proc/version"));
            denied(File::open("/sys/kernel/uevent_seqnum"));
            denied(write("read"));
            // What is behind an image is read.
            for name in ["over", "base"] {
                denied(write(name));
            }
            let refused =
                diorite_block::locator::open(&Locator::file(at("other")), &OpenOptions::default());
            let why = refused.map(drop).expect_err("it is beside the chain");
            assert!(why.to_string().contains("a sandbox"), "{why}");
        } else {
            xtask::skip::skipped(sandbox.state());
        }
        for name in ["read", "top", "over", "base"] {
            File::open(at(name)).expect("it may be read");
        }
        write("write").expect("it may be written");
        File::open("/proc/self/status").expect("it may be read");
        assert!(fs::write(at("run/new"), "1").is_err() || !is_limited);
        assert_eq!(
            File::open(at("missing")).map(drop).map_err(|e| e.kind()),
            Err(ErrorKind::NotFound)
        );
        // No program, whatever may be opened; and threads still start.
        assert!(Command::new("/bin/true").spawn().is_err());
        let thread = std::thread::spawn(|| File::open("/etc/passwd").is_ok());
        let reached = thread.join().expect("threads start");
        assert_eq!(reached, !is_limited);
    }
}
