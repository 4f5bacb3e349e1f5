//! Options of the commands that work on whole devices, whatever is on them.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: none of its own.

use super::shared::JsonObject;
use clap::{Args, ValueEnum};
use diorite_block::Locator;
use diorite_block::locator::{ImageFormat, parse_size};
use diorite_image::Packing;
use std::path::{Path, PathBuf};

/// How the bytes of a disk are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    /// The bytes as they are
    Raw,
    /// Compressed by gzip
    #[value(name = "gz", alias = "gzip")]
    Gzip,
    /// Compressed by zstd
    #[value(name = "zst", alias = "zstd")]
    Zstd,
    /// An Android sparse image, as of img2simg
    #[value(name = "android-sparse", alias = "simg")]
    AndroidSparse,
    /// QEMU's format with clusters
    Qcow2,
    /// Compressed by xz; only read
    Xz,
    /// Compressed by bzip2; only read
    #[value(name = "bz2", alias = "bzip2")]
    Bzip2,
    /// Compressed by lz4; only read
    Lz4,
    /// The one file of a zip archive; only read
    Zip,
    /// What the first bytes say; only read
    Auto,
}

impl Encoding {
    /// The one that the end of a name says.
    pub(crate) fn of_name(name: &Path) -> Encoding {
        let end = name.extension().and_then(|end| end.to_str());
        match end.map(str::to_ascii_lowercase).as_deref() {
            Some("gz") => Encoding::Gzip,
            Some("zst" | "zstd") => Encoding::Zstd,
            Some("simg") => Encoding::AndroidSparse,
            Some("qcow2") => Encoding::Qcow2,
            Some("xz") => Encoding::Xz,
            Some("bz2") => Encoding::Bzip2,
            Some("lz4") => Encoding::Lz4,
            Some("zip") => Encoding::Zip,
            _ => Encoding::Raw,
        }
    }

    /// What undoes it, if it is a compression.
    pub(crate) fn packing(self) -> Option<Packing> {
        match self {
            Encoding::Raw | Encoding::Qcow2 | Encoding::AndroidSparse | Encoding::Auto => None,
            Encoding::Gzip => Some(Packing::Gzip),
            Encoding::Zstd => Some(Packing::Zstd),
            Encoding::Xz => Some(Packing::Xz),
            Encoding::Bzip2 => Some(Packing::Bzip2),
            Encoding::Lz4 => Some(Packing::Lz4),
            Encoding::Zip => Some(Packing::Zip),
        }
    }

    /// Refuses what is only read.
    ///
    /// # Errors
    /// The text for the user.
    pub(crate) fn check_written(asked: Option<Encoding>, name: &Path) -> Result<(), String> {
        Encoding::check_known(asked, name)?;
        let encoding = asked.unwrap_or_else(|| Encoding::of_name(name));
        match encoding {
            Encoding::Xz | Encoding::Bzip2 | Encoding::Lz4 | Encoding::Zip | Encoding::Auto => {
                Err(format!(
                    "{}: {} is read, but not written: gz and zst are (copy: -O; import: --format)",
                    name.display(),
                    encoding.word()
                ))
            }
            _ => Ok(()),
        }
    }

    /// The word of the options.
    pub(crate) fn word(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Refuses a name that says that the file is of a kind that is neither read nor written here.
    ///
    /// # Errors
    /// The text for the user.
    pub(crate) fn check_known(asked: Option<Encoding>, name: &Path) -> Result<(), String> {
        let end = name.extension().and_then(|end| end.to_str());
        let end = end.map(str::to_ascii_lowercase).unwrap_or_default();
        let unknown = ["lzma", "7z", "vmdk", "vdi", "vhd", "vhdx"];
        match asked.is_none() && unknown.contains(&&end[..]) {
            true => Err(format!(
                "{}: .{end} is neither read nor written; if its bytes are those of the image, say raw (copy: -f, -O; import: --format)",
                name.display()
            )),
            false => Ok(()),
        }
    }

    /// The one that was asked for, or that a locator's name says.
    pub(crate) fn of(asked: Option<Encoding>, locator: &Locator) -> Encoding {
        let by_name = || match locator {
            Locator::File(file) => match file.format {
                Some(ImageFormat::Raw) => Encoding::Raw,
                Some(ImageFormat::Qcow2) => Encoding::Qcow2,
                Some(ImageFormat::Auto) if file.is_qcow2() => Encoding::Qcow2,
                Some(ImageFormat::Auto) if file.path.exists() => Encoding::Raw,
                // A file that is to be made has no bytes that could say what it is.
                Some(ImageFormat::Auto) | None => Encoding::of_name(&file.path),
            },
            Locator::Inside { path, .. } => Encoding::of_name(Path::new(path)),
            Locator::Mem { .. } | Locator::Sim { .. } => Encoding::Raw,
        };
        asked.unwrap_or_else(by_name)
    }

    /// What `?format=` of a locator says.
    fn said(locator: &Locator) -> Option<Encoding> {
        let format = match locator {
            Locator::File(file) => file.format,
            Locator::Inside { part, .. } => part.format,
            Locator::Mem { .. } | Locator::Sim { .. } => None,
        };
        format.map(|format| match format {
            ImageFormat::Raw => Encoding::Raw,
            ImageFormat::Qcow2 => Encoding::Qcow2,
            ImageFormat::Auto => Encoding::Auto,
        })
    }

    /// Whether a locator leaves it to the first bytes.
    pub(crate) fn is_auto(locator: &Locator) -> bool {
        Encoding::said(locator) == Some(Encoding::Auto)
    }

    /// Refuses an option and a locator that say different things.
    ///
    /// # Errors
    /// The text for the user.
    pub(crate) fn check_agrees(
        (option, asked): (&str, Option<Encoding>),
        locator: &Locator,
    ) -> Result<(), String> {
        match (asked, Encoding::said(locator)) {
            (Some(asked), Some(said)) if asked != said => Err(format!(
                "{locator}: '{option} {}' and '?format={}' contradict each other: leave one of them out",
                asked.word(),
                said.word()
            )),
            _ => Ok(()),
        }
    }

    /// Whether such a file is a device, of which any byte can be read and written.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Encoding::Raw | Encoding::Qcow2)
    }

