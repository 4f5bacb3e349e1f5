//! Where files come from.
//!
//! Input: a word. Output: a [`Source`]. Invariant: what a word means is seen from what is there, unless it begins with the kind. Limits: a
//! path that begins like a kind needs `./` before it.

use crate::archive::{self, Whiteouts};
use crate::assembly::Assembly;
use crate::error::{Error, Place};
use crate::host;
use crate::oci::{self, Form, Layout};
use crate::packing::{Packing, is_plain_file, unpacked};
use crate::spool::{Spool, are_zeros};
use crate::{manifest, volume, walk};
use diorite_block::uncached::{self, InOrder};
use std::fs::File;
use std::io::{Cursor, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The path of an archive that means standard input.
const STDIN: &str = "-";
/// Bytes from which it is seen what an archive is.
const FIRST: usize = 1 << 16;
/// Bytes of a block of an archive.
const BLOCK: u64 = 512;
/// Bytes of a pipe that is read from.
const PIPE: usize = 1 << 20;

/// A source of files for an image.
///
/// ```
/// use diorite_image::Source;
///
/// let source: Source = "docker:app.tar:app:1.0".parse()?;
/// assert_eq!(source, Source::DockerArchive("app.tar".into(), Some("app:1.0".to_owned())));
/// # Ok::<(), diorite_image::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory of the host.
    Directory(PathBuf),
    /// A tar archive, plain or packed.
    Tar(PathBuf),
    /// An archive that is packed or comes from a pipe: whether it is a container image is seen when it is read. `-` is standard input, here
    /// as for the archives below.
    Stream(PathBuf),
    /// A container image in the OCI image layout: a directory, or an archive of one, also packed.
    OciLayout(PathBuf),
    /// A container image: an archive of `docker save`, also packed, and the name of one of its images if it has several.
    DockerArchive(PathBuf, Option<String>),
    /// A directory in an ext4 image.
    Volume {
        /// The image.
        locator: String,
        /// The directory, from the root: any bytes.
        path: Vec<u8>,
    },
    /// A manifest: see the module of that name.
    Manifest(PathBuf),
}

impl FromStr for Source {
    type Err = Error;

