//! The words of mke2fs's lists: extended options (-E) and those of the journal (-J).
//!
//! Input: one word of a list. Output: options of a new file system. Invariant: a word that is not known is refused by name. Limits: as of
//! [`super`]. Source: man 8 mke2fs.

use super::super::config::is_on;
use super::super::identity::parse_uuid;
use super::{Beside, MIB, feature, revision};
use crate::words::owners::Owner;
use diorite::mkfs::{MkfsOptions, NewJournal, QuotaTypes};
use diorite_block::locator::parse_size;
use diorite_format::Features;

/// A number as strtoul(3) reads it: decimal, octal or hexadecimal, negative ones from above.
fn wrapping(name: &str, text: &str) -> Result<u64, String> {
    let (digits, is_negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let number = match (digits.strip_prefix("0x"), digits) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, "") => Ok(0),
        (None, digits) if digits.starts_with('0') => u64::from_str_radix(digits, 8),
        (None, digits) => digits.parse(),
    };
    let number = number.map_err(|_| format!("Invalid {name} parameter: {text}"))?;
    Ok(match is_negative {
        true => number.wrapping_neg(),
        false => number,
    })
}

pub(super) fn extended(
    options: &mut MkfsOptions,
    beside: &mut Beside,
    word: &str,
) -> Result<(), String> {
    let (name, value) = word
        .split_once('=')
        .map_or((word, None), |(n, v)| (n, Some(v)));
    let needed = || value.ok_or_else(|| format!("-E {name} needs a value: {name}=..."));
    let number = || -> Result<u64, String> {
        let text = needed()?;
        text.parse()
            .map_err(|_| format!("Invalid {name} parameter: {text}"))
    };
    let narrow = || -> Result<u32, String> {
        let n = number()?;
        u32::try_from(n).map_err(|_| format!("Invalid {name} parameter: {n}"))
    };
    let on = value.is_none_or(is_on);
    match name {
        "root_owner" => {
            options.root_owner = match value {
                None => (
                    rustix::process::getuid().as_raw(),
                    rustix::process::getgid().as_raw(),
                ),
                Some(text) => {
                    let owner = Owner::parse(text)?;
                    let both = owner.uid.zip(owner.gid);
                    both.ok_or_else(|| format!("Invalid root_owner: '{text}'"))?
                }
            };
        }
        "root_perms" => {
            let text = needed()?;
            let mode = u16::from_str_radix(text, 8)
                .ok()
                .filter(|mode| *mode <= 0o7777);
            options.root_mode = mode.ok_or_else(|| format!("Invalid root_perms: '{text}'"))?;
        }
        "root_selinux" => beside.root_label = Some(needed()?.to_owned()),
        "desc_size" | "desc-size" => {
            let size = narrow()?.try_into();
            options.desc_size = Some(size.map_err(|_| format!("Invalid {word}"))?);
        }
        "revision" => match narrow()? {
            number @ 0..=1 => revision(options, number),
            number => return Err(format!("Invalid revision parameter: {number}")),
        },
        "hash_seed" => options.hash_seed = parse_uuid(needed()?)?,
        "offset" => beside.offset = parse_size(needed()?)?,
        "resize" => options.resize_limit = Some(number()?),
        // As many bits as the fields have.
        "stride" => options.raid_stride = wrapping(name, needed()?)? as u16,
        "stripe-width" | "stripe_width" => {
            options.raid_stripe_width = wrapping(name, needed()?)? as u32;
        }
        "num_backup_sb" => {
            options.backups = narrow()?;
            if options.backups > 2 {
                return Err(format!("Invalid {word}: 0 to 2 copies can be"));
            }
        }
        "packed_meta_blocks" => options.packed_meta_blocks = on,
        "lazy_itable_init" => options.zero_tables = !on,
        // The journal is always read as zeros, and what the device has as holes is known to be zeros.
        "lazy_journal_init" | "assume_storage_prezeroed" => {}
        "orphan_file_size" => {
            let blocks =
                parse_size(needed()?)? / u64::from(options.block_size.unwrap_or(4096).max(1));
            let few = u32::try_from(blocks).ok();
            options.orphan_file_blocks = Some(few.ok_or_else(|| format!("Invalid {word}"))?);
        }
        "mmp_update_interval" => match narrow()? {
            0 => {}
            n @ 1..300 => options.mmp_interval = n as u16,
            n => return Err(format!("Invalid mmp_update_interval: {n}")),
        },
        "encoding" => {
            options.encoding.0 = match needed()? {
                "utf8" | "utf8-12.1" => 1,
                text => return Err(format!("Invalid encoding: {text}")),
            };
            feature(&mut options.features, "casefold")?;
        }
        "encoding_flags" => match needed()? {
            "strict" => options.encoding.1 |= 1,
            "nostrict" => options.encoding.1 &= !1,
            text => return Err(format!("Invalid encoding flag: {text}")),
        },
        "quotatype" => {
            options.quota_types = Some(quota_types(&mut options.features, needed()?)?);
        }
        "test_fs" => options.is_test = true,
        "discard" => options.discard = true,
        "nodiscard" => options.discard = false,
        "no_copy_xattrs" => beside.no_xattrs = true,
        _ => return Err(format!("Bad option(s) specified: {word}")),
    }
    Ok(())
}

pub(super) fn journal(
    options: &mut MkfsOptions,
    beside: &mut Beside,
    word: &str,
    block: u32,
) -> Result<(), String> {
    let wrong = || format!("Bad journal options specified: {word}");
    let (name, value) = word.split_once('=').ok_or_else(wrong)?;
    let number = || value.parse::<u64>().map_err(|_| wrong());
    let blocks = |bytes: u64| u32::try_from(bytes / u64::from(block)).map_err(|_| wrong());
    match name {
        "size" => options.journal = NewJournal::Blocks(blocks(number()?.saturating_mul(MIB))?),
        "fast_commit_size" => {
            options.fast_commit_blocks = Some(blocks(number()?.saturating_mul(1024))?)
        }
        "location" => {
            // A number is one of blocks, a size an offset.
            let at = number();
            let at = at.or_else(|_| parse_size(value).map(|bytes| bytes / u64::from(block)));
            options.journal_at = Some(at.map_err(|_| wrong())?);
        }
        "device" if !value.is_empty() => beside.journal_device = Some(value.to_owned()),
        _ => return Err(wrong()),
    }
    Ok(())
}

fn quota_types(features: &mut Features, list: &str) -> Result<QuotaTypes, String> {
    let mut types = [false; 3];
    for word in list.split(':') {
        let at = ["usrquota", "grpquota", "prjquota"]
            .iter()
            .position(|known| *known == word);
        let at = at.ok_or_else(|| format!("Invalid quotatype: {word}"))?;
        types[at] = true;
    }
    if types[2] {
        feature(features, "project")?;
    }
    Ok(types)
}
