//! Options of `mount` and `umount`.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: the words of `-o` are those of
//! `diorite_fuse::options`.

use clap::Args;
use std::path::PathBuf;

pub(super) const MOUNT: &str = "\
Mount an ext2, ext3 or ext4 image at a directory (FUSE). Returns when the mount can be used; with -f it stays in the foreground. An \
ordinary user needs fusermount3 (Debian: package fuse3) and no other rights than those to the image and the directory.

LOCATOR is an image file, a block device, a partition (?part=2), an image inside an image (OUTER!/path), or a descriptor \
(/proc/self/fd/3, /dev/fd/3). The journal is replayed, \
and everything is journaled. After `diorite umount` everything is durable and the image is free; after umount(8) or `fusermount3 -u` \
it is a moment later, and the next mount of the image waits for that; one that is in use is named at once, also if it was detached \
(umount -l). If the process is killed, nothing is lost that was synced: the \
next mount recovers by the journal.

Options of -o, separated by commas, those of mount(8), ext4(5), fuse2fs(1):
  ro, rw, suid, nosuid, dev, nodev, exec, noexec, sync, async, dirsync
  nosymfollow               for ordinary users only if their fusermount3 knows the word
  noatime, relatime (default), strictatime, nodiratime, lazytime
  offset=BYTES              the file system begins there
  data=journal|ordered|writeback, commit=SECONDS, errors=remount-ro
  norecovery, noload        do not replay the journal: what it holds is missing. With rw only if there is nothing to replay
  user_xattr, nouser_xattr, acl, noacl
  grpid, nogrpid            new files have the group of their directory; bsdgroups, sysvgroups. By default as the superblock says
  resuid=N, resgid=N        this user, this group may use reserved blocks, too
  minixdf, bsddf            statfs counts the volume's own structures as its size, or does not (default)
  discard                   discard free space at the end of the mount
  allow_other               for other users, too; always so for what root mounts
  default_permissions       the kernel checks permissions; always so without fakeroot
  fakeroot                  the user who mounts may do everything, and makes files of root (nosuid, nodev; not for other users)
  uid=N, gid=N              show all files as this user's, this group's (nosuid, nodev)
  fsname=NAME, subtype=NAME what the mount table names as the source, and as the type behind fuse.
  writeback_cache           the kernel collects writes: faster for many small ones, but a full disk shows only at fsync and close
  direct_io                 the kernel caches no data
  max_threads=N             so many requests may wait for the device at once
  nobusy_poll               threads sleep at once when they have replied; else one looks for the next request for 0.1 ms first, while \
requests follow each other that closely, and the host's processors are kept from sleep meanwhile (an ordinary user's mount: eight at most)
  io_uring                  requests come through io_uring, if the kernel has that (6.14) and fuse's parameter enable_uring is set; not \
with writeback_cache
  remount                   change ro, suid, dev and exec of an existing mount; other words may only repeat what it has. A mount that was \
made read-only becomes writable by being made anew, if nobody uses it
With lazytime, times that reads and overwrites change are written with a sync, a change of their inode, or the end, and after 12 hours.
Options for the caches of the kernel's own ext4, and those that mount(8) keeps for itself, have no effect. An unknown option is an error.

syncfs(2) and sync(1) hand what the kernel has to diorite, but the kernel does not tell it to make it durable: fsync(2) of a file or a \
directory does, and so does the end of the mount.

Programs and devices in the image have no special rights in what an ordinary user mounts (nosuid, nodev).

Three processes serve a mount: one keeps the mount and waits for signals; one reads the image, and can open no other file (Landlock) and \
make only the system calls that it needs (seccomp), and root's is the user nobody's; one ends the mount if the first is \
killed. A kernel without Landlock is always named.

SIGTERM and SIGINT end the mount: everything is made durable. As mount.fuse.diorite in /sbin (a symbolic link to diorite) it is the \
helper of mount(8): `mount -t fuse.diorite disk.img /mnt`, also in /etc/fstab; umount.fuse.diorite is that of umount(8).

Exit status: 0 if it is mounted, with -f when the mount has ended well; 1 if it could not be mounted, or not everything was made \
durable; 2 for wrong usage. As a helper: 32 and 1.";

pub(super) const UMOUNT: &str = "\
End mounts of diorite, and wait until everything is durable and the image is free. A mount that is in use is left alone, unless --lazy \
is given.

Exit status: 0 if it is unmounted and durable; 1 if not; 2 for wrong usage. As a helper of umount(8): 32 and 1.";

/// `mount`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MountArgs {
    /// Mount options: see above
    #[arg(short, long, value_name = "OPTIONS", action = clap::ArgAction::Append)]
    pub(crate) options: Vec<String>,
    /// Mount read-only (as -o ro)
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// Stay in the foreground
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Write the process's number to this file when the mount can be used; it is removed at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Write a line to this descriptor when the mount can be used
    #[arg(long, value_name = "N")]
    pub(crate) ready_fd: Option<u32>,
    /// Do not limit the process to the files and system calls that it needs
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Say what is mounted, and how the process is limited
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The exit codes of mount(8).
    #[arg(long, hide = true)]
    pub(crate) helper: bool,
    /// Ignore options that are not known.
    #[arg(long, hide = true)]
    pub(crate) sloppy: bool,
    /// Do everything but mount.
    #[arg(long, hide = true)]
    pub(crate) fake: bool,
    /// Write a line to this descriptor, in place of the other one, when the mount can be used.
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) front_fd: Option<u32>,
    /// The process keeps the mount of a session of its own.
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    /// The process serves the mount of the one at the other end of this socket.
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) server: Option<u32>,
    /// The process ends the mount of the one at the other end of this socket, if that is killed.
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) sweep: Option<u32>,
    /// The process was a keeper of the same mount, read-only, before: it mounts for writing, and answers through this descriptor.
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) anew_fd: Option<u32>,
    /// The image, where LOCATOR names a descriptor of the first process.
    #[arg(long, hide = true, value_name = "LOCATOR")]
    pub(crate) image: Option<String>,
    /// The image
    #[arg(value_name = "LOCATOR")]
    pub(crate) locator: String,
    /// Where to mount it
    pub(crate) dir: PathBuf,
}

/// `umount`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UmountArgs {
    /// Detach a mount that is in use; it ends with its last user
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// The exit codes of umount(8).
    #[arg(long, hide = true)]
    pub(crate) helper: bool,
    /// Where it is mounted
    #[arg(required = true, value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
}
