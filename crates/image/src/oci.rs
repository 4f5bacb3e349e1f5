//! Container images as a source: an OCI image layout, as a directory or in an archive, or an archive of `docker save`.
//!
//! Input: a directory or a tar file with `oci-layout`, or a tar file with `manifest.json`; not packed. Output: the files of its layers, in
//! order, with their whiteouts applied. Invariants: a blob is what its digest says; a digest never names a file outside the layout. Limits:
//! of several platforms that of this host is taken; only one image. Source: the OCI image specification 1.1 (image layout, manifest,
//! layers); the format of `docker save`.

use crate::archive::{self, Whiteouts};
use crate::assembly::{Assembly, shown};
use crate::error::{Error, Place};
use crate::host;
use crate::packing::Packing;
use crate::tape::{Input, Tape};
use diorite_block::uncached;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a document, at most.
const MOST_DOCUMENT: u64 = 16 << 20;
/// Layers of an image, at most: overlay takes 500.
const MOST_LAYERS: usize = 512;
/// Files of an archive, at most.
const MOST_MEMBERS: usize = 100_000;
/// Documents that name each other, at most.
const MOST_DEPTH: u32 = 8;

#[derive(Debug, Deserialize)]
struct Descriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

/// An index or a manifest.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    manifests: Vec<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

/// What an archive of `docker save` says of an image.
#[derive(Debug, Deserialize)]
struct Saved {
    #[serde(rename = "Layers")]
    layers: Vec<String>,
    /// Its names; an image may have none.
    #[serde(rename = "RepoTags", default)]
    tags: Option<Vec<String>>,
}

/// The name of this host's processor as container images have it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// Which kind of container image an archive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Of `docker save`.
    Saved,
    /// Of an OCI image layout.
    Layout,
}

/// Where the files of an image are.
pub(crate) enum Layout {
    Folder(PathBuf),
    Archive(Arc<File>, Members),
}

impl Layout {
    pub(crate) fn archive(file: Arc<File>) -> Result<Layout, Error> {
        let members = members(&file)?;
        Ok(Layout::Archive(file, members))
    }

    fn open(&self, name: &str) -> Result<Part, Error> {
        let (file, place) = match self {
            Layout::Folder(folder) => {
                let path = folder.join(name);
                let file = host::named(&path).at(path.display())?;
                let len = file.metadata()?.len();
                (Arc::new(file), Some((0, len)))
            }
            Layout::Archive(file, members) => (file.clone(), members.get(name).copied()),
        };
        let (at, left) = place.ok_or_else(|| Error::new(format!("the archive has no {name}")))?;
        Ok(Part { file, at, left })
    }

    fn text(&self, name: &str) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        let part = self.open(name)?;
        part.take(MOST_DOCUMENT).read_to_end(&mut text)?;
        Ok(text)
    }
}

/// Adds the image of a layout.
pub(crate) fn add_layout(assembly: &mut Assembly, layout: Layout) -> Result<(), Error> {
    let index = read_document(&layout.text("index.json")?).at("index.json")?;
    let manifest = find_manifest(&layout, index, 0)?;
    check_layers(manifest.layers.len())?;
    for layer in manifest.layers {
        add_layer(assembly, &layout, &layer).at(&layer.digest)?;
        assembly.next_layer();
    }
    Ok(())
}

/// Each layer costs at least one look at all of it.
fn check_layers(count: usize) -> Result<(), Error> {
    match count {
        0 => Err(Error::new("the image has no layers")),
        1..=MOST_LAYERS => Ok(()),
        _ => Err(Error::new(format!("{count} layers: {MOST_LAYERS} can be"))),
    }
}

