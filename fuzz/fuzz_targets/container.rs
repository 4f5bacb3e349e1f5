//! A container image: reading it ends, no file outside the layout is read, and what comes out is an image in which the check finds nothing.
//!
//! If the first byte is even, the rest is an archive of `docker save`; the sums of its headers are made right first. If it is odd, the rest
//! is `index.json` and blobs, divided by lines of two dashes; `sha256:@N` in one of them stands for the digest of blob N, which must be a
//! later one. Blobs that are tar archives get their sums.
#![no_main]

use diorite_fuzz::files::{Scratch, make, read, seal_tar};
use diorite_image::Source;
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;

const BETWEEN: &[u8] = b"\n--\n";

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let folder = tempfile::tempdir().expect("a directory");
    let found = match first % 2 {
        0 => {
            let mut archive = rest.to_vec();
            seal_tar(&mut archive);
            let file = Scratch::new(&archive);
            read(Source::DockerArchive(file.path(), None), folder.path()).map(|f| (f.2, Some(file)))
        }
        _ => {
            lay_out(rest, folder.path());
            read(Source::OciLayout(folder.path().to_owned()), folder.path()).map(|f| (f.2, None))
        }
    };
    if let Ok((builder, _open)) = found {
        make(builder);
    }
});

/// Writes the layout.
fn lay_out(mut rest: &[u8], folder: &Path) {
    let mut parts = Vec::new();
    while let Some(at) = rest.windows(BETWEEN.len()).position(|w| w == BETWEEN).filter(|_| parts.len() < 16) {
        parts.push(rest[..at].to_vec());
        rest = &rest[at + BETWEEN.len()..];
    }
    parts.push(rest.to_vec());
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).expect("a directory");
    let mut digests = vec![String::new(); parts.len()];
    for n in (0..parts.len()).rev() {
        let part = match parts[n].get(257..262) == Some(b"ustar") {
            true => {
                seal_tar(&mut parts[n]);
                parts[n].clone()
            }
            false => named(&parts[n], &digests),
        };
        digests[n] = Sha256::digest(&part).iter().map(|byte| format!("{byte:02x}")).collect();
        let path = if n == 0 { folder.join("index.json") } else { blobs.join(&digests[n]) };
        fs::write(path, part).expect("a file");
    }
    fs::write(folder.join("oci-layout"), "{}").expect("a file");
}

/// A document with the digests that it asks for.
fn named(document: &[u8], digests: &[String]) -> Vec<u8> {
    let mut text = document.to_vec();
    for (n, digest) in digests.iter().enumerate().rev().filter(|(_, digest)| !digest.is_empty()) {
        let word = format!("sha256:@{n}");
        while let Some(at) = text.windows(word.len()).position(|w| w == word.as_bytes()) {
            text.splice(at..at + word.len(), format!("sha256:{digest}").into_bytes());
        }
    }
    text
}
