//! The commands, one module each.
//!
//! Input: the global options and those of one command. Output: the process's exit code. Invariant: a command prints its results
//! through `output` and its messages through `report`. Limits: the commands that write to an image are those that coreutils,
//! attr, acl and e2fsprogs have for changes, and `copy`, `put`, `cp`, `edit`, `truncate`, `fallocate`, `sync`, `recover`, `sparsify`,
//! `undo` and `zerofree`; `find` and `bench` write only with certain options, `serve` and `mount` what their clients write.

pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod chattr;
pub(crate) mod check;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod cmp;
pub(crate) mod compare;
pub(crate) mod copy;
pub(crate) mod cp;
pub(crate) mod df;
pub(crate) mod disk;
pub(crate) mod du;
pub(crate) mod edit;
pub(crate) mod export;
pub(crate) mod extents;
pub(crate) mod fallocate;
pub(crate) mod find;
pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod getfacl;
pub(crate) mod getfattr;
pub(crate) mod import;
pub(crate) mod info;
pub(crate) mod label;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod lsattr;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mknod;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod put;
pub(crate) mod readlink;
pub(crate) mod recover;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod rmdir;
pub(crate) mod serve;
pub(crate) mod setfacl;
pub(crate) mod setfattr;
pub(crate) mod sparsify;
pub(crate) mod stat;
mod sweeper;
pub(crate) mod sync;
pub(crate) mod touch;
pub(crate) mod tree;
pub(crate) mod truncate;
pub(crate) mod tune;
pub(crate) mod umount;
pub(crate) mod undo;
pub(crate) mod zerofree;