fn find_manifest(layout: &Layout, document: Document, depth: u32) -> Result<Document, Error> {
    if document.manifests.is_empty() {
        return Ok(document);
    }
    if depth > MOST_DEPTH {
        return Err(Error::new("the index names too many others"));
    }
    let fits = |d: &&Descriptor| {
        d.platform
            .as_ref()
            .is_none_or(|p| p.os == "linux" && p.architecture == architecture())
    };
    let all = document.manifests.len();
    let mut fitting = document.manifests.iter().filter(fits);
    let first = fitting.next();
    let Some(first) = first else {
        return Err(Error::new(format!(
            "none of its {all} images is for linux on {}",
            architecture()
        )));
    };
    // Each name of an image has an entry.
    let others: HashSet<&str> = fitting.map(|d| &d.digest[..]).collect();
    let others = others.iter().filter(|d| **d != first.digest).count();
    if others > 0 {
        return Err(Error::new(format!(
            "it has {} images: one layout for each is needed",
            others + 1
        )));
    }
    let text = layout.text(&blob_name(&first.digest)?)?;
    same_digest(&first.digest, &Sha256::digest(&text)).at(&first.digest)?;
    find_manifest(layout, read_document(&text)?, depth + 1)
}

/// Whether a digest is that of some bytes.
fn same_digest(digest: &str, found: &[u8]) -> Result<(), Error> {
    let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
    match digest.strip_prefix("sha256:") == Some(&found[..]) {
        true => Ok(()),
        false => Err(Error::new(format!(
            "its bytes have the digest sha256:{found}"
        ))),
    }
}

fn read_document(text: &[u8]) -> Result<Document, Error> {
    serde_json::from_slice(text).map_err(|e| Error::new(format!("no document of an image: {e}")))
}

/// Where a blob is in a layout.
fn blob_name(digest: &str) -> Result<String, Error> {
    let hex = digest.strip_prefix("sha256:").filter(|hex| is_hex(hex));
    let hex = hex.ok_or_else(|| Error::new(format!("{digest}: only sha256 digests are known")))?;
    Ok(format!("blobs/sha256/{hex}"))
}

/// Whether a word may be a SHA-256.
fn is_hex(word: &str) -> bool {
    word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit())
}

fn add_layer(assembly: &mut Assembly, layout: &Layout, layer: &Descriptor) -> Result<(), Error> {
    if !layer.media_type.contains("tar") {
        return Err(Error::new(format!(
            "a layer of the unknown type {:?}",
            layer.media_type
        )));
    }
    let sum = Arc::new(Mutex::new(Sha256::new()));
    let reader = Summed {
        from: layout.open(&blob_name(&layer.digest)?)?,
        sum: sum.clone(),
    };
    archive::add_stream(assembly, reader, Whiteouts::Apply)?;
    let found = sum
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
        .finalize();
    same_digest(&layer.digest, &found)
}

/// Computes the digest of what is read.
struct Summed {
    from: Part,
    sum: Arc<Mutex<Sha256>>,
}

impl Read for Summed {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(out)?;
        self.sum
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .update(&out[..count]);
        Ok(count)
    }
}

