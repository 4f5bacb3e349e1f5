//! UUIDs: as text, random, or from a text; and the time of a file system that is made.
//!
//! Input: words, random bytes of the host, the environment. Output: 16 bytes; seconds. Invariant: the same seed gives the same bytes on
//! every host. Limits: none of its own. Source: RFC 9562 (versions 4, 7 and 8); https://reproducible-builds.org/specs/source-date-epoch.

use sha2::{Digest, Sha256};
use std::time::{SystemTime, UNIX_EPOCH};

/// UUIDs of a new file system, and when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) uuid: [u8; 16],
    pub(crate) hash_seed: [u8; 16],
    pub(crate) time: i64,
}

impl Identity {
    /// From a text, or random.
    pub(crate) fn new(seed: Option<&str>) -> Result<Identity, String> {
        let (uuid, hash_seed) = match seed {
            Some(text) => (derived("uuid", text), derived("hash seed", text)),
            None => (random()?, random()?),
        };
        let time = now()?;
        Ok(Identity {
            uuid,
            hash_seed,
            time,
        })
    }
}

/// Sets version and variant.
fn marked(mut bytes: [u8; 16], version: u8) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0F | version << 4;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    bytes
}

/// For one purpose, from a text.
pub(crate) fn derived(what: &str, text: &str) -> [u8; 16] {
    let sum = Sha256::new()
        .chain_update(what)
        .chain_update([0])
        .chain_update(text)
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&sum[..16]);
    marked(bytes, 8)
}

pub(crate) fn random() -> Result<[u8; 16], String> {
    let mut bytes = [0; 16];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(16) => Ok(marked(bytes, 4)),
        Ok(n) => Err(format!("the host gave {n} random bytes of 16")),
        Err(errno) => Err(format!("no random bytes: {errno}")),
    }
}

/// A UUID as given with -U: text, or clear, random, time.
pub(crate) fn uuid(word: &str) -> Result<[u8; 16], String> {
    match word {
        "clear" | "null" => Ok([0; 16]),
        "random" => random(),
        "time" => {
            let since = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let mut bytes = random()?;
            bytes[..6].copy_from_slice(&(since.as_millis() as u64).to_be_bytes()[2..]);
            Ok(marked(bytes, 7))
        }
        text => parse_uuid(text),
    }
}

/// `01234567-89ab-cdef-0123-456789abcdef`.
pub(crate) fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("could not parse UUID: {text}");
    let shape = text.len() == 36
        && text.bytes().enumerate().all(|(n, byte)| match n {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    let mut bytes = [0; 16];
    if !shape {
        return Err(wrong());
    }
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

/// Names of variables that say when something is made.
const TIMES: [&str; 2] = [EPOCH, "E2FSPROGS_FAKE_TIME"];
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Whether the environment says when something is made so that nothing in it is newer. The other variable sets the clock alone.
pub(crate) fn is_fixed() -> bool {
    std::env::var_os(EPOCH).is_some()
}

/// Seconds since 1970: those of SOURCE_DATE_EPOCH, if it is set.
pub(crate) fn now() -> Result<i64, String> {
    for name in TIMES {
        if let Ok(text) = std::env::var(name) {
            return text
                .parse()
                .map_err(|_| format!("{name}={text}: no number of seconds"));
        }
    }
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(since.as_secs() as i64)
}

/// What multiple-mount protection names: this host, and an image. Empty if what is made is to be the same everywhere.
pub(crate) fn mmp_names(img: &str) -> (String, String) {
    if is_fixed() {
        return Default::default();
    }
    let node = rustix::system::uname();
    let node = node.nodename().to_string_lossy().into_owned();
    (node, img.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read() {
        let text = "01234567-89ab-cdef-0123-456789ABCDEF";
        let bytes = parse_uuid(text).expect("a UUID");
        assert_eq!((bytes[0], bytes[7], bytes[15]), (0x01, 0xef, 0xef));
        for wrong in [
            "",
            "0123456789abcdef",
            &text[1..],
            "01234567-89ab-cdef-0123-456789ABCDEÖ",
        ] {
            assert!(parse_uuid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_again() {
        assert_eq!(derived("uuid", "x"), derived("uuid", "x"));
        assert_ne!(derived("uuid", "x"), derived("hash seed", "x"));
        assert_ne!(derived("uuid", "x"), derived("uuid", "y"));
    }
}
