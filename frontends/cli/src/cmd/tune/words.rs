//! The words of tune2fs as changes of a superblock.
//!
//! Input: the command line; the superblock, for what depends on it. Output: [`Change`], [`Tuning`], [`Conversion`]. Invariant: a word that
//! is not known is refused by name. Limits: names of users and groups are those of /etc/passwd and /etc/group.
//! Source: man 8 tune2fs; answers to wrong words by experiment with tune2fs 1.47.

use crate::args::TuneArgs;
use crate::cmd::mkfs::{identity, words};
use crate::words::times;
use diorite::{Conversion, InnerJournal, Tuning, UsageFile};
use diorite_block::locator::parse_size;
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::quota::Kind;
use diorite_format::superblock::JournalPlace;
use diorite_format::{Superblock, csum};
use diorite_image::id_of;
use rustix::rand::{GetRandomFlags, getrandom};

/// `s_default_mount_opts`: the data mode.
const DATA_MODE: u32 = 0x60;
const DAY: u64 = 86_400;
/// The largest count of mounts that tune2fs accepts.
const MOST_MOUNTS: u16 = 16_000;
/// Unicode 12.1.
const UTF8_12_1: u16 = 1;
/// Seconds between updates of the block against several mounts, at most.
const MOST_MMP_INTERVAL: u16 = 300;
/// Bytes of the directory of the last mount.
const LAST_MOUNTED: usize = 64;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Change {
    tuning: Tuning,
    /// What changes more than the superblock.
    conversion: Conversion,
    /// Options of a journal: MiB, KiB for fast commits, and the block or byte where it lies.
    journal: Option<JournalWords>,
    /// Percentage of reserved blocks.
    reserved: Option<f64>,
    /// Bits of default mount options to set and to clear, in order.
    mount_bits: Vec<(u32, bool)>,
}

/// The words of -J.
#[derive(Debug, Default, PartialEq)]
struct JournalWords {
    mib: Option<u64>,
    fast_commit_kib: Option<u64>,
    at: Option<At>,
    device: Option<String>,
}

/// Where a journal is to lie.
#[derive(Debug, PartialEq)]
enum At {
    Block(u64),
    Byte(u64),
}

impl Change {
    /// Another UUID alone.
    pub(super) fn of_uuid(uuid: [u8; 16]) -> Change {
        Change {
            tuning: Tuning {
                uuid: Some(uuid),
                ..Tuning::default()
            },
            ..Change::default()
        }
    }
}