    /// `dir:PATH`, `tar:PATH`, `oci:PATH`, `docker:PATH[:NAME]`, `image:IMG[:/DIR]`, `manifest:PATH`; a path alone, or `IMG:/DIR`; `-` as
    /// the path of an archive is standard input. `oci-archive:` and `docker-archive:` are the words of skopeo and podman.
    fn from_str(word: &str) -> Result<Source, Error> {
        if word == STDIN {
            return Ok(Source::Stream(word.into()));
        }
        if let Some((kind, rest)) = word.split_once(':') {
            let path = || PathBuf::from(rest);
            match kind {
                "dir" => return Ok(Source::Directory(path())),
                "tar" => return Ok(Source::Tar(path())),
                "oci" | "oci-archive" => return Ok(Source::OciLayout(path())),
                "docker" | "docker-archive" => return Ok(of_docker(rest)),
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

/// `ARCHIVE` or `ARCHIVE:NAME`, as of skopeo. A file whose own name has a colon is there under that name.
fn of_docker(word: &str) -> Source {
    match word.split_once(':') {
        Some((archive, name)) if !Path::new(word).exists() => {
            Source::DockerArchive(archive.into(), Some(name.to_owned()))
        }
        _ => Source::DockerArchive(word.into(), None),
    }
}

/// `disk.img:/dir`.
fn of_image(word: &str) -> Source {
    match word.rfind(":/") {
        Some(at) => Source::Volume {
            locator: word[..at].to_owned(),
            path: word[at + 1..].into(),
        },
        None => Source::Volume {
            locator: word.to_owned(),
            path: "/".into(),
        },
    }
}

/// A file by its first bytes.
fn of_file(path: PathBuf) -> Result<Source, Error> {
    if host::is_descriptor(&path) {
        return Ok(Source::Stream(path));
    }
    let file = host::named(&path).at(path.display())?;
    let mut first = [0; 2048];
    let seen = uncached::read_at(&file, &mut first, 0).at(path.display())?;
    let first = &first[..seen];
    if first.starts_with(b"#mtree") {
        return Ok(Source::Manifest(path));
    }
    if first.get(1080..1082) == Some(&[0x53, 0xef]) && first.get(257..262) != Some(b"ustar") {
        let locator = path.display().to_string();
        return Ok(Source::Volume {
            locator,
            path: "/".into(),
        });
    }
    let is_plain = seen > 0 && Packing::of(first) == Packing::None;
    Ok(match is_plain {
        false => Source::Stream(path),
        true => match container(first, &Arc::new(file)) {
            Some(Form::Saved) => Source::DockerArchive(path, None),
            Some(Form::Layout) => Source::OciLayout(path),
            None => Source::Tar(path),
        },
    })
}

/// Which container image a plain archive with these first bytes is.
fn container(first: &[u8], file: &Arc<File>) -> Option<Form> {
    let is_tar = first.get(257..262) == Some(b"ustar");
    is_tar.then(|| oci::form(file)).flatten()
}

/// Opens an archive.
fn open(path: &Path) -> Result<File, Error> {
    if path != Path::new(STDIN) {
        return host::named(path).at(path.display());
    }
    let stdin = std::io::stdin();
    // A larger pipe means fewer turns; what is no pipe stays as it is.
    let _ = rustix::pipe::fcntl_setpipe_size(&stdin, PIPE);
    Ok(File::from(stdin.as_fd().try_clone_to_owned()?))
}

/// An archive whose parts are read in another order than they have: a file in which they can be found.
fn settled(assembly: &Assembly, file: File) -> Result<Arc<File>, Error> {
    match is_plain_file(&file)? {
        true => Ok(Arc::new(file)),
        false => set_aside(assembly, unpacked(InOrder(file), &assembly.warnings)?),
    }
}

fn set_aside(assembly: &Assembly, mut from: impl Read) -> Result<Arc<File>, Error> {
    let mut first = Vec::new();
    from.by_ref().take(BLOCK).read_to_end(&mut first)?;
    if are_zeros(&first) {
        // There might be no end of them.
        return Err(Error::new(
            "it is no archive of an image: it begins with zeros",
        ));
    }
    let from = Cursor::new(first).chain(from);
    let spool = Spool::new(assembly.rules.spool_in.as_deref())?;
    Ok(spool.all(from)?)
}

/// Adds what an archive is seen to be.
fn add_seen(assembly: &mut Assembly, file: File) -> Result<(), Error> {
    if is_plain_file(&file)? {
        let mut first = [0; FIRST];
        let seen = uncached::read_at(&file, &mut first, 0)?;
        return add_plain(assembly, &first[..seen], Arc::new(file));
    }
    let mut from = unpacked(InOrder(file), &assembly.warnings)?;
    let mut first = Vec::new();
    from.by_ref().take(FIRST as u64).read_to_end(&mut first)?;
    let may_be_container = oci::begins_like_one(&first);
    let whole = Cursor::new(first.clone()).chain(from);
    match may_be_container {
        true => {
            let file = set_aside(assembly, whole)?;
            add_plain(assembly, &first, file)
        }
        false => archive::add_plain_stream(assembly, whole, Whiteouts::None),
    }
}

fn add_plain(assembly: &mut Assembly, first: &[u8], file: Arc<File>) -> Result<(), Error> {
    match container(first, &file) {
        Some(Form::Saved) => oci::add_saved(assembly, file, None),
        Some(Form::Layout) => oci::add_layout(assembly, Layout::archive(file)?),
        None => {
            let all = 0..file.metadata()?.len();
            archive::add_plain(assembly, file, all, Whiteouts::None)
        }
    }
}

fn shown(path: &Path) -> std::path::Display<'_> {
    let shown = match path == Path::new(STDIN) {
        true => Path::new("standard input"),
        false => path,
    };
    shown.display()
}

impl Source {
    pub(crate) fn read_into(&self, assembly: &mut Assembly) -> Result<(), Error> {
        let read = self.read(assembly);
        let told = assembly.warnings.take(&shown(self.path()).to_string());
        assembly.told.extend(told);
        read
    }

    fn path(&self) -> &Path {
        match self {
            Source::Directory(path)
            | Source::Tar(path)
            | Source::Stream(path)
            | Source::OciLayout(path)
            | Source::DockerArchive(path, _)
            | Source::Manifest(path) => path,
            Source::Volume { locator, .. } => Path::new(locator),
        }
    }

    fn read(&self, assembly: &mut Assembly) -> Result<(), Error> {
        match self {
            Source::Directory(path) => walk::add(assembly, path),
            Source::Tar(path) => {
                archive::add_file(assembly, open(path)?, Whiteouts::None).at(shown(path))
            }
            Source::Stream(path) => add_seen(assembly, open(path)?).at(shown(path)),
            Source::OciLayout(path) if path.is_dir() => {
                oci::add_layout(assembly, Layout::Folder(path.clone())).at(shown(path))
            }
            Source::OciLayout(path) => settled(assembly, open(path)?)
                .and_then(Layout::archive)
                .and_then(|layout| oci::add_layout(assembly, layout))
                .at(shown(path)),
            Source::DockerArchive(path, name) => settled(assembly, open(path)?)
                .and_then(|file| oci::add_saved(assembly, file, name.as_deref()))
                .at(shown(path)),
            Source::Volume { locator, path } => volume::add(assembly, locator, path).at(locator),
            Source::Manifest(path) => manifest::add(assembly, path),
        }
    }
}