/// A part of a file as a stream.
struct Part {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Part {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = uncached::read_part_at(&self.file, &mut out[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Whether what begins with these bytes may be an archive of an image: the first name in it is one that those have. All tools give layers
/// and configurations the names of their digests.
pub(crate) fn begins_like_one(first: &[u8]) -> bool {
    let mut tape = Tape::new(Input::Stream(Box::new(first)));
    while let Ok(Some(entry)) = tape.next() {
        let name = joined("", &shown(&entry.path));
        let top = name.split('/').next().unwrap_or("");
        match top {
            // The root.
            "" => {}
            "blobs" | "index.json" | "oci-layout" | "manifest.json" | "repositories" => {
                return true;
            }
            _ => {
                let stem = top.strip_prefix("sha256:").unwrap_or(top);
                return is_hex(stem.split('.').next().unwrap_or(stem));
            }
        }
    }
    false
}

/// Which kind of container image a plain tar file is. What is both, as archives of Docker 25 are, is taken for one of `docker save`.
pub(crate) fn form(file: &Arc<File>) -> Option<Form> {
    let layout = Layout::archive(file.clone()).ok()?;
    if layout
        .text("manifest.json")
        .is_ok_and(|text| images(&text).is_ok())
    {
        return Some(Form::Saved);
    }
    let has = |name| layout.open(name).is_ok();
    (has("oci-layout") && has("index.json")).then_some(Form::Layout)
}

/// The positions and lengths of the files of an archive, by their names.
type Members = HashMap<String, (u64, u64)>;

fn members(file: &Arc<File>) -> Result<Members, Error> {
    let mut all = HashMap::new();
    let len = file.metadata()?.len();
    let mut tape = Tape::new(Input::File(file.clone(), 0, len));
    while let Some(entry) = tape.next()? {
        // Archives that were made of "." name all files from there.
        let name = joined("", &shown(&entry.path));
        if all.len() > MOST_MEMBERS {
            return Err(Error::new("too many files for an archive of images"));
        }
        let place = match &entry.link {
            // Layers that are there twice are links to each other: from the directory of the link, or from the root.
            Some(target) if !target.is_empty() => {
                let target = shown(target);
                let known = all.get(&joined(&name, &target));
                let known = known.or_else(|| all.get(&joined("", &target)));
                known.copied()
            }
            _ => Some((entry.at.unwrap_or(0), entry.size)),
        };
        if let Some(place) = place {
            all.insert(name, place);
        }
    }
    Ok(all)
}

/// What a link in an archive leads to, by name alone.
fn joined(link: &str, target: &str) -> String {
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

fn images(text: &[u8]) -> Result<Vec<Saved>, Error> {
    serde_json::from_slice(text).map_err(|e| Error::new(format!("manifest.json: {e}")))
}

/// The image with a name, or the only one.
fn chosen<'i>(images: &'i [Saved], tag: Option<&str>) -> Result<&'i Saved, Error> {
    let tags = || images.iter().flat_map(|image| image.tags.iter().flatten());
    match (tag, images) {
        (None, [image]) => Ok(image),
        (None, _) => Err(Error::new(format!(
            "it has {} images: 'docker:ARCHIVE:NAME' is one of them{}",
            images.len(),
            listed(tags())
        ))),
        (Some(tag), _) => {
            // Docker's word for a name without a tag.
            let latest = format!("{tag}:latest");
            let is_it = |known: &String| known == tag || *known == latest;
            let has = |image: &&Saved| image.tags.iter().flatten().any(is_it);
            images
                .iter()
                .find(has)
                .ok_or_else(|| Error::new(format!("it has no image {tag}{}", listed(tags()))))
        }
    }
}

/// A few names, for messages.
fn listed<'t>(tags: impl Iterator<Item = &'t String>) -> String {
    const MOST: usize = 8;
    let all: Vec<String> = tags.take(MOST).map(|tag| shown(tag.as_bytes())).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(" ({})", all.join(", ")),
    }
}

/// Adds an image of an archive of `docker save`: the one with a name, or the only one.
pub(crate) fn add_saved(
    assembly: &mut Assembly,
    file: Arc<File>,
    tag: Option<&str>,
) -> Result<(), Error> {
    let archive = Layout::archive(file)?;
    let images = images(&archive.text("manifest.json")?)?;
    let image = chosen(&images, tag)?;
    check_layers(image.layers.len())?;
    for layer in &image.layers {
        add_saved_layer(assembly, archive.open(&joined("", layer))?).at(layer)?;
        assembly.next_layer();
    }
    Ok(())
}

/// A layer that is not packed is set aside no second time.
fn add_saved_layer(assembly: &mut Assembly, part: Part) -> Result<(), Error> {
    let mut first = [0; 6];
    let most = part.left.min(first.len() as u64) as usize;
    let seen = uncached::read_part_at(&part.file, &mut first[..most], part.at)?;
    match Packing::of(&first[..seen]) {
        Packing::None => {
            let place = part.at..part.at + part.left;
            archive::add_plain(assembly, part.file, place, Whiteouts::Apply)
        }
        _ => archive::add_stream(assembly, part, Whiteouts::Apply),
    }
}
