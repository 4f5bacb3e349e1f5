//! Container images as a source: an OCI image layout, or an archive of `docker save`.
//!
//! Input: a directory with `oci-layout`, or a tar file with `manifest.json`. Output: the files of its layers, in order, with their
//! whiteouts applied. Invariants: a blob is what its digest says; a digest never names a file outside the layout. Limits: of several
//! platforms that of this host is taken; only one image. Source: the OCI image specification 1.1 (image layout, manifest, layers); the
//! format of `docker save`.

use crate::archive::{self, Whiteouts};
use crate::assembly::{Assembly, shown};
use crate::error::{Error, Place};
use crate::tape::{Input, Tape};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
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

/// Adds the image of a layout.
pub(crate) fn add_layout(assembly: &mut Assembly, layout: &Path) -> Result<(), Error> {
    let index = read_document(File::open(layout.join("index.json")).at("index.json")?)?;
    let manifest = find_manifest(layout, index, 0)?;
    check_layers(manifest.layers.len())?;
    for layer in manifest.layers {
        add_layer(assembly, layout, &layer).at(&layer.digest)?;
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

fn find_manifest(layout: &Path, document: Document, depth: u32) -> Result<Document, Error> {
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
    let mut text = Vec::new();
    open_blob(layout, &first.digest)?
        .take(MOST_DOCUMENT)
        .read_to_end(&mut text)?;
    same_digest(&first.digest, &Sha256::digest(&text)).at(&first.digest)?;
    find_manifest(layout, read_document(&text[..])?, depth + 1)
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

fn read_document(from: impl Read) -> Result<Document, Error> {
    let mut text = Vec::new();
    from.take(MOST_DOCUMENT).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|e| Error::new(format!("no document of an image: {e}")))
}

/// Where a blob is.
fn blob_path(layout: &Path, digest: &str) -> Result<PathBuf, Error> {
    let hex = digest
        .strip_prefix("sha256:")
        .filter(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()));
    let hex = hex.ok_or_else(|| Error::new(format!("{digest}: only sha256 digests are known")))?;
    Ok(layout.join("blobs/sha256").join(hex))
}

fn open_blob(layout: &Path, digest: &str) -> Result<File, Error> {
    let path = blob_path(layout, digest)?;
    File::open(&path).at(path.display())
}

fn add_layer(assembly: &mut Assembly, layout: &Path, layer: &Descriptor) -> Result<(), Error> {
    if !layer.media_type.contains("tar") {
        return Err(Error::new(format!(
            "a layer of the unknown type {:?}",
            layer.media_type
        )));
    }
    let sum = Arc::new(Mutex::new(Sha256::new()));
    let file = open_blob(layout, &layer.digest)?;
    let reader = Summed {
        from: file,
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
    from: File,
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
        let count = self.file.read_at(&mut out[..most], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// Whether a tar file is an archive of `docker save`.
pub(crate) fn is_saved(file: &Arc<File>) -> bool {
    members(file).is_ok_and(|all| all.contains_key("manifest.json"))
}

/// The positions and lengths of the files of an archive, by their names.
fn members(file: &Arc<File>) -> Result<HashMap<String, (u64, u64)>, Error> {
    let mut all = HashMap::new();
    let len = file.metadata()?.len();
    let mut tape = Tape::new(Input::File(file.clone(), 0, len));
    while let Some(entry) = tape.next()? {
        let name = shown(&entry.path);
        if all.len() > MOST_MEMBERS {
            return Err(Error::new("too many files for an archive of images"));
        }
        let place = match &entry.link {
            // Layers that are there twice are links to each other: from the directory of the link, or from the root.
            Some(target) if !target.is_empty() => {
                let target = shown(target);
                let beside = joined(&name, &target);
                let known = all.get(&beside).or_else(|| all.get(&target));
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

/// Adds the image of an archive of `docker save`.
pub(crate) fn add_saved(assembly: &mut Assembly, file: Arc<File>) -> Result<(), Error> {
    let members = members(&file)?;
    let part = |name: &str| -> Result<Part, Error> {
        let found = members.get(name);
        let (at, left) = found.ok_or_else(|| Error::new(format!("the archive has no {name}")))?;
        Ok(Part {
            file: file.clone(),
            at: *at,
            left: *left,
        })
    };
    let mut text = Vec::new();
    part("manifest.json")?
        .take(MOST_DOCUMENT)
        .read_to_end(&mut text)?;
    let images: Vec<Saved> =
        serde_json::from_slice(&text).map_err(|e| Error::new(format!("manifest.json: {e}")))?;
    let [image] = &images[..] else {
        return Err(Error::new(format!(
            "it has {} images: one archive for each is needed",
            images.len()
        )));
    };
    check_layers(image.layers.len())?;
    for layer in &image.layers {
        archive::add_stream(assembly, part(layer)?, Whiteouts::Apply).at(layer)?;
        assembly.next_layer();
    }
    Ok(())
}
