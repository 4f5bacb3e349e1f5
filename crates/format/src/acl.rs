//! Access control lists: the short form on disk, and the form that the kernel's interface uses.
//! Input: the value of `system.posix_acl_access` or `..._default`. Output: the other form.
//! Invariant: each direction accepts what the other one produces, and restores it. Limit: whether a list has the required
//! entries is not checked here.
//! Source: the kernel's ext4 documentation, "POSIX ACLs"; man 5 acl; the kernel's uapi header
//! linux/posix_acl_xattr.h (interface of the attribute).

use crate::error::{Corrupt, Result, bad};
use crate::le::{le16, le32};
use crate::num;

mod list;

pub use list::Acl;

/// First word on disk.
const DISK_VERSION: u32 = 1;
/// First word in the interface.
const XATTR_VERSION: u32 = 2;
/// "No id" in the interface's form.
const NO_ID: u32 = u32::MAX;

/// Whether an entry with this tag names a user or group; `None` for unknown tags.
///
/// 1 owner, 2 a user, 4 owning group, 8 a group, 16 mask, 32 others.
const fn has_id(tag: u16) -> Option<bool> {
    match tag {
        0x02 | 0x08 => Some(true),
        0x01 | 0x04 | 0x10 | 0x20 => Some(false),
        _ => None,
    }
}

/// From the disk form to the interface's form.
///
/// # Errors
/// `Acl` for a wrong version, an unknown tag, permissions above 7, or a list that is cut off.
pub fn from_disk(value: &[u8]) -> Result<Vec<u8>> {
    if value.len() < 4 || le32(value, 0) != DISK_VERSION {
        return bad(Corrupt::Acl {
            offset: 0,
            why: "not version 1 of the stored form",
        });
    }
    let mut out = XATTR_VERSION.to_le_bytes().to_vec();
    let mut at = 4usize;
    while at < value.len() {
        let entry = value.get(at..).unwrap_or(&[]);
        let (tag, perm) = (le16(entry, 0), le16(entry, 2));
        let with_id = check_entry(at, tag, perm)?;
        let len = if with_id { 8 } else { 4 };
        if entry.len() < len {
            return bad(Corrupt::Acl {
                offset: offset(at),
                why: "the list is cut off",
            });
        }
        push(
            &mut out,
            tag,
            perm,
            Some(if with_id { le32(entry, 4) } else { NO_ID }),
        );
        at = at.saturating_add(len);
    }
    Ok(out)
}

/// From the interface's form to the disk form.
///
/// # Errors
/// `Acl` as for [`from_disk`].
pub fn to_disk(value: &[u8]) -> Result<Vec<u8>> {
    if value.len() < 4 || le32(value, 0) != XATTR_VERSION {
        return bad(Corrupt::Acl {
            offset: 0,
            why: "not version 2 of the attribute's form",
        });
    }
    let mut out = DISK_VERSION.to_le_bytes().to_vec();
    let list = value.get(4..).unwrap_or(&[]);
    for (n, entry) in list.chunks(8).enumerate() {
        let at = n.saturating_mul(8).saturating_add(4);
        if entry.len() < 8 {
            return bad(Corrupt::Acl {
                offset: offset(at),
                why: "the list is cut off",
            });
        }
        let (tag, perm) = (le16(entry, 0), le16(entry, 2));
        let with_id = check_entry(at, tag, perm)?;
        push(&mut out, tag, perm, with_id.then(|| le32(entry, 4)));
    }
    Ok(out)
}

fn check_entry(at: usize, tag: u16, perm: u16) -> Result<bool> {
    match has_id(tag) {
        Some(with_id) if perm <= 7 => Ok(with_id),
        Some(_) => bad(Corrupt::Acl {
            offset: offset(at),
            why: "permissions above rwx",
        }),
        None => bad(Corrupt::Acl {
            offset: offset(at),
            why: "an unknown kind of entry",
        }),
    }
}

fn push(out: &mut Vec<u8>, tag: u16, perm: u16, id: Option<u32>) {
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&perm.to_le_bytes());
    if let Some(id) = id {
        out.extend_from_slice(&id.to_le_bytes());
    }
}

fn offset(at: usize) -> u32 {
    num::sat32(num::wide(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: &[u8] = &[
        1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 7, 0, 0xE8, 3, 0, 0, 4, 0, 4, 0, 16, 0, 7, 0, 32, 0, 4, 0,
    ];

    #[test]
    fn forms_are_inverse() {
        let shown = from_disk(DISK).unwrap();
        assert_eq!(shown.len(), 4 + 5 * 8);
        assert_eq!(shown[8..12], [0xFF; 4]);
        assert_eq!(to_disk(&shown).unwrap(), DISK);
    }

    #[test]
    fn damage_is_refused() {
        for cut in 1..DISK.len() {
            let ok = from_disk(&DISK[..cut]).is_ok();
            assert_eq!(ok, [4, 8, 16, 20, 24].contains(&cut), "{cut}");
        }
        for at in [0, 4, 6, 8] {
            let mut b = DISK.to_vec();
            b[at] = 0x77;
            assert!(from_disk(&b).is_err(), "{at}");
        }
    }
}
