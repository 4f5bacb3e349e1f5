//! The two judges must report the same of one image; otherwise the output of one is parsed wrongly.

use super::*;
use crate::manifest::Facts;

/// The fields that both judges report.
fn common(entries: Vec<Entry>) -> Vec<Entry> {
    let trim = |facts: Facts| Facts {
        data: None,
        ..facts
    };
    entries
        .into_iter()
        .map(|entry| Entry {
            facts: entry.facts.map(trim),
            ..entry
        })
        .collect()
}

#[test]
fn the_kernel_and_debugfs_agree() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    for name in ["ext4-4k-inline", "ext4-1k-eainode"] {
        let recipe = Recipe::named(name).expect("in the table");
        if !may_mount(recipe, RootFill::Auto) {
            crate::skip::skipped("only root can mount an image");
            return;
        }
        let made = make(name, dir.path(), RootFill::Auto).expect("an image");
        let manifest = Manifest::load(&made.manifest).expect("a manifest");
        if manifest.header.truth != "kernel" {
            crate::skip::skipped(&manifest.header.note);
            return;
        }
        let other = common(by_debugfs::walk(&made.image, dir.path()).expect("a walk"));
        let kernel = common(manifest.entries);
        assert_eq!(kernel.len(), other.len(), "{name}");
        for (kernel, debugfs) in kernel.iter().zip(&other) {
            assert_eq!(kernel, debugfs, "{name}");
        }
    }
}

#[test]
fn an_ordinary_user_gets_images_too_and_keeps_them() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let made = ensure("feature-verity", dir.path(), RootFill::Never).expect("an image");
    let manifest = Manifest::load(&made.manifest).expect("a manifest");
    assert_eq!(manifest.header.truth, "debugfs");
    assert!(
        manifest
            .entries
            .iter()
            .any(|entry| entry.path == "/links/second" && entry.link_of.is_some())
    );
    let before = std::fs::metadata(&made.image)
        .and_then(|meta| meta.modified())
        .expect("a time");
    assert_eq!(
        ensure("feature-verity", dir.path(), RootFill::Never).expect("kept"),
        made
    );
    let after = std::fs::metadata(&made.image)
        .and_then(|meta| meta.modified())
        .expect("a time");
    assert_eq!(before, after);
}

#[test]
fn an_unknown_name_is_said_to_be_one() {
    let error =
        make("ext5", Path::new("/nonexistent"), RootFill::Never).expect_err("no such recipe");
    assert!(error.to_string().contains("ext5"));
}