    /// The locator with the format that was asked for, if that is one of a device.
    pub(crate) fn applied(asked: Option<Encoding>, mut locator: Locator) -> Locator {
        let format = match asked {
            Some(Encoding::Raw) => ImageFormat::Raw,
            Some(Encoding::Qcow2) => ImageFormat::Qcow2,
            Some(Encoding::Auto) => ImageFormat::Auto,
            _ => return locator,
        };
        match &mut locator {
            Locator::File(file) => file.format = Some(format),
            // There, raw is the same as nothing.
            Locator::Inside { part, .. } => {
                part.format = (format != ImageFormat::Raw).then_some(format);
            }
            Locator::Mem { .. } | Locator::Sim { .. } => {}
        }
        locator
    }
}

/// `copy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CopyArgs {
    /// Read both back from their devices afterwards, and compare
    #[arg(long)]
    pub(crate) verify: bool,
    /// Look for zeros in pieces of this size, and make holes of them; 0: write everything, so that all of DST has space
    #[arg(short = 'S', long, value_name = "SIZE", value_parser = parse_size, default_value = "4K")]
    pub(crate) sparse: u64,
    /// How many requests of up to 1 MiB may be in flight, with twice as many small ones; each takes 1.125 MiB of memory
    #[arg(short = 'R', long, value_name = "N", default_value = "48", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) requests: u16,
    /// How SRC is written: raw, gz, zst, xz, bz2, lz4, zip, android-sparse or qcow2; by default by its name: .gz, .zst, .xz, .bz2,
    /// .lz4, .zip, .simg, .qcow2; auto: as its first bytes say, for a SRC whose writers are trusted
    #[arg(short = 'f', long, value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) source_format: Option<Encoding>,
    /// How DST is to be written: raw, gz, zst, android-sparse or qcow2; by default by its name: .gz, .zst, .simg, .qcow2
    #[arg(short = 'O', long, value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) format: Option<Encoding>,
    /// How hard to compress DST: gz 1 to 9 (6), zst 1 to 19 (3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=19))]
    pub(crate) level: Option<u8>,
    /// Write a block map of the bytes of SRC, as of bmaptool: what is stored or used by an ext4 file system is in it, zeros too
    #[arg(long, value_name = "FILE")]
    pub(crate) bmap: Option<PathBuf>,
    /// Do not create DST: it has to exist
    #[arg(short, long)]
    pub(crate) no_create: bool,
    /// Do not ask before a device is replaced that holds a file system or a partition table; pieces may replace an Android sparse image
    #[arg(short = 'F', long)]
    pub(crate) force: bool,
    /// Accepted for habit: progress is shown if standard error is a terminal
    #[arg(short, long, hide = true)]
    progress: bool,
    /// Accepted for habit: a copy is always made durable
    #[arg(long, hide = true)]
    flush: bool,
    /// Print what was copied
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Show no progress on the terminal
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// What to copy: any locator; - is standard input. Several are Android sparse images that hold parts of one disk
    #[arg(value_name = "SRC")]
    pub(crate) source: String,
    /// Where to: any locator, or a file to be created
    #[arg(value_name = "DST")]
    pub(crate) target: String,
    /// What follows the second name. The last of all is DST: see [`CopyArgs::in_order`].
    #[arg(hide = true)]
    pub(crate) pieces: Vec<String>,
}

impl CopyArgs {
    /// The same, with the last name as DST, and those between it and SRC as further pieces.
    pub(crate) fn in_order(&self) -> CopyArgs {
        let mut args = self.clone();
        if let Some(last) = args.pieces.pop() {
            args.pieces
                .insert(0, std::mem::replace(&mut args.target, last));
        }
        args
    }
}

/// `compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// Different sizes are a difference, even if the longer one ends with zeros
    #[arg(short, long)]
    pub(crate) strict: bool,
    /// Print nothing; only set the exit status
    #[arg(short, long, visible_alias = "silent", conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// How many requests of up to 1 MiB may be in flight to each, with twice as many small ones
    #[arg(short = 'R', long, value_name = "N", default_value = "24", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) requests: u16,
    /// Accepted for habit: progress is shown if standard error is a terminal
    #[arg(short, long, hide = true)]
    progress: bool,
    #[command(flatten)]
    pub(crate) json: JsonObject,
    /// A device or image: any locator
    #[arg(value_name = "A")]
    pub(crate) first: String,
    /// The other one
    #[arg(value_name = "B")]
    pub(crate) second: String,
}
