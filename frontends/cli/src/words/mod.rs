//! Words of the command line and of its output: how sizes, times, permissions, owners, names and attributes are written.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `sizes` | coreutils' notation for sizes -> a new size |
//! | `modes` | chmod's notation for permissions -> new permissions |
//! | `owners` | `UID:GID` -> a user and a group |
//! | `times` | a time -> text, and back |
//! | `names` | a name of an image -> text for a terminal, a pipe or JSON |
//! | `inode_fields` | an inode -> its mode as text, its type as a word, its fields as JSON |
//! | `directives` | letters of a FORMAT -> what they print, and their help |
//! | `template` | the FORMAT of stat -c or find -printf, and values -> text |
//! | `attributes` | attribute values, patterns, ACLs and flags as text -> their bytes, and back |
//!
//! Input: words of the user; numbers and bytes of an image. Output: values; text. Invariant: nothing is opened or printed here. Limits:
//! each module has its own.

pub(crate) mod attributes;
pub(crate) mod directives;
pub(crate) mod inode_fields;
pub(crate) mod modes;
pub(crate) mod names;
pub(crate) mod owners;
pub(crate) mod sizes;
pub(crate) mod template;
pub(crate) mod times;
