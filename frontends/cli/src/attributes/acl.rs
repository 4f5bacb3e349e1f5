//! Access control lists in words: as getfacl prints them, changes as setfacl takes them.
//!
//! Input: an attribute's value, in the interface's form; words such as `u:1000:rwX` and `d:g:33`. Output: lines; lists from lists; a value. Invariant: a list is
//! kept in the one order that is allowed. Limits: users and groups are numbers; whether a list can be is the engine's to say.
//! Source: man 1 getfacl, man 1 setfacl, man 5 acl; both run beside diorite's commands in tests.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Whom an entry is for, in the order of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Owner,
    User(u32),
    Group,
    OneGroup(u32),
    Mask,
    Others,
}

/// A list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List(BTreeMap<Who, u16>);

/// What an entry becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AclChange {
    /// In the default list.
    pub(crate) default: bool,
    who: Who,
    /// None: it is removed.
    bits: Option<u16>,
    /// May be executed too, if it is a directory or anybody may.
    conditional: bool,
}

/// Changes of one word, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AclWord(pub(crate) Vec<AclChange>);

impl List {
    /// What permission bits say.
    pub(crate) fn of_mode(mode: u16) -> List {
        let bits = |shift: u16| mode >> shift & 7;
        let all = [(Who::Owner, 6), (Who::Group, 3), (Who::Others, 0)];
        List(all.map(|(who, shift)| (who, bits(shift))).into())
    }

    /// From a value that the engine has checked.
    pub(crate) fn of_value(value: &[u8]) -> List {
        let entries = value.get(4..).unwrap_or_default().chunks_exact(8);
        let entry = |raw: &[u8]| {
            let short = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
            let id = u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]);
            Some((Who::of_tag(short(0), id)?, short(2)))
        };
        List(entries.filter_map(entry).collect())
    }

    /// The value of the attribute.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for (who, bits) in &self.0 {
            let (tag, id) = who.tag();
            out.extend(tag.to_le_bytes());
            out.extend(bits.to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Does it say more than permission bits?
    pub(crate) fn is_extended(&self) -> bool {
        self.0.keys().any(|who| !who.is_base())
    }

    /// Its entries, as `setfacl -m` takes them.
    pub(crate) fn entries(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(who, bits)| {
            let shown = rwx(*bits);
            match who {
                Who::Owner => format!("user::{shown}"),
                Who::User(id) => format!("user:{id}:{shown}"),
                Who::Group => format!("group::{shown}"),
                Who::OneGroup(id) => format!("group:{id}:{shown}"),
                Who::Mask => format!("mask::{shown}"),
                Who::Others => format!("other::{shown}"),
            }
        })
    }

    /// Lines, with what stands before each of them; what the mask takes away is told.
    pub(crate) fn lines(&self, before: &str) -> String {
        let mask = self.0.get(&Who::Mask).copied().unwrap_or(7);
        let mut out = String::new();
        for ((who, bits), entry) in self.0.iter().zip(self.entries()) {
            let _ = write!(out, "{before}{entry}");
            if who.is_masked() && bits & mask != *bits {
                let _ = write!(out, "\t#effective:{}", rwx(bits & mask));
            }
            out.push('\n');
        }
        out
    }

    /// The entries that permission bits have too.
    pub(crate) fn base(mut self) -> List {
        self.0.retain(|who, _| who.is_base());
        self
    }

    /// After changes. The mask becomes what all that it is for have together, unless it was changed itself.
    pub(crate) fn changed(
        &self,
        changes: &[&AclChange],
        (is_dir, keeps_mask): (bool, bool),
    ) -> List {
        let (mut new, mut by_hand) = (self.clone(), keeps_mask);
        for change in changes {
            by_hand |= change.who == Who::Mask;
            let executable = is_dir || self.0.values().any(|bits| bits & 1 != 0);
            let more = u16::from(change.conditional && executable);
            match change.bits {
                Some(bits) => new.0.insert(change.who, bits | more),
                None => new.0.remove(&change.who),
            };
        }
        let named = new
            .0
            .keys()
            .any(|who| matches!(who, Who::User(_) | Who::OneGroup(_)));
        let has = new.0.contains_key(&Who::Mask);
        // One that has to be there and is not is made, whatever is asked for.
        let wanted = if by_hand {
            keeps_mask && named && !has
        } else {
            named || has
        };
        if wanted && !changes.is_empty() {
            let masked = new.0.iter().filter(|(who, _)| who.is_masked());
            let all = masked.fold(0, |all, (_, bits)| all | bits);
            new.0.insert(Who::Mask, all);
        }
        new
    }

    /// A default list has what it does not say itself of owner, group and others from the file's own.
    pub(crate) fn filled_from(mut self, own: &List) -> List {
        for (who, bits) in own.0.iter().filter(|(who, _)| who.is_base()) {
            self.0.entry(*who).or_insert(*bits);
        }
        self
    }
}

impl Who {
    fn of_tag(tag: u16, id: u32) -> Option<Who> {
        Some(match tag {
            0x01 => Who::Owner,
            0x02 => Who::User(id),
            0x04 => Who::Group,
            0x08 => Who::OneGroup(id),
            0x10 => Who::Mask,
            0x20 => Who::Others,
            _ => return None,
        })
    }

    fn tag(self) -> (u16, u32) {
        match self {
            Who::Owner => (0x01, u32::MAX),
            Who::User(id) => (0x02, id),
            Who::Group => (0x04, u32::MAX),
            Who::OneGroup(id) => (0x08, id),
            Who::Mask => (0x10, u32::MAX),
            Who::Others => (0x20, u32::MAX),
        }
    }

