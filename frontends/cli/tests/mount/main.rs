//! `diorite mount`: what a mount does, how it begins and ends, and the test-suites of others on it.
//!
//! | file | what |
//! |---|---|
//! | `bed` | an image and its mount; commands that cannot hang |
//! | `asked` | what the kernel asks for, by operation |
//! | `files` | what the kernel's ext4 does with data, names and attributes |
//! | `full` | full mounts: what was refused is told once, what was promised is kept |
//! | `life` | begin and end: signals, kills, second mounts |
//! | `kills` | its processes killed at any moment; what others are told of it |
//! | `images` | images by descriptor, without their log; few descriptors |
//! | `helpers` | the helpers of mount(8) and umount(8) |
//! | `like_ext4` | what test suites ask, on a mount of diorite and on one of the kernel's |
//! | `differ` | random calls of three users on a mount of diorite and on one of the kernel's |
//! | `holders` | second mounts: of an image in use, of one whose server ends |
//! | `late` | commands that write to a mount which says late that it is full |
//! | `stress` | many random operations at once, compared with models |
//! | `qcow2` | images of qcow2: marked while they are written, closed at the end |
//! | `cached` | what the kernel's caches show after each change |
//! | `races` | direct I/O and a mapping of one file |
//! | `mapped` | a process that maps files |
//! | `semantics` | times of creation, labels, reserved blocks |
//! | `space` | the space of removed files |
//! | `users` | flags and ioctls, as root and as an ordinary user, beside the kernel's |
//! | `words` | the words of -o |
//! | `synchronous` | what is durable at once: mounts and files that ask for it, fsync |
//! | `suites` | pjdfstest, fsx, stress-ng, fio, git, SQLite |
//! | `databases` | PostgreSQL and SQLite while the mount is killed |
//! | `memory` | a mount in a memory cgroup |
//! | `builds` | make and a C compiler |
//!
//! Every test ends with an unmount and `e2fsck -fn`. Limits: what the host lacks is skipped, with its name.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod asked;
mod bed;
mod builds;
mod cached;
mod databases;
mod differ;
mod files;
mod full;
mod helpers;
mod holders;
mod images;
mod kills;
mod late;
mod life;
mod like_ext4;
mod mapped;
mod memory;
mod options;
mod qcow2;
mod races;
mod rings;
mod semantics;
mod space;
mod stress;
mod suites;
mod synchronous;
mod users;
mod words;
