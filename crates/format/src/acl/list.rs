//! A parsed access control list: the permission bits that it implies, and its changes by permission bits.
//! Input: the interface's or the stored form; permission bits. Output: [`Acl`], the stored form, permission bits. Invariant:
//! the entries are in the one valid order (owner, users, owning group, groups, mask, others), and there is a mask if a user or
//! a group is named. Limit: duplicate ids are accepted, as by the kernel.
//! Source: man 5 acl; man 2 chmod; experiments with setfacl, chmod and new files on the kernel's mount.

use crate::error::{Corrupt, Result, bad};
use crate::le::{le16, le32};
use crate::num;

use super::{DISK_VERSION, push, to_disk};

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const A_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: Option<u32>,
}

/// A checked list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// From the interface's form; none for a list without entries, which means that there is no list.
    ///
    /// # Errors
    /// `Acl` for another version, or a list that a file cannot have.
    pub fn parse(value: &[u8]) -> Result<Option<Self>> {
        if value.is_empty() {
            return Ok(None);
        }
        Self::from_stored(&to_disk(value)?)
    }

    /// From the stored form.
    ///
    /// # Errors
    /// As [`Acl::parse`].
    pub fn from_stored(value: &[u8]) -> Result<Option<Self>> {
        // Checks versions, tags and lengths.
        super::from_disk(value)?;
        let (mut list, mut at) = (Vec::new(), 4usize);
        while let Some(entry) = value.get(at..).filter(|entry| !entry.is_empty()) {
            let (tag, perm) = (le16(entry, 0), le16(entry, 2));
            let named = matches!(tag, USER | A_GROUP);
            let id = named.then(|| le32(entry, 4));
            list.push(Entry { tag, perm, id });
            at = at.saturating_add(if named { 8 } else { 4 });
        }
        if list.is_empty() {
            return Ok(None);
        }
        check_order(&list)?;
        Ok(Some(Self(list)))
    }

    /// The stored form.
    #[must_use]
    pub fn to_stored(&self) -> Vec<u8> {
        let mut out = DISK_VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            push(&mut out, entry.tag, entry.perm, entry.id);
        }
        out
    }

    /// Whether the list says no more than permission bits: only owner, owning group and others.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits of the list; the group's bits are those of the mask, if there is one.
    #[must_use]
    pub fn permissions(&self) -> u16 {
        self.perm(OWNER) << 6 | self.perm(self.group_class()) << 3 | self.perm(OTHERS)
    }

    /// Changes the list to these permission bits (chmod).
    pub fn set_permissions(&mut self, permissions: u16) {
        let group = self.group_class();
        for entry in &mut self.0 {
            if entry.tag == OWNER {
                entry.perm = permissions >> 6 & 7;
            } else if entry.tag == group {
                entry.perm = permissions >> 3 & 7;
            } else if entry.tag == OTHERS {
                entry.perm = permissions & 7;
            }
        }
    }

    /// Removes permissions that the creator did not request; returns the permission bits of the created file.
    pub fn limit_to(&mut self, permissions: u16) -> u16 {
        let limited = self.permissions() & permissions;
        self.set_permissions(limited);
        limited
    }

    fn group_class(&self) -> u16 {
        let masked = self.0.iter().any(|entry| entry.tag == MASK);
        if masked { MASK } else { GROUP }
    }

    fn perm(&self, tag: u16) -> u16 {
        let entry = self.0.iter().find(|entry| entry.tag == tag);
        entry.map_or(0, |entry| entry.perm)
    }
}

fn check_order(list: &[Entry]) -> Result<()> {
    let wrong = |at: usize, why| {
        let offset = num::count32(at.saturating_mul(8).saturating_add(4));
        bad(Corrupt::Acl { offset, why })
    };
    let twice = |e: &Entry, before: &Entry| e.tag == before.tag && e.id.is_none();
    let mut before: Option<&Entry> = None;
    for (at, entry) in list.iter().enumerate() {
        if before.is_some_and(|before| entry.tag < before.tag || twice(entry, before)) {
            return wrong(at, "entries that are not in order");
        }
        before = Some(entry);
    }
    let has = |tag| list.iter().any(|entry| entry.tag == tag);
    if !has(OWNER) || !has(GROUP) || !has(OTHERS) {
        return wrong(0, "no entry for owner, group or others");
    }
    if (has(USER) || has(A_GROUP)) && !has(MASK) {
        return wrong(0, "users or groups without a mask");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            push(&mut out, *tag, *perm, Some(*id));
        }
        out
    }

    const NO: u32 = u32::MAX;

    #[test]
    fn modes_and_lists() {
        let named = [
            (1, 6, NO),
            (2, 7, 1000),
            (4, 5, NO),
            (16, 4, NO),
            (32, 1, NO),
        ];
        let mut acl = Acl::parse(&list(&named)).unwrap().unwrap();
        assert_eq!((acl.permissions(), acl.is_minimal()), (0o641, false));
        assert_eq!(acl.to_stored(), to_disk(&list(&named)).unwrap());
        acl.set_permissions(0o750);
        let after = [
            (1, 7, NO),
            (2, 7, 1000),
            (4, 5, NO),
            (16, 5, NO),
            (32, 0, NO),
        ];
        assert_eq!(acl.to_stored(), to_disk(&list(&after)).unwrap());
        assert_eq!(acl.limit_to(0o644), 0o640);
        assert_eq!(acl.permissions(), 0o640);
        let minimal = Acl::parse(&list(&[(1, 7, NO), (4, 5, NO), (32, 1, NO)])).unwrap();
        let minimal = minimal.unwrap();
        assert_eq!((minimal.permissions(), minimal.is_minimal()), (0o751, true));
    }

    #[test]
    fn what_is_no_list() {
        assert_eq!(Acl::parse(&[]).unwrap(), None);
        assert_eq!(Acl::parse(&list(&[])).unwrap(), None);
        let wrong: [&[(u16, u16, u32)]; 5] = [
            &[(1, 7, NO), (2, 5, 1000), (4, 5, NO), (32, 1, NO)],
            &[
                (2, 5, 1000),
                (1, 7, NO),
                (4, 5, NO),
                (16, 5, NO),
                (32, 1, NO),
            ],
            &[(1, 6, NO), (4, 5, NO)],
            &[(1, 6, NO), (1, 6, NO), (4, 5, NO), (32, 1, NO)],
            &[(1, 6, NO), (4, 5, NO), (32, 1, NO), (64, 1, NO)],
        ];
        for entries in wrong {
            assert!(Acl::parse(&list(entries)).is_err(), "{entries:?}");
        }
        // The kernel accepts duplicate ids.
        let twice = [
            (1, 6, NO),
            (2, 5, 9),
            (2, 4, 9),
            (4, 5, NO),
            (16, 4, NO),
            (32, 1, NO),
        ];
        assert!(Acl::parse(&list(&twice)).unwrap().is_some());
    }
}
