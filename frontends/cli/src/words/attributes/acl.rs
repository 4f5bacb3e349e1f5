//! Access control lists as text: the form that getfacl prints, and the changes that setfacl takes.
//!
//! Input: the value of an attribute in the form of the system calls; words such as `u:1000:rwX` and `d:g:33`. Output: lines;
//! changed lists; a value. Invariant: a list is kept in the only order that is valid. Limits: users and groups are numbers; the
//! engine decides whether a list is valid. Source: man 1 getfacl, man 1 setfacl, man 5 acl; the tests compare both programs
//! with diorite's commands.

use std::collections::BTreeMap;
use std::fmt::Write;

/// To whom an entry applies, in the order of a valid list.
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

/// A change of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AclChange {
    /// The entry is in the default list, not in the file's own.
    pub(crate) default: bool,
    who: Who,
    /// The new permissions; none if the entry is removed.
    bits: Option<u16>,
    /// `X`: adds execute permission if the file is a directory or has an execute bit already.
    conditional: bool,
}

/// The changes of one word of the command line, which separates them with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AclWord(pub(crate) Vec<AclChange>);

impl List {
    /// The list that has the same meaning as these permission bits.
    pub(crate) fn of_mode(mode: u16) -> List {
        let bits = |shift: u16| mode >> shift & 7;
        let all = [(Who::Owner, 6), (Who::Group, 3), (Who::Others, 0)];
        List(all.map(|(who, shift)| (who, bits(shift))).into())
    }

    /// Parses a value that the engine has checked.
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

    /// Whether it has more entries than the permission bits can hold.
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

    /// The lines of the list, each with `before` in front. An entry that the mask restricts shows its effective permissions.
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

    /// Only the entries that the permission bits can hold: owner, group and others.
    pub(crate) fn base(mut self) -> List {
        self.0.retain(|who, _| who.is_base());
        self
    }

    /// The list after changes. The mask becomes the union of all entries that it applies to, unless a change sets the mask
    /// itself.
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
        // A missing mask that the list must have is added even with `keeps_mask` (option -n).
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

    /// Adds the entries for owner, group and others that the default list lacks, from the file's own list.
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
    /// Whether the change sets an entry; otherwise it removes one.
    pub(crate) fn sets(&self) -> bool {
        self.bits.is_some()
    }
}

impl AclWord {
    /// Parses entries with permissions: option `-m`.
    ///
    /// # Errors
    /// Names the word that is not a valid entry.
    pub(crate) fn to_set(text: &str) -> Result<AclWord, String> {
        text.split(',')
            .map(|word| entry(word, true))
            .collect::<Result<_, _>>()
            .map(AclWord)
    }

    /// Parses entries without permissions: option `-x`.
    ///
    /// # Errors
    /// Names the word that is not a valid entry.
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
    // `u` and `g` need their field for the id, even if it is empty.
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

/// `u32::MAX` is not an id.
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
