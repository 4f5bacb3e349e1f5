//! The attr module: changes of one inode that involve its extended attributes: permissions and owners with their ACLs, rights that writes
//! take away, inline data.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `set` | permissions, owners, times -> the inode, its ACLs in agreement |
//! | `first` | a file that is going to be written -> one that can be |
//! | `xattrs` | extended attributes by name -> set, removed |
//! | `keep` | a small file's contents -> in its inode |
//!
//! Input: inodes. Output: changed inodes. Invariants: those of `inode` and `xattr`. Limits: all of it blocks.

mod first;
mod keep;
mod set;
mod xattrs;

pub(crate) use first::{clear_privileges, clear_rights, prepare_first_write};
pub(crate) use keep::keep_inside;
pub use set::SetAttr;
pub(crate) use set::set_attr;
pub(crate) use xattrs::{remove_xattr, set_xattr};
