//! Container images and manifests as sources.

use super::archives::archive;
use super::{clean, path};
use crate::common::{diorite, files, run, scratch};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

/// Puts a blob into a layout, and returns its digest.
fn blob(layout: &Path, bytes: &[u8]) -> String {
    let hex = digest(bytes);
    let dir = layout.join("blobs/sha256");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(&hex), bytes).unwrap();
    format!("sha256:{hex}")
}

/// An archive of a directory, compressed or not.
fn layer(dir: &Path, options: &[&str]) -> Vec<u8> {
    let tar = dir.with_extension("tar");
    let mut args = vec!["-cf", path(&tar), "--format=pax"];
    args.extend(options);
    args.extend(["-C", path(dir), "."]);
    run("tar", &args);
    fs::read(tar).unwrap()
}

/// An archive of these files of a directory.
fn pack(tar: &Path, dir: &Path, names: &[&str]) {
    run(
        "tar",
        &[&["-cf", path(tar), "-C", path(dir)], names].concat(),
    );
}

/// Three layers with whiteouts.
fn layers(dir: &Path) -> [Vec<u8>; 3] {
    let at = |name: &str| dir.join(name);
    files(
        &at("one"),
        &[
            ("etc/keep", b"1"),
            ("etc/gone", b"1"),
            ("var/a", b"1"),
            ("var/b", b"1"),
            ("tree/x/y", b"1"),
        ],
    );
    files(
        &at("two"),
        &[
            ("etc/.wh.gone", b""),
            ("var/.wh..wh..opq", b""),
            ("var/c", b"2"),
            (".wh.tree", b""),
            ("tree/new", b"2"),
        ],
    );
    files(&at("three"), &[("etc/gone", b"3"), ("etc/.wh.never", b"")]);
    [
        layer(&at("one"), &["-z"]),
        layer(&at("two"), &[]),
        layer(&at("three"), &["-z"]),
    ]
}

fn check(img: &Path) {
    clean(img);
    let listed = diorite(&["find", path(img), "/", "-type", "f"]).ok().text();
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(names, ["/etc/gone", "/etc/keep", "/tree/new", "/var/c"]);
    assert_eq!(diorite(&["cat", path(img), "/etc/gone"]).ok().text(), "3");
}