/// Reads the command line.
pub(super) fn change(args: &TuneArgs) -> Result<Change, String> {
    let mut conversion = Conversion {
        inode_size: args.inode_size,
        usage: listed(&args.quota).map(usage).collect::<Result<_, _>>()?,
        ..Conversion::default()
    };
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
        if !extended_conversion(&mut conversion, word)? {
            extended(&mut tuning, word)?;
        }
    }
    if conversion.clear_mmp && !args.force {
        return Err("Error in using clear_mmp. It must be used with -f".to_owned());
    }
    let mut journal = journal_words(args)?;
    if tuning.set.compat.has(Compat::HAS_JOURNAL) {
        journal.get_or_insert_default();
    }
    split(&mut tuning, &mut conversion);
    if let Some(percent) = args.reserved_percent.filter(|p| !(0.0..=50.0).contains(p)) {
        return Err(format!("bad reserved block ratio - {percent}"));
    }
    let mount_bits = listed(&args.mount_bits).map(mount_bit);
    Ok(Change {
        tuning,
        conversion,
        journal,
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

    /// Whether it switches checksums or the journal, on which other features depend.
    pub(super) fn switches_checksums(&self) -> bool {
        let sums = RoCompat::METADATA_CSUM;
        let (set, clear) = (&self.conversion.set, &self.conversion.clear);
        set.ro_compat.has(sums) || clear.ro_compat.has(sums) || self.journal.is_some()
    }

    /// The device of the journal to be.
    pub(super) fn journal_device(&self) -> Option<&str> {
        self.journal.as_ref()?.device.as_deref()
    }

    /// What changes more than the superblock, for this one.
    pub(super) fn conversion(&self, sb: &Superblock) -> Result<Conversion, String> {
        let mut all = self.conversion.clone();
        let block = u64::from(sb.block_size());
        let blocks = |bytes: u64| {
            let few = u32::try_from(bytes / block);
            few.map_err(|_| format!("{bytes} bytes are too many for a journal"))
        };
        if let Some(words) = self.journal.as_ref().filter(|words| words.device.is_none()) {
            all.journal = Some(InnerJournal {
                blocks: words
                    .mib
                    .map(|mib| blocks(mib.saturating_mul(1 << 20)))
                    .transpose()?,
                fast_commit_blocks: match words.fast_commit_kib {
                    Some(kib) => blocks(kib.saturating_mul(1024))?,
                    None => 0,
                },
                at: words.at.as_ref().map(|at| match at {
                    At::Block(at) => *at,
                    At::Byte(at) => at / block,
                }),
            });
        }
        // A journal that is there is no error of -O has_journal.
        let has_one = sb.journal() != JournalPlace::None;
        if self.journal == Some(JournalWords::default())
            && self.conversion.set.compat.has(Compat::HAS_JOURNAL)
            && has_one
        {
            all.journal = None;
        }
        all.set.compat = all.set.compat.without(Compat::HAS_JOURNAL);
        all.orphan_file_blocks = all.orphan_file_blocks.map(|n| (n / sb.block_size()).max(1));
        if all.encoding.is_some() {
            all.set.incompat = all.set.incompat.with(Incompat::CASEFOLD);
        }
        let features = sb.features();
        let clears = self.tuning.clear.incompat.has(Incompat::CSUM_SEED);
        let stores = features
            .incompat
            .with(self.tuning.set.incompat)
            .has(Incompat::CSUM_SEED);
        let sums = features.metadata_csum();
        let uuid = self.tuning.uuid.filter(|uuid| uuid != sb.uuid());
        let new = uuid.as_ref().unwrap_or(sb.uuid());
        if sums && clears && csum::crc32c(csum::SEED, new) != sb.csum_seed() {
            all.clear.incompat = all.clear.incompat.with(Incompat::CSUM_SEED);
        }
        let values = features.incompat.has(Incompat::EA_INODE) && (!stores || clears);
        let crc16 = features.ro_compat.has(RoCompat::GDT_CSUM);
        let is_external = matches!(sb.journal(), JournalPlace::External { .. });
        let rewrites = crc16 || sums && (!stores || clears) || values || is_external;
        if rewrites || !all.is_nothing() {
            all.uuid = uuid;
        }
        Ok(all)
    }

    /// The change of this superblock, without what `conversion` does.
    pub(super) fn rest(&self, sb: &Superblock, conversion: &Conversion) -> Tuning {
        let mut tuning = self.of(sb);
        if conversion.uuid.is_some() {
            tuning.uuid = None;
        }
        tuning.clear = without(&tuning.clear, &conversion.clear);
        tuning
    }

    /// The change of this superblock.
    fn of(&self, sb: &Superblock) -> Tuning {
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

/// Usage files of a kind, to make or to take away.
fn usage(word: &str) -> Result<UsageFile, String> {
    let (name, on) = match word.strip_prefix('^') {
        Some(name) => (name, false),
        None => (word, true),
    };
    let kind = match name {
        "usr" | "usrquota" => Kind::User,
        "grp" | "grpquota" => Kind::Group,
        "prj" | "prjquota" => Kind::Project,
        _ => return Err(format!("Bad quota options specified: {word}")),
    };
    Ok((kind, on))
}

/// Moves features to the conversion that change more than the superblock.
fn split(tuning: &mut Tuning, conversion: &mut Conversion) {
    let stored_seed = Features {
        incompat: Incompat::CSUM_SEED,
        ..Features::default()
    };
    // Whether its checksums have to be written again is seen in the superblock.
    let clearable = without(&Conversion::clearable(), &stored_seed);
    let move_of = |all: &mut Features, known: &Features| {
        let others = without(all, known);
        let moved = without(all, &others);
        *all = others;
        moved
    };
    conversion.set = move_of(&mut tuning.set, &Conversion::settable());
    conversion.clear = move_of(&mut tuning.clear, &clearable);
}

fn without(all: &Features, others: &Features) -> Features {
    Features {
        compat: all.compat.without(others.compat),
        incompat: all.incompat.without(others.incompat),
        ro_compat: all.ro_compat.without(others.ro_compat),
    }
}

/// The journal that -j and -J ask for.
fn journal_words(args: &TuneArgs) -> Result<Option<JournalWords>, String> {
    let mut all = args.make_journal.then(JournalWords::default);
    for word in args.journal_options.iter().filter(|word| !word.is_empty()) {
        let wrong = || format!("Bad journal options specified: {word}");
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        let number = || value.parse::<u64>().map_err(|_| wrong());
        let all = all.get_or_insert_default();
        match name {
            "size" => all.mib = Some(number()?),
            "fast_commit_size" => all.fast_commit_kib = Some(number()?),
            "location" => {
                let bytes = || parse_size(value).map(At::Byte).map_err(|_| wrong());
                all.at = Some(number().map(At::Block).or_else(|_| bytes())?);
            }
            "device" if !value.is_empty() => all.device = Some(value.to_owned()),
            _ => return Err(wrong()),
        }
    }
    Ok(all)
}

/// An option of -E that changes more than the superblock. Returns false for any other.
fn extended_conversion(conversion: &mut Conversion, word: &str) -> Result<bool, String> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let number = || {
        let parsed = value.parse::<u32>();
        parsed.map_err(|_| format!("Invalid {name} parameter: {value}"))
    };
    let encoding = conversion.encoding.unwrap_or((UTF8_12_1, 0));
    match name {
        "clear_mmp" => conversion.clear_mmp = true,
        "mmp_update_interval" => {
            let seconds = u16::try_from(number()?)
                .ok()
                .filter(|n| *n <= MOST_MMP_INTERVAL);
            let wrong = || format!("mmp_update_interval too big: {value}");
            conversion.mmp_interval = Some(seconds.ok_or_else(wrong)?);
        }
        "encoding" => match value {
            "utf8" | "utf8-12.1" => conversion.encoding = Some((UTF8_12_1, encoding.1)),
            _ => return Err(format!("Invalid encoding: {value}")),
        },
        "encoding_flags" => match value {
            "strict" => conversion.encoding = Some((encoding.0, encoding.1 | 1)),
            "nostrict" | "no-strict" => conversion.encoding = Some((encoding.0, encoding.1 & !1)),
            _ => return Err(format!("error: Invalid encoding flag: {value}")),
        },
        "orphan_file_size" => {
            let bytes = parse_size(value).map_err(|_| format!("Invalid {word}"))?;
            // Blocks when the size of a block is known.
            let bytes = u32::try_from(bytes).map_err(|_| format!("Invalid {word}"))?;
            conversion.orphan_file_blocks = Some(bytes);
        }
        _ => return Ok(false),
    }
    Ok(true)
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
        _ => return Err(format!("Bad options specified: {word}")),
    }
    Ok(())
}
