//! The text forms that `getfattr`, `setfattr`, `getfacl`, `setfacl` and `chattr` print and parse: values of attributes,
//! patterns of their names, access control lists, changes of flags.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `value` | bytes -> text, hexadecimal, base64, and back |
//! | `pattern` | a regular expression -> whether a name matches it |
//! | `acl` | an access control list -> lines; an entry such as `u:7:rw` -> a changed list |
//! | `flags` | `+i`, `-dA`, `=` -> changed flags |
//!
//! Input: words of the command line, bytes of an image. Output: each is converted into the other. Invariant: a printed value
//! can be set again. Limits: those of each file.

mod acl;
mod flags;
mod pattern;
mod value;

pub(crate) use acl::{AclChange, AclWord, List as AclList};
pub(crate) use flags::{FlagChange, FlagWord};
pub(crate) use pattern::Pattern;
pub(crate) use value::{Encoding, Value, encode, parse_value};
