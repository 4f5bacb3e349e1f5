//! The words of tune2fs as changes of a superblock.
//!
//! Input: the command line; the superblock, for what depends on it. Output: [`Change`], [`Tuning`]. Invariant: a word that is not known, or
//! that changes more than the superblock, is refused by name. Limits: names of users and groups are those of /etc/passwd and /etc/group.
//! Source: man 8 tune2fs; answers to wrong words by experiment with tune2fs 1.47.

use crate::args::TuneArgs;
use crate::cmd::mkfs::{identity, words};
use crate::times;
use diorite::Tuning;
use diorite_format::Superblock;
use diorite_format::features::{Features, Incompat, RoCompat};
use diorite_image::id_of;
use rustix::rand::{GetRandomFlags, getrandom};

/// `s_default_mount_opts`: the data mode.
const DATA_MODE: u32 = 0x60;
const DAY: u64 = 86_400;
/// The largest count of mounts that tune2fs accepts.
const MOST_MOUNTS: u16 = 16_000;
/// Bytes of the directory of the last mount.
const LAST_MOUNTED: usize = 64;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Change {
    tuning: Tuning,
    /// Percentage of reserved blocks.
    reserved: Option<f64>,
    /// Bits of default mount options to set and to clear, in order.
    mount_bits: Vec<(u32, bool)>,
}

/// Reads the command line.
pub(super) fn change(args: &TuneArgs) -> Result<Change, String> {
    refuse_others(args)?;
    let mut tuning = Tuning {
        reserved_blocks: args.reserved_blocks,
        label: args.label.as_deref().map(words::cut),
        last_mounted: args.last_mounted.as_deref().map(words::cut),
        uuid: read(&args.uuid, identity::uuid)?,
        errors_behavior: read(&args.errors, words::behaviour)?,
        reserved_uid: read(&args.user, |user| id(user, "user", "/etc/passwd"))?,
        reserved_gid: read(&args.group, |group| id(group, "group", "/etc/group"))?,
        max_mount_count: read(&args.max_mounts, max_mounts)?,
        mount_count: args.mounts.map(mounts).transpose()?,
        check_interval: read(&args.interval, interval)?,
        check_time: read(&args.checked, time)?,
        ..Tuning::default()
    };
    for word in listed(&args.features) {
        switch(&mut tuning, word)?;
    }
    for word in args.extended.iter().filter(|word| !word.is_empty()) {
        extended(&mut tuning, word)?;
    }
    if let Some(percent) = args.reserved_percent.filter(|p| !(0.0..=50.0).contains(p)) {
        return Err(format!("bad reserved block ratio - {percent}"));
    }
    let mount_bits = listed(&args.mount_bits).map(mount_bit);
    Ok(Change {
        tuning,
        reserved: args.reserved_percent,
        mount_bits: mount_bits.collect::<Result<_, _>>()?,
    })
}

/// An option's value, if it was given.
fn read<T>(
    given: &Option<String>,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    given.as_deref().map(read).transpose()
}

impl Change {
    pub(super) fn is_nothing(&self) -> bool {
        *self == Change::default()
    }

    /// The change without 64bit, and whether that is switched on or off.
    pub(super) fn without_width(mut self) -> (Change, Option<bool>) {
        let (set, clear) = (&mut self.tuning.set, &mut self.tuning.clear);
        let has = |features: &Features| features.incompat.has(Incompat::BIT64);
        let width = has(set).then_some(true).or(has(clear).then_some(false));
        set.incompat = set.incompat.without(Incompat::BIT64);
        clear.incompat = clear.incompat.without(Incompat::BIT64);
        (self, width)
    }

    /// Whether it takes the mark off that forbids writing.
    pub(super) fn clears_read_only(&self) -> bool {
        self.tuning.clear.ro_compat.has(RoCompat::READONLY)
    }

    /// The change of this superblock.
    pub(super) fn of(&self, sb: &Superblock) -> Tuning {
        let mut tuning = self.tuning.clone();
        if let Some(percent) = self.reserved {
            let blocks = sb.geometry().blocks_count() as f64 * percent / 100.0;
            tuning.reserved_blocks = Some(blocks as u64);
        }
        if !self.mount_bits.is_empty() {
            let all = sb.info().default_mount_opts;
            tuning.default_mount_opts = Some(self.mount_bits.iter().fold(all, with_bit));
        }
        tuning
    }
}

/// One data mode replaces another; each of them, taken away, takes the present one away.
fn with_bit(all: u32, (bit, on): &(u32, bool)) -> u32 {
    let mask = match bit & DATA_MODE {
        0 => *bit,
        _ => DATA_MODE,
    };
    if *on { all & !mask | bit } else { all & !mask }
}

/// Options of tune2fs that change more than the superblock.
fn refuse_others(args: &TuneArgs) -> Result<(), String> {
    for (given, name) in [
        (args.make_journal || args.journal_options.is_some(), "j"),
        (args.inode_size.is_some(), "I"),
        (args.quota.is_some(), "Q"),
        (args.undo.is_some(), "z"),
    ] {
        if given {
            return Err(format!(
                "-{name} changes more than the superblock: 'tune2fs -{name}'"
            ));
        }
    }
    Ok(())
}

/// The words of a list, which a space divides, too.
fn listed(all: &[String]) -> impl Iterator<Item = &str> {
    let words = all.iter().flat_map(|word| word.split(' '));
    words.filter(|word| !word.is_empty())
}

/// Fields that have room for less than was said: as tune2fs, the command takes the beginning and warns.
pub(super) fn warnings(args: &TuneArgs) -> Vec<String> {
    let all = [
        words::too_long(args.label.as_deref(), "label", words::LABEL),
        words::too_long(args.last_mounted.as_deref(), "directory", LAST_MOUNTED),
    ];
    all.into_iter().flatten().collect()
}

