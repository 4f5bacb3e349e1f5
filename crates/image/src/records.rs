//! What PAX records say of an entry.
//!
//! Input: keys and values. Output: [`Records`]. Invariants: of two records for one thing the later one counts; values are not trusted.
//! Limits: those of the fields. Source: POSIX pax; the GNU tar manual, "Storing Sparse Files"; star(1) for SCHILY keywords; what GNU tar
//! writes for names of attributes and into `RHT.security.selinux`, and what bsdtar writes into `LIBARCHIVE.xattr`.

use crate::acl;
use crate::assembly::shown;
use crate::base64::base64;
use crate::error::{Error, Place};
use crate::tape::{Entry, MOST_PARTS};
use diorite::Timestamp;
use diorite::mkfs::Attribute;

/// Extended attributes of one file, at most: as many as the largest block of attributes holds.
const MOST_ATTRIBUTES: usize = 4096;

/// What PAX records say of an entry.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) mtime: Option<Timestamp>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) sparse: Sparse,
}

/// The formats of sparse files in PAX records.
#[derive(Default)]
pub(crate) struct Sparse {
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) real_len: Option<u64>,
    pub(crate) major: Option<u64>,
    pub(crate) minor: Option<u64>,
    /// Offsets and lengths, of formats 0.0 and 0.1.
    pub(crate) map: Vec<u64>,
}

impl Records {
    /// Sets an attribute; what comes later counts.
    fn set(&mut self, attribute: Attribute) -> Result<(), Error> {
        self.attributes.retain(|(known, _)| *known != attribute.0);
        if self.attributes.len() == MOST_ATTRIBUTES {
            return Err(Error::new(format!(
                "more than {MOST_ATTRIBUTES} extended attributes"
            )));
        }
        self.attributes.push(attribute);
        Ok(())
    }
}

/// Those of an entry.
pub(crate) fn records(entry: &Entry) -> Result<Records, Error> {
    let mut all = Records::default();
    for (key, value) in entry.records.iter() {
        one_record(&mut all, key, value).at(shown(key))?;
    }
    Ok(all)
}

fn one_record(all: &mut Records, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let number = || -> Result<u64, Error> {
        let text = std::str::from_utf8(value).ok();
        text.and_then(|t| t.parse().ok())
            .ok_or_else(|| Error::new(format!("no number: {}", shown(value))))
    };
    let list = |name: &[u8]| -> Result<Attribute, Error> {
        Ok((name.into(), acl::from_text(&shown(value))?))
    };
    match key {
        b"mtime" => all.mtime = Some(time(value)?),
        b"uid" => all.uid = Some(u32::try_from(number()?).map_err(|_| Error::new("out of range"))?),
        b"gid" => all.gid = Some(u32::try_from(number()?).map_err(|_| Error::new("out of range"))?),
        b"SCHILY.acl.access" => all.set(list(b"system.posix_acl_access")?)?,
        b"SCHILY.acl.default" => all.set(list(b"system.posix_acl_default")?)?,
        b"RHT.security.selinux" => {
            // The record has the text, the attribute a zero behind it.
            let text = value.strip_suffix(b"\0").unwrap_or(value);
            let label = [text, b"\0"].concat();
            all.set((b"security.selinux"[..].into(), label.into()))?;
        }
        b"GNU.sparse.major" => all.sparse.major = Some(number()?),
        b"GNU.sparse.minor" => all.sparse.minor = Some(number()?),
        b"GNU.sparse.name" => all.sparse.name = Some(value.to_vec()),
        b"GNU.sparse.realsize" | b"GNU.sparse.size" => all.sparse.real_len = Some(number()?),
        b"GNU.sparse.offset" | b"GNU.sparse.numbytes" if all.sparse.map.len() < 2 * MOST_PARTS => {
            all.sparse.map.push(number()?);
        }
        b"GNU.sparse.map" => {
            for part in value.split(|byte| *byte == b',').take(2 * MOST_PARTS) {
                let text = std::str::from_utf8(part).ok().and_then(|t| t.parse().ok());
                all.sparse
                    .map
                    .push(text.ok_or_else(|| Error::new("no map of a sparse file"))?);
            }
        }
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                all.set((attribute_name(name).into(), value.into()))?;
            } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                let value = base64(value).ok_or_else(|| Error::new("no base64"))?;
                all.set((unescaped(name).into(), value.into()))?;
            }
        }
    }
    Ok(())
}

/// The name of an attribute: in the key of a record GNU tar writes `%25` for `%` and `%3D` for `=`.
fn attribute_name(mut key: &[u8]) -> Vec<u8> {
    let mut name = Vec::new();
    while let [first, rest @ ..] = key {
        let (byte, rest) = match key {
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            _ => (*first, rest),
        };
        name.push(byte);
        key = rest;
    }
    name
}

/// The name of an attribute as bsdtar writes it: any byte may be `%` and two digits.
fn unescaped(mut key: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut name = Vec::new();
    while let [first, rest @ ..] = key {
        let escaped = match (first, rest) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match escaped {
            // Two digits of four bits.
            Some((high, low)) => name.push((high << 4 | low) as u8),
            None => name.push(*first),
        }
        key = &rest[if escaped.is_some() { 2 } else { 0 }..];
    }
    name
}

/// `1234.5678`, also negative.
fn time(value: &[u8]) -> Result<Timestamp, Error> {
    let wrong = || Error::new(format!("no time: {}", shown(value)));
    let text = std::str::from_utf8(value).map_err(|_| wrong())?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().map_err(|_| wrong())?;
    let digits: String = part.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().map_err(|_| wrong())?;
    Ok(match (whole.starts_with('-'), nanos) {
        (true, 1..) => Timestamp {
            secs: secs.saturating_sub(1),
            nanos: 1_000_000_000 - nanos,
        },
        _ => Timestamp { secs, nanos },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let of = |text: &str| time(text.as_bytes()).map(|t| (t.secs, t.nanos));
        assert_eq!(of("12").unwrap(), (12, 0));
        assert_eq!(of("12.5").unwrap(), (12, 500_000_000));
        assert_eq!(of("-1.25").unwrap(), (-2, 750_000_000));
        assert!(of("x").is_err() && of("1.x").is_err());
    }

    #[test]
    fn attributes_of_bsdtar_are_read() {
        assert_eq!(unescaped(b"user.a%3D%25b%").as_slice(), b"user.a=%b%");
    }
}
