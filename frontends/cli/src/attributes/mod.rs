//! Words of `getfattr`, `setfattr`, `getfacl`, `setfacl` and `chattr`: values of attributes, patterns of their names, changes of flags.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `value` | bytes -> text, hexadecimal, base64, and back |
//! | `pattern` | an expression -> does a name match it |
//! | `acl` | an access control list -> lines; `u:7:rw` -> a list from a list |
//! | `flags` | `+i`, `-dA`, `=` -> flags from flags |
//!
//! Input: words of the command line, bytes of an image. Output: the other. Invariant: what is printed of a value can be set again. Limits: those of
//! each file.

mod acl;
mod flags;
mod pattern;
mod value;

pub(crate) use acl::{AclChange, AclWord, List as AclList};
pub(crate) use flags::{FlagChange, FlagWord};
pub(crate) use pattern::Pattern;
pub(crate) use value::{Encoding, Value, encode, parse_value};
