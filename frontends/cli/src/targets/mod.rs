//! What a command fills as a whole: a device whose contents it replaces, or a new file.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `replace` | a device whose contents are to be replaced -> the user's permission |
//! | `new_image` | a path -> a device, whose file gets its name when it is whole; a packed file |
//!
//! Input: locators, paths. Output: permission; devices. Invariant: nothing is written before the checks of this module. Limits: each module
//! has its own.

pub(crate) mod new_image;
pub(crate) mod replace;