/// A number, or a name in a file of the form of passwd(5).
fn id(text: &str, what: &str, file: &str) -> Result<u32, String> {
    // As C reads numbers: 0x10 is hexadecimal, 010 octal.
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None if text.starts_with('0') => u32::from_str_radix(text, 8),
        None => text.parse(),
    };
    if let Ok(number) = number {
        return Ok(number);
    }
    match id_of(file, text) {
        Some(number) => Ok(number),
        None if text == "root" => Ok(0),
        None => Err(format!(
            "bad {what} name - {text}: no number, and not in {file}"
        )),
    }
}

fn max_mounts(text: &str) -> Result<i16, String> {
    if text == "random" {
        let mut byte = [0];
        getrandom(&mut byte, GetRandomFlags::empty())
            .map_err(|errno| format!("no random bytes: {errno}"))?;
        return Ok(20 + i16::from(byte[0] % 21));
    }
    match text.parse::<i16>() {
        Ok(0) => Ok(-1),
        Ok(count) if count.unsigned_abs() <= MOST_MOUNTS => Ok(count),
        _ => Err(format!("bad mounts count - {text}")),
    }
}

/// As the field has it: -1 is 65535.
fn mounts(count: i32) -> Result<u16, String> {
    let wrong = |_| format!("bad mounts count - {count}");
    match count {
        0.. if count > i32::from(MOST_MOUNTS) => Err(format!("bad mounts count - {count}")),
        0.. => u16::try_from(count).map_err(wrong),
        _ => i16::try_from(count).map(i16::cast_unsigned).map_err(wrong),
    }
}

fn interval(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let wrong = || format!("bad interval - {text}");
    let unit = match &text[digits.len()..] {
        "" | "d" => DAY,
        "s" => 1,
        "w" => 7 * DAY,
        "m" => 30 * DAY,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = count.saturating_mul(unit);
    u32::try_from(seconds)
        .map_err(|_| format!("interval between checks is too big ({seconds} seconds)"))
}

/// `now`, or `YYYYMMDD[HH[MM[SS]]]` in local time.
fn time(text: &str) -> Result<i64, String> {
    if text == "now" {
        return identity::now();
    }
    let wrong = || format!("could not parse date/time specifier: {text}");
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    if !digits || !matches!(text.len(), 8 | 10 | 12 | 14) {
        return Err(wrong());
    }
    let whole = format!("{text:0<14}");
    let stamp = format!("{}.{}", &whole[..12], &whole[12..]);
    let parsed = times::parse_stamp(&stamp);
    parsed.map(|at| at.secs).map_err(|_| wrong())
}

fn mount_bit(word: &str) -> Result<(u32, bool), String> {
    let (name, on) = match word.strip_prefix('^') {
        Some(name) => (name, false),
        None => (word, true),
    };
    let known = words::MOUNT_OPTS.iter().find(|(known, _)| *known == name);
    let (_, bit) = known.ok_or_else(|| format!("Invalid mount option set: {word}"))?;
    Ok((*bit, on))
}

/// A feature to set or, with ^, to clear; the last word about it counts.
fn switch(tuning: &mut Tuning, word: &str) -> Result<(), String> {
    let (name, on) = match word.strip_prefix('^') {
        Some(name) => (name, false),
        None => (word.strip_prefix('+').unwrap_or(word), true),
    };
    let mut one = Features::default();
    let known = words::feature(&mut one, &name.to_lowercase());
    if known.is_err() || one == Features::default() {
        return Err(format!("Invalid filesystem option set: {word}"));
    }
    let Tuning { set, clear, .. } = tuning;
    let (to, from) = if on { (set, clear) } else { (clear, set) };
    to.compat = to.compat.with(one.compat);
    to.incompat = to.incompat.with(one.incompat);
    to.ro_compat = to.ro_compat.with(one.ro_compat);
    from.compat = from.compat.without(one.compat);
    from.incompat = from.incompat.without(one.incompat);
    from.ro_compat = from.ro_compat.without(one.ro_compat);
    Ok(())
}

fn extended(tuning: &mut Tuning, word: &str) -> Result<(), String> {
    let (name, value) = word
        .split_once('=')
        .map_or((word, None), |(n, v)| (n, Some(v)));
    let needed = || value.ok_or_else(|| format!("-E {name} needs a value: {name}=..."));
    let number = || -> Result<u32, String> {
        let text = needed()?;
        text.parse()
            .map_err(|_| format!("Invalid {name} parameter: {text}"))
    };
    match name {
        "stride" => {
            let narrow = u16::try_from(number()?);
            tuning.raid_stride = Some(narrow.map_err(|_| format!("Invalid {word}"))?);
        }
        "stripe-width" | "stripe_width" => tuning.raid_stripe_width = Some(number()?),
        "hash_alg" => tuning.hash_version = Some(words::hash(needed()?)?),
        "mount_opts" => {
            let text = needed()?;
            if text.len() > 63 {
                return Err("Extended mount options too long: at most 63 bytes".to_owned());
            }
            tuning.mount_opts = Some(words::field(text, "mount options")?);
        }
        "test_fs" => tuning.is_test = Some(true),
        "^test_fs" => tuning.is_test = Some(false),
        "force_fsck" => tuning.needs_check = true,
        "clear_mmp"
        | "mmp_update_interval"
        | "encoding"
        | "encoding_flags"
        | "orphan_file_size" => {
            return Err(format!(
                "-E {name} changes more than the superblock: 'tune2fs -E {word}'"
            ));
        }
        _ => return Err(format!("Bad options specified: {word}")),
    }
    Ok(())
}