    fn is_base(self) -> bool {
        matches!(self, Who::Owner | Who::Group | Who::Others)
    }

    fn is_masked(self) -> bool {
        matches!(self, Who::User(_) | Who::Group | Who::OneGroup(_))
    }
}

fn rwx(bits: u16) -> String {
    let letter = |bit: u16, letter| if bits & bit != 0 { letter } else { '-' };
    [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')]
        .iter()
        .collect()
}

impl AclChange {
    /// Is an entry set, not removed?
    pub(crate) fn sets(&self) -> bool {
        self.bits.is_some()
    }
}

impl AclWord {
    /// Entries with permissions: `-m`.
    ///
    /// # Errors
    /// Says what is no entry.
    pub(crate) fn to_set(text: &str) -> Result<AclWord, String> {
        text.split(',')
            .map(|word| entry(word, true))
            .collect::<Result<_, _>>()
            .map(AclWord)
    }

    /// Entries without: `-x`.
    ///
    /// # Errors
    /// Says what is no entry.
    pub(crate) fn to_remove(text: &str) -> Result<AclWord, String> {
        text.split(',')
            .map(|word| entry(word, false))
            .collect::<Result<_, _>>()
            .map(AclWord)
    }
}

fn entry(word: &str, sets: bool) -> Result<AclChange, String> {
    let wrong = || format!("\"{word}\" is no entry, such as u:1000:rwx, g::rx, m::r, d:g:33:rwX");
    let mut parts: Vec<&str> = word.trim().split(':').collect();
    let default = matches!(parts[0], "d" | "default");
    if default {
        parts.remove(0);
    }
    let bits = if sets { parts.pop() } else { None };
    let (kind, id) = match &parts[..] {
        [kind] => (*kind, ""),
        [kind, id] => (*kind, *id),
        [kind, id, ""] if !sets => (*kind, *id),
        _ => return Err(wrong()),
    };
    // Of a user or a group it is always said which.
    let is_one = sets && parts.len() == 1 && !matches!(kind, "o" | "other" | "m" | "mask");
    let who = match (kind, id) {
        _ if is_one => return Err(wrong()),
        ("u" | "user", "") => Who::Owner,
        ("u" | "user", id) => Who::User(number(id)?),
        ("g" | "group", "") => Who::Group,
        ("g" | "group", id) => Who::OneGroup(number(id)?),
        ("m" | "mask", "") => Who::Mask,
        ("o" | "other", "") => Who::Others,
        _ => return Err(wrong()),
    };
    let bits = bits
        .map(|bits| permissions(bits).ok_or_else(wrong))
        .transpose()?;
    Ok(AclChange {
        default,
        who,
        bits: bits.map(|(bits, _)| bits),
        conditional: bits.is_some_and(|(_, conditional)| conditional),
    })
}

/// The last number stands for none.
fn number(id: &str) -> Result<u32, String> {
    let number = id.parse().ok().filter(|id| *id < u32::MAX);
    number.ok_or_else(|| format!("invalid user or group: {id}: they are given as numbers"))
}

fn permissions(text: &str) -> Option<(u16, bool)> {
    if let Some(digit) = text.parse().ok().filter(|_| text.len() == 1) {
        return (digit < 8).then_some((digit, false));
    }
    let (mut bits, mut conditional) = (0, false);
    for letter in text.chars() {
        match letter {
            'r' => bits |= 4,
            'w' => bits |= 2,
            'x' => bits |= 1,
            'X' => conditional = true,
            '-' => {}
            _ => return None,
        }
    }
    (!text.is_empty()).then_some((bits, conditional))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(list: &List, set: &str) -> List {
        let word = AclWord::to_set(set).expect("one that is right");
        let changes: Vec<&AclChange> = word.0.iter().collect();
        list.changed(&changes, (false, false))
    }

    #[test]
    fn lists_and_values() {
        let list = after(&List::of_mode(0o640), "u:1000:rwX,g:7:5,m:r");
        let said = "user::rw-\nuser:1000:rw-\t#effective:r--\ngroup::r--\ngroup:7:r-x\t#effective:r--\nmask::r--\nother::---\n";
        assert_eq!(list.lines(""), said);
        assert_eq!(List::of_value(&list.value()), list);
        assert_eq!(
            list.clone().base().lines("default:"),
            "default:user::rw-\ndefault:group::r--\ndefault:other::---\n"
        );
        let more = after(&list, "g::x");
        assert!(more.lines("").contains("mask::rwx\n"));
        let filled = after(&List::default().filled_from(&list), "u:5:r");
        assert_eq!(
            filled.lines(""),
            "user::rw-\nuser:5:r--\ngroup::r--\nmask::r--\nother::---\n"
        );
    }

    #[test]
    fn what_is_no_entry() {
        for wrong in [
            "",
            "u",
            "u:7",
            "x:7:r",
            "u:root:r",
            "u:7:q",
            "u:7:8",
            "m:7:r",
            "d:",
            "u:4294967295:r",
            "u:7:r,",
        ] {
            assert!(AclWord::to_set(wrong).is_err(), "{wrong}");
        }
        for right in ["u:7", "g:7:", "m", "d:u:7,g:8", "mask::"] {
            assert!(AclWord::to_remove(right).is_ok(), "{right}");
        }
    }
}
