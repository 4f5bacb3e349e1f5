//! What servers of a volume need, such as one for FUSE.
//!
//! | file | tests |
//! |---|---|
//! | `names` | names by their directory's inode |
//! | `streams` | directory streams that can be reopened at any position |
//! | `numbers` | inodes known by number, also without a name |
//! | `callers` | what callers make and change, case by case |
//! | `processes` | what callers make and change, for all kinds of inodes, against processes on the kernel's mount |
//! | `space` | the numbers of statvfs |
//! | `threads` | all of these from several threads at the same time |

mod callers;
mod names;
mod numbers;
mod processes;
mod space;
mod streams;
mod threads;

use diorite::SetAttr;

/// Sets the permissions, and nothing else.
fn permissions(mode: u16) -> SetAttr {
    SetAttr::default().permissions(mode)
}

/// Sets the group, and nothing else.
fn group(gid: u32) -> SetAttr {
    SetAttr::default().gid(gid)
}
