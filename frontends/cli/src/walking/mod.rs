//! Walks over what an image holds: trees of directories, paths, extents of files.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `tree` | a path -> the file there and all files below it, one after the other |
//! | `paths` | paths in an image -> other paths, inodes; a function called for each |
//! | `extents` | a file -> its extents, in windows |
//!
//! Input: an open volume, paths, files. Output: visits, extents. Invariant: a corrupt image makes no walk endless and no memory grow
//! without bound. Limits: each module has its own.

pub(crate) mod extents;
pub(crate) mod paths;
pub(crate) mod tree;
