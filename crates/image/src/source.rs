//! Where files come from.
//!
//! Input: a word. Output: a [`Source`]. Invariant: what a word means is seen from what is there, unless it begins with the kind. Limits: a
//! path that begins like a kind needs `./` before it.

use crate::archive::{self, Whiteouts};
use crate::assembly::Assembly;
use crate::error::{Error, Place};
use crate::spool::Spool;
use crate::{manifest, oci, volume, walk};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of a pipe that is read from.
const PIPE: usize = 1 << 20;

/// A source of files for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of the host.
    Directory(PathBuf),
    /// A tar archive, plain or compressed by gzip or zstd.
    Tar(PathBuf),
    /// A tar archive on standard input.
    Stdin,
    /// A container image: a directory in the OCI image layout.
    OciLayout(PathBuf),
    /// A container image: an archive of `docker save`.
    DockerArchive(PathBuf),
    /// A directory in an ext4 image.
    Volume {
        /// The image.
        locator: String,
        /// The directory.
        path: String,
    },
    /// A manifest: see the module of that name.
    Manifest(PathBuf),
}

impl FromStr for Source {
    type Err = Error;

    /// `dir:PATH`, `tar:PATH`, `oci:PATH`, `docker:PATH`, `image:IMG[:/DIR]`, `manifest:PATH`; a path alone, or `IMG:/DIR`; `-` is standard
    /// input.
    fn from_str(word: &str) -> Result<Source, Error> {
        if word == "-" {
            return Ok(Source::Stdin);
        }
        if let Some((kind, rest)) = word.split_once(':') {
            let path = || PathBuf::from(rest);
            match kind {
                "dir" => return Ok(Source::Directory(path())),
                "tar" if rest == "-" => return Ok(Source::Stdin),
                "tar" => return Ok(Source::Tar(path())),
                "oci" => return Ok(Source::OciLayout(path())),
                "docker" => return Ok(Source::DockerArchive(path())),
                "manifest" => return Ok(Source::Manifest(path())),
                "image" => return Ok(of_image(rest)),
                _ => {}
            }
        }
        let path = PathBuf::from(word);
        match path.metadata() {
            Ok(meta) if meta.is_dir() => Ok(match path.join("oci-layout").exists() {
                true => Source::OciLayout(path),
                false => Source::Directory(path),
            }),
            Ok(_) => of_file(path),
            Err(_) if word.contains(":/") => Ok(of_image(word)),
            Err(error) => Err(error).at(word),
        }
    }
}

/// `disk.img:/dir`.
fn of_image(word: &str) -> Source {
    match word.rfind(":/") {
        Some(at) => Source::Volume {
            locator: word[..at].to_owned(),
            path: word[at + 1..].to_owned(),
        },
        None => Source::Volume {
            locator: word.to_owned(),
            path: "/".to_owned(),
        },
    }
}

/// A file by its first bytes.
fn of_file(path: PathBuf) -> Result<Source, Error> {
    let file = File::open(&path).at(path.display())?;
    let mut first = [0; 2048];
    let seen = match file.metadata()?.is_file() {
        true => file.read_at(&mut first, 0).at(path.display())?,
        // A pipe is read once.
        false => 0,
    };
    let first = &first[..seen];
    if first.starts_with(b"#mtree") {
        return Ok(Source::Manifest(path));
    }
    if first.get(1080..1082) == Some(&[0x53, 0xef]) && first.get(257..262) != Some(b"ustar") {
        let locator = path.display().to_string();
        return Ok(Source::Volume {
            locator,
            path: "/".to_owned(),
        });
    }
    if first.get(257..262) == Some(b"ustar") && oci::is_saved(&Arc::new(file)) {
        return Ok(Source::DockerArchive(path));
    }
    Ok(Source::Tar(path))
}

impl Source {
    pub(crate) fn read_into(&self, assembly: &mut Assembly) -> Result<(), Error> {
        let open = |path: &Path| File::open(path).at(path.display());
        match self {
            Source::Directory(path) => walk::add(assembly, path),
            Source::Tar(path) => {
                archive::add_file(assembly, open(path)?, Whiteouts::None).at(path.display())
            }
            Source::Stdin => {
                let stdin = std::io::stdin();
                // A larger pipe means fewer turns; what is no pipe stays as it is.
                let _ = rustix::pipe::fcntl_setpipe_size(&stdin, PIPE);
                let file = File::from(stdin.as_fd().try_clone_to_owned()?);
                archive::add_file(assembly, file, Whiteouts::None).at("standard input")
            }
            Source::OciLayout(path) => oci::add_layout(assembly, path).at(path.display()),
            Source::DockerArchive(path) => {
                let file = open(path)?;
                // Its parts are read in another order than they have.
                let file = match file.metadata()?.is_file() {
                    true => Arc::new(file),
                    false => Spool::new(assembly.rules.spool_in.as_deref())?
                        .all(file)
                        .at(path.display())?,
                };
                oci::add_saved(assembly, file).at(path.display())
            }
            Source::Volume { locator, path } => volume::add(assembly, locator, path).at(locator),
            Source::Manifest(path) => manifest::add(assembly, path),
        }
    }
}