#[test]
fn layers_of_a_layout_are_applied() {
    let dir = scratch();
    let (layout, img) = (dir.path().join("layout"), dir.path().join("img"));
    let types = ["tar+gzip", "tar", "tar+gzip"];
    let list: Vec<String> = layers(dir.path())
        .iter()
        .zip(types)
        .map(|(bytes, kind)| {
            let digest = blob(&layout, bytes);
            format!(r#"{{"mediaType":"application/vnd.oci.image.layer.v1.{kind}","digest":"{digest}","size":{}}}"#, bytes.len())
        })
        .collect();
    let manifest = format!(r#"{{"schemaVersion":2,"layers":[{}]}}"#, list.join(","));
    let manifest = blob(&layout, manifest.as_bytes());
    let other = r#"{"mediaType":"x","digest":"sha256:00","size":1,"platform":{"os":"windows","architecture":"amd64"}}"#;
    let inner =
        format!(r#"{{"manifests":[{other},{{"mediaType":"x","digest":"{manifest}","size":1}}]}}"#);
    let inner = blob(&layout, inner.as_bytes());
    fs::write(
        layout.join("index.json"),
        format!(r#"{{"manifests":[{{"mediaType":"x","digest":"{inner}","size":1}}]}}"#),
    )
    .unwrap();
    fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )
    .unwrap();
    diorite(&["import", "-q", path(&layout), path(&img)]).ok();
    check(&img);
    // A blob that is not what its digest says.
    fs::remove_file(&img).unwrap();
    let last = list[1]
        .split('"')
        .find(|part| part.starts_with("sha256:"))
        .unwrap();
    let blob = layout.join("blobs/sha256").join(&last[7..]);
    let mut bytes = fs::read(&blob).unwrap();
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    fs::write(&blob, bytes).unwrap();
    diorite(&["import", "-q", path(&layout), path(&img)]).failed(1, "have the digest");
    assert!(!img.exists());
    fs::write(
        layout.join("index.json"),
        r#"{"manifests":[{"digest":"sha256:../../../etc/passwd"}]}"#,
    )
    .unwrap();
    diorite(&["import", "-q", path(&layout), path(&img)]).failed(1, "only sha256 digests");
}

#[test]
fn archives_of_docker_are_read() {
    let dir = scratch();
    let (saved, img) = (dir.path().join("saved"), dir.path().join("img"));
    let mut names = Vec::new();
    for (n, bytes) in layers(dir.path()).iter().enumerate() {
        let name = format!("{n}/layer.tar");
        files(&saved, &[(&name, bytes)]);
        names.push(format!("\"{name}\""));
    }
    let manifest = format!(
        r#"[{{"Config":"c.json","RepoTags":["x:y"],"Layers":[{}]}}]"#,
        names.join(",")
    );
    files(
        &saved,
        &[("manifest.json", manifest.as_bytes()), ("c.json", b"{}")],
    );
    let tar = dir.path().join("image.tar");
    pack(&tar, &saved, &["0", "1", "2", "c.json", "manifest.json"]);
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    check(&img);
    diorite(&[
        "import",
        "-q",
        &format!("docker:{}", path(&tar)),
        path(&img),
    ])
    .ok();
    check(&img);
    // Defect: "Illegal seek", in an example of the manual.
    fs::remove_file(&img).unwrap();
    let piped = "cat \"$1\" | \"$0\" import -q docker:/dev/stdin \"$2\"";
    let diorite = env!("CARGO_BIN_EXE_diorite");
    run("sh", &["-c", piped, diorite, path(&tar), path(&img)]);
    check(&img);
}

#[test]
fn manifests_say_what_is_made() {
    let dir = scratch();
    files(dir.path(), &[("parts/hello", b"hello\n")]);
    let (manifest, img) = (dir.path().join("list"), dir.path().join("img"));
    let text = "#mtree\n/set uid=7 gid=8 mode=0640\n. type=dir mode=0755 time=1700000000.5\n\
        ./etc type=dir mode=0711\n./etc/hello type=file contents=parts/hello time=5.000000007\n\
        ./with\\040blank type=file mode=4755 uid=0 gid=0\n./link type=link link=etc/hello\n\
        ./same hardlink=etc/hello\n./null type=char device=1,3 mode=0666\n./disk type=block device=native,8,1\n\
        ./pipe type=fifo xattr.user.note=aGk=\n/unset mode\n./plain type=dir \\\n uid=1\n";
    fs::write(&manifest, text).unwrap();
    diorite(&["import", "-q", path(&manifest), path(&img)]).ok();
    clean(&img);
    let stat = |format: &str, file: &str| {
        diorite(&["stat", "-c", format, path(&img), file])
            .ok()
            .text()
            .trim()
            .to_owned()
    };
    assert_eq!(stat("%a %u %g %s %h", "/etc/hello"), "640 7 8 6 2");
    assert_eq!(stat("%a %u", "/with blank"), "4755 0");
    assert_eq!(stat("%t:%T %F", "/null"), "1:3 character special file");
    assert_eq!(stat("%t:%T", "/disk"), "8:1");
    assert_eq!(stat("%a %u", "/plain"), "755 1");
    assert_eq!(
        diorite(&["readlink", path(&img), "/link"]).ok().text(),
        "etc/hello\n"
    );
    assert!(
        diorite(&["getfattr", "-d", path(&img), "/pipe"])
            .ok()
            .text()
            .contains("user.note=\"hi\"")
    );
    for (line, why) in [
        ("./x type=file nonsense=1", "nonsense"),
        ("./x type=odd", "type=odd"),
        ("./x type=link", "link=TARGET"),
        ("./x type=char device=1", "no two numbers"),
        ("./x mode=9", "mode=9"),
        ("./../x type=dir", "'..'"),
        ("./x uname=somebody", "known by number"),
    ] {
        fs::write(&manifest, format!("#mtree\n{line}\n")).unwrap();
        diorite(&["import", "-q", path(&manifest), path(&img)]).failed(1, why);
    }
}

/// The defects: contents named by a symbolic link, or with an escape in their name, could not be read; escapes other than octal ones became
/// part of a name, and `/unset all` left everything set.
#[test]
fn manifests_have_escapes_and_links() {
    let dir = scratch();
    files(dir.path(), &[("a b", b"hello")]);
    std::os::unix::fs::symlink("a b", dir.path().join("link")).unwrap();
    let (manifest, img) = (dir.path().join("list"), dir.path().join("img"));
    let text = "#mtree\n/set uid=7 type=file\n./one contents=link\n./two contents=a\\040b\n./t\\tb\\#\\M-i\n\
        /unset all\n./three type=file\n";
    fs::write(&manifest, text).unwrap();
    diorite(&["import", "-q", path(&manifest), path(&img)]).ok();
    clean(&img);
    for name in ["/one", "/two"] {
        assert_eq!(diorite(&["cat", path(&img), name]).ok().text(), "hello");
    }
    let owner = |name: &str| diorite(&["stat", "-c", "%u", path(&img), name]).ok().text();
    assert_eq!((&owner("/one")[..], &owner("/three")[..]), ("7\n", "0\n"));
    let all = diorite(&["find", path(&img), "/", "-print0"]).ok().out;
    let is_there = all
        .split(|byte| *byte == 0)
        .any(|name| name == b"/t\tb#\xe9");
    assert!(is_there, "{}", String::from_utf8_lossy(&all));
}

/// What a layer puts below a directory stays, whether it says before or afterwards that what was there is gone.
#[test]
fn whiteouts_take_what_is_below_alone() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    files(
        &at("one"),
        &[("a/old", b"1"), ("a/b/old", b"1"), ("c/b/old", b"1")],
    );
    files(
        &at("two"),
        &[
            ("a/b/new", b"2"),
            ("a/.wh..wh..opq", b""),
            ("c/b/new", b"2"),
            (".wh.c", b""),
        ],
    );
    let saved = at("saved");
    files(&saved, &[("one", &layer(&at("one"), &[]))]);
    // The marks come last, and the directories have no entries of their own.
    let tar = at("two.tar");
    pack(
        &tar,
        &at("two"),
        &["a/b/new", "c/b/new", "a/.wh..wh..opq", ".wh.c"],
    );
    files(&saved, &[("two", &fs::read(&tar).unwrap())]);
    files(
        &saved,
        &[("manifest.json", br#"[{"Layers":["one","two"]}]"#)],
    );
    let image = at("image.tar");
    pack(&image, &saved, &["one", "two", "manifest.json"]);
    diorite(&["import", "-q", path(&image), path(&at("img"))]).ok();
    clean(&at("img"));
    let listed = diorite(&["find", path(&at("img")), "/", "-type", "f"])
        .ok()
        .text();
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["/a/b/new", "/c/b/new"]);
    let many: Vec<&str> = std::iter::repeat_n("\"one\"", 600).collect();
    let text = format!(r#"[{{"Layers":[{}]}}]"#, many.join(","));
    files(&saved, &[("manifest.json", text.as_bytes())]);
    pack(&image, &saved, &["one", "manifest.json"]);
    diorite(&["import", "-q", path(&image), path(&at("img"))]).failed(1, "512 can be");
}

/// An archive of `docker save` with these layers, and the image that is made of it.
fn saved(dir: &Path, layers: &[Vec<u8>]) -> std::path::PathBuf {
    let (tar, img) = (dir.join("saved.tar"), dir.join("img"));
    let names: Vec<String> = (0..layers.len()).map(|n| n.to_string()).collect();
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let manifest = format!(r#"[{{"Layers":[{}]}}]"#, quoted.join(","));
    let mut entries = vec![("manifest.json", b'0', "", manifest.as_bytes())];
    for (name, bytes) in names.iter().zip(layers) {
        entries.push((name, b'0', "", bytes));
    }
    fs::write(&tar, archive(&entries)).unwrap();
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    clean(&img);
    img
}

fn found(img: &Path) -> Vec<String> {
    let listed = diorite(&["find", path(img), "/", "-type", "f"]).ok().text();
    listed.lines().map(str::to_owned).collect()
}

/// The defect: a name that a layer gave to a file of a lower layer was taken for one of the lower layer, and its marks removed it.
#[test]
fn links_to_files_below_are_of_the_layer_that_has_them() {
    let dir = scratch();
    let below = archive(&[
        ("a", b'0', "", b"A"),
        ("d/x", b'0', "", b"x"),
        ("e/x", b'0', "", b"x"),
    ]);
    let above = archive(&[
        ("d/c", b'1', "a", b""),
        ("d/.wh..wh..opq", b'0', "", b""),
        ("e/x", b'1', "a", b""),
        ("e/.wh.x", b'0', "", b""),
        (".wh.a", b'0', "", b""),
    ]);
    let img = saved(dir.path(), &[below.clone(), above]);
    assert_eq!(found(&img), ["/d/c", "/e/x"]);
    assert_eq!(diorite(&["cat", path(&img), "/e/x"]).ok().text(), "A");
    // What was linked by one layer is below for the next one.
    let link = archive(&[("d/c", b'1', "a", b"")]);
    let mark = archive(&[("d/.wh..wh..opq", b'0', "", b"")]);
    let img = saved(dir.path(), &[below, link, mark]);
    assert_eq!(found(&img), ["/a", "/e/x"]);
}

/// The defect: a mark in a directory that was named by a symbolic link removed nothing.
#[test]
fn marks_of_directories_follow_links() {
    let dir = scratch();
    let below = archive(&[("lib", b'2', "usr/lib", b""), ("usr/lib/x", b'0', "", b"x")]);
    let above = archive(&[
        ("lib/.wh..wh..opq", b'0', "", b""),
        ("lib/y", b'0', "", b"y"),
    ]);
    let img = saved(dir.path(), &[below, above]);
    assert_eq!(found(&img), ["/usr/lib/y"]);
}

/// An archive of docker save, and the same image as an archive of an OCI layout, as Docker, skopeo and podman name what is in them.
fn named_archives(dir: &Path) -> [Vec<u8>; 2] {
    let layers = layers(dir);
    let digests: Vec<String> = layers.iter().map(|bytes| digest(bytes)).collect();
    let each = |text: &dyn Fn(&String) -> String| {
        let all: Vec<String> = digests.iter().map(text).collect();
        all.join(",")
    };
    let names: Vec<String> = digests.iter().map(|hex| format!("{hex}.tar")).collect();
    let saved = format!(
        r#"[{{"Layers":[{}]}}]"#,
        each(&|hex| format!("\"{hex}.tar\""))
    );
    let mut entries: Vec<_> = names
        .iter()
        .zip(&layers)
        .map(|(name, bytes)| (&name[..], b'0', "", &bytes[..]))
        .collect();
    entries.push(("manifest.json", b'0', "", saved.as_bytes()));
    let saved = archive(&entries);
    let kind = "application/vnd.oci.image.layer.v1.tar";
    let text = each(&|hex| format!(r#"{{"mediaType":"{kind}","digest":"sha256:{hex}"}}"#));
    let manifest = format!(r#"{{"layers":[{text}]}}"#);
    let hex = digest(manifest.as_bytes());
    let index = format!(r#"{{"manifests":[{{"digest":"sha256:{hex}"}}]}}"#);
    let names = digests.iter().chain([&hex]);
    let names: Vec<String> = names.map(|hex| format!("./blobs/sha256/{hex}")).collect();
    let blobs = layers.iter().map(|bytes| &bytes[..]);
    let blobs = blobs.chain([manifest.as_bytes()]);
    let mut entries: Vec<_> = std::iter::once(("./", b'5', "", &b""[..]))
        .chain(
            names
                .iter()
                .zip(blobs)
                .map(|(n, bytes)| (&n[..], b'0', "", bytes)),
        )
        .collect();
    entries.push(("./index.json", b'0', "", index.as_bytes()));
    entries.push(("./oci-layout", b'0', "", b"{}"));
    [saved, archive(&entries)]
}

/// The defect: an archive of docker save that was packed or came from a pipe, and any archive of an OCI layout, became an image with
/// `layer.tar` and `manifest.json` in it, or was refused as damaged.
#[test]
fn archives_of_containers_may_be_packed_and_piped() {
    let dir = scratch();
    let (img, out) = (dir.path().join("img"), dir.path().join("x.tar"));
    let diorite_bin = env!("CARGO_BIN_EXE_diorite");
    for (bytes, words) in named_archives(dir.path())
        .iter()
        .zip([["docker:", "docker-archive:"], ["oci:", "oci-archive:"]])
    {
        fs::write(&out, bytes).unwrap();
        for pack in ["cat", "gzip -c", "zstd -qc"] {
            let packed = dir.path().join("packed");
            let script = format!("{pack} < \"$0\" > \"$1\"");
            run("sh", &["-c", &script, path(&out), path(&packed)]);
            for word in ["", words[0], words[1]] {
                let source = format!("{word}{}", path(&packed));
                diorite(&["import", "-q", &source, path(&img)]).ok();
                check(&img);
                let piped = format!("cat \"$1\" | \"$0\" import -q {word}- \"$2\"");
                let args = ["-c", &piped, diorite_bin, path(&packed), path(&img)];
                run("sh", &args);
                check(&img);
            }
            // Who says that it is a tar archive gets what is in it.
            let source = format!("tar:{}", path(&packed));
            diorite(&["import", "-q", &source, path(&img)]).ok();
            let all = found(&img).join(" ");
            assert!(all.contains("json"), "{all}");
        }
        let other = if words[0] == "oci:" {
            "docker:"
        } else {
            "oci:"
        };
        let source = format!("{other}{}", path(&out));
        diorite(&["import", "-q", &source, path(&img)]).failed(1, "the archive has no ");
    }
}

/// The defect: an archive of files one of which has the name `manifest.json` was refused.
#[test]
fn a_manifest_of_something_else_is_a_file() {
    let dir = scratch();
    let (tar, img) = (dir.path().join("x.tar"), dir.path().join("img"));
    let bytes = archive(&[("manifest.json", b'0', "", br#"{"name":"an app"}"#)]);
    fs::write(&tar, bytes).unwrap();
    diorite(&["import", "-q", path(&tar), path(&img)]).ok();
    assert_eq!(found(&img), ["/manifest.json"]);
}

/// The defect: a layer of aufs was refused whose files with several names are links to its own directory of them.
#[test]
fn links_of_aufs_are_resolved() {
    let dir = scratch();
    let layer = archive(&[
        (".wh..wh.plnk/", b'5', "", b""),
        ("./.wh..wh.plnk/12.34", b'0', "", b"shared"),
        (".wh..wh.plnk/nobody", b'0', "", b"x"),
        ("a", b'1', ".wh..wh.plnk/12.34", b""),
        ("d/b", b'1', "/.wh..wh.plnk/12.34", b""),
        ("c", b'0', "", b"c"),
        (".wh..wh.plnk/5.6", b'1', "c", b""),
        ("e", b'1', ".wh..wh.plnk/5.6", b""),
    ]);
    let img = saved(dir.path(), &[layer]);
    assert_eq!(found(&img), ["/a", "/c", "/d/b", "/e"]);
    assert_eq!(diorite(&["cat", path(&img), "/d/b"]).ok().text(), "shared");
    for name in ["/a", "/d/b", "/c", "/e"] {
        let links = diorite(&["stat", "-c", "%h", path(&img), name]);
        assert_eq!(links.ok().text(), "2\n", "{name}");
    }
    let layer = archive(&[("a", b'1', ".wh..wh.plnk/1.2", b"")]);
    let tar = dir.path().join("saved.tar");
    let manifest = br#"[{"Layers":["l"]}]"#;
    let entries = [
        ("l", b'0', "", &layer[..]),
        ("manifest.json", b'0', "", manifest),
    ];
    fs::write(&tar, archive(&entries)).unwrap();
    diorite(&["import", "-q", path(&tar), path(&img)]).failed(1, ".wh..wh.plnk/1.2");
}

/// The defect: what aufs keeps for itself in a layer was left out, but not what is in its directories.
#[test]
fn directories_of_aufs_are_left_out_with_what_is_in_them() {
    let dir = scratch();
    let img = saved(
        dir.path(),
        &[archive(&[
            (".wh..wh.aufs", b'0', "", b""),
            (".wh..wh.plnk", b'5', "", b""),
            (".wh..wh.plnk/1.2", b'0', "", b"x"),
            ("file", b'0', "", b"x"),
        ])],
    );
    assert_eq!(found(&img), ["/file"]);
    let below = diorite(&["find", path(&img), "/"]).ok().text();
    assert!(!below.contains(".wh."), "{below}");
}

/// The defect: an image that has two names (tags) in a layout was taken for two images.
#[test]
fn an_image_may_have_several_names() {
    let dir = scratch();
    let (layout, img) = (dir.path().join("layout"), dir.path().join("img"));
    let of = |name: &str| archive(&[(name, b'0', "", b"x")]);
    let manifest = |bytes: &[u8]| {
        let digest = blob(&layout, bytes);
        let kind = "application/vnd.oci.image.layer.v1.tar";
        let text = format!(r#"{{"layers":[{{"mediaType":"{kind}","digest":"{digest}"}}]}}"#);
        blob(&layout, text.as_bytes())
    };
    let (one, other) = (manifest(&of("one")), manifest(&of("other")));
    let index = |digests: [&str; 2]| {
        let [a, b] = digests.map(|digest| format!(r#"{{"digest":"{digest}"}}"#));
        fs::write(
            layout.join("index.json"),
            format!(r#"{{"manifests":[{a},{b}]}}"#),
        )
        .unwrap();
    };
    fs::write(layout.join("oci-layout"), "{}").unwrap();
    index([&one, &one]);
    diorite(&["import", "-q", path(&layout), path(&img)]).ok();
    clean(&img);
    assert_eq!(found(&img), ["/one"]);
    index([&one, &other]);
    diorite(&["import", "-q", path(&layout), path(&img)]).failed(1, "it has 2 images");
}

/// The defect: of an archive with several images none could be taken.
#[test]
fn one_image_of_several_is_taken_by_name() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let layer = |text: &[u8]| super::archives::archive(&[("who", b'0', "", text)]);
    let manifest = r#"[{"Config":"c","RepoTags":["a:1","a:latest"],"Layers":["1.tar"]},
        {"Config":"c","RepoTags":null,"Layers":["1.tar"]},
        {"Config":"c","RepoTags":["host:5000/b:2"],"Layers":["2.tar"]}]"#;
    let bytes = super::archives::archive(&[
        ("manifest.json", b'0', "", manifest.as_bytes()),
        ("1.tar", b'0', "", &layer(b"first")),
        ("2.tar", b'0', "", &layer(b"second")),
    ]);
    fs::write(at("x.tar"), bytes).unwrap();
    let import = |name: &str| {
        let word = format!("docker:{}{name}", path(&at("x.tar")));
        diorite(&["import", "-q", &word, path(&at("img"))])
    };
    for (name, who) in [
        (":a:1", "first"),
        (":a", "first"),
        (":host:5000/b:2", "second"),
    ] {
        import(name).ok();
        assert_eq!(
            diorite(&["cat", path(&at("img")), "/who"]).ok().text(),
            who,
            "{name}"
        );
    }
    import("").failed(
        1,
        "3 images: 'docker:ARCHIVE:NAME' is one of them (a:1, a:latest, host:5000/b:2)",
    );
    import(":b").failed(1, "no image b (a:1");
}
