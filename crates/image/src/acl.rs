//! Access control lists as text, as archives have them, and the attribute that they are.
//!
//! Input: `user::rwx,group::r-x,user:1000:rw-,mask::rwx,other::r--`, or lines of it. Output: the value as getxattr(2) gives it. Limits: of
//! `user:name:rwx:1000` the number counts, and a name without one is that of a user of this host. Source: man 5 acl, "text forms"; star(1)
//! for the fourth field.

use crate::error::Error;

/// The version of the attribute's form.
const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// Reads a list.
pub(crate) fn from_text(text: &str) -> Result<Box<[u8]>, Error> {
    let wrong = |part: &str| Error::new(format!("no entry of an access control list: {part}"));
    let mut entries = Vec::new();
    let parts = text.split([',', '\n']).map(str::trim);
    for part in parts.filter(|part| !part.is_empty() && !part.starts_with('#')) {
        let fields: Vec<&str> = part.split(':').collect();
        let (kind, who, perm, number) = match fields[..] {
            [kind, who, perm] => (kind, who, perm, who),
            [kind, who, perm, number] => (kind, who, perm, number),
            _ => return Err(wrong(part)),
        };
        let file = match kind {
            "user" | "u" => "/etc/passwd",
            _ => "/etc/group",
        };
        let id = match who {
            "" => None,
            _ => Some(match number.parse() {
                Ok(id) => id,
                Err(_) => id_of(file, who).ok_or_else(|| {
                    Error::new(format!(
                        "{part}: the owner is named, and {file} does not know the name"
                    ))
                })?,
            }),
        };
        let tag: u16 = match (kind, id) {
            ("user" | "u", None) => 0x01,
            ("user" | "u", Some(_)) => 0x02,
            ("group" | "g", None) => 0x04,
            ("group" | "g", Some(_)) => 0x08,
            ("mask" | "m", None) => 0x10,
            ("other" | "o", None) => 0x20,
            _ => return Err(wrong(part)),
        };
        let mut bits: u16 = 0;
        for letter in perm.chars() {
            bits |= match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return Err(wrong(part)),
            };
        }
        entries.push((tag, id.unwrap_or(NO_ID), bits));
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, bits) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&bits.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(value.into())
}

/// The number that a file of the form of passwd(5) has for a name: the name is its first field, the number its third. Blocks.
#[must_use]
pub fn id_of(file: &str, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

/// A list as text, for an archive. None if the value is none.
pub(crate) fn to_text(value: &[u8]) -> Option<String> {
    let entries = value.strip_prefix(&VERSION.to_le_bytes())?;
    let mut parts = Vec::new();
    for entry in entries.chunks(8) {
        let tag = u16::from_le_bytes(entry.get(0..2)?.try_into().ok()?);
        let bits = u16::from_le_bytes(entry.get(2..4)?.try_into().ok()?);
        let id = u32::from_le_bytes(entry.get(4..8)?.try_into().ok()?);
        let (kind, who) = match tag {
            0x01 => ("user", String::new()),
            0x02 => ("user", id.to_string()),
            0x04 => ("group", String::new()),
            0x08 => ("group", id.to_string()),
            0x10 => ("mask", String::new()),
            0x20 => ("other", String::new()),
            _ => return None,
        };
        let letter = |bit, letter| if bits & bit != 0 { letter } else { '-' };
        let perm: String = [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')]
            .into_iter()
            .collect();
        parts.push(match who.is_empty() {
            true => format!("{kind}::{perm}"),
            false => format!("{kind}:{who}:{perm}:{who}"),
        });
    }
    Some(parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        let text = "user::rwx,user:1000:rw-:1000,group::r-x,mask::rwx,other::r--";
        let value = from_text(text).unwrap();
        assert_eq!(value.len(), 4 + 5 * 8);
        assert_eq!(to_text(&value).unwrap(), text);
        assert_eq!(
            from_text("u::rwx\ng::r-x\n# x\no::---\n").unwrap().len(),
            4 + 3 * 8
        );
        assert!(from_text("user:no body:rwx").is_err());
        let root = from_text("user:root:rwx").unwrap();
        assert_eq!(root, from_text("user:0:rwx").unwrap());
        assert!(from_text("user::rwz").is_err());
        assert!(to_text(&[1, 2, 3]).is_none());
    }
}
