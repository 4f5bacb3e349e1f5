//! The attr room: one inode's own words, where they lead to attributes: permissions and owners, rights that writes take away, data in the inode.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `set` | permissions, owners, times -> the inode, its lists in agreement |
//! | `first` | a file that is going to be written -> one that can be |
//! | `xattrs` | attributes by their names -> set, taken away |
//! | `keep` | a small file's contents -> in its inode |
//!
//! Input: inodes. Output: changed ones. Invariants: those of `inode` and `xattr`. Limits: all of it blocks.

mod first;
mod keep;
mod set;
mod xattrs;

pub(crate) use first::{settle_first_write, settle_privileges};
pub(crate) use keep::keep_inside;
pub use set::SetAttr;
pub(crate) use set::set_attr;
pub(crate) use xattrs::{remove_xattr, set_xattr};
