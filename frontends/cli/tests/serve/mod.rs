//! `diorite serve nbd` and the clients of others: libnbd's tools, qemu's, fio. What is written and flushed survives the server's death.

mod inside;

use crate::common::{diorite, overlays, scratch, skip};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MIB: usize = 1 << 20;

/// A running server; killed when it is dropped.
struct Served {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    uri: String,
    socket: PathBuf,
}

impl Served {
    fn start(dir: &Path, args: &[&str]) -> Served {
        let socket = dir.join("nbd.sock");
        let mut child = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(["serve", "nbd", "-v", "--socket", socket.to_str().unwrap()])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with("listening at "), "{line:?}");
        let uri = line.split(' ').next_back().unwrap().trim().to_owned();
        assert_eq!(uri, format!("nbd+unix:///?socket={}", socket.display()));
        Served {
            child,
            out,
            uri,
            socket,
        }
    }

    fn uri_of(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Ends it with SIGTERM; what it printed, which is no error.
    fn end(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let (mut text, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut text).unwrap();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut err).unwrap();
        assert_eq!(
            (self.child.wait().unwrap().code(), err.as_str()),
            (Some(0), "")
        );
        assert!(!self.socket.exists(), "the socket is removed");
        text
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A tool of the host, without the Python of others in front. None, with a reason, if it is not there.
fn tool(name: &str) -> Option<Command> {
    let mut asked = xtask::run::tool(name);
    asked.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    if !asked
        .arg("--version")
        .output()
        .is_ok_and(|out| out.status.success())
    {
        skip(format!("{name} is not installed"));
        return None;
    }
    let mut command = xtask::run::tool(name);
    command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    Some(command)
}

#[track_caller]
fn ok(mut command: Command) -> String {
    let out = command.output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {err}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Bytes that are not zero, different for each seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8 | 1
    };
    (0..len).map(|_| next()).collect()
}

/// An image of 16 MiB, the second quarter a hole.
fn sparse(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    let file = fs::File::create(&path).unwrap();
    file.set_len(16 * MIB as u64).unwrap();
    for quarter in [0, 2, 3] {
        let data = noise(quarter + 1, 4 * MIB);
        std::os::unix::fs::FileExt::write_all_at(&file, &data, quarter * 4 * MIB as u64).unwrap();
    }
    path
}

#[test]
fn nbdinfo_sees_what_is_announced() {
    let Some(mut info) = tool("nbdinfo") else {
        return;
    };
    let dir = scratch();
    let img = sparse(dir.path(), "disk.img");
    let named = format!("other={}", img.display());
    let served = Served::start(dir.path(), &["-r", img.to_str().unwrap(), &named, "mem:1M"]);
    info.args(["--json", &served.uri]);
    let text = ok(info);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let export = &json["exports"][0];
    assert_eq!(json["structured"], true);
    assert_eq!(export["export-size"], 16 * MIB);
    assert_eq!(
        (&export["is_read_only"], &export["can_multi_conn"]),
        (&true.into(), &true.into())
    );
    assert_eq!(export["block_size_minimum"], 512);
    assert_eq!(export["contexts"][0], "base:allocation");
    let mut list = tool("nbdinfo").unwrap();
    list.args(["--list", &served.uri]);
    let list = ok(list);
    for name in ["disk.img", "other", "mem"] {
        assert!(list.contains(&format!("export=\"{name}\":")), "{list}");
    }
    let text = served.end();
    assert!(text.contains("export \"disk.img\": "), "{text}");
    assert!(text.contains("0 turned away"), "{text}");
}

#[test]
fn nbdcopy_copies_both_ways() {
    let Some(mut copy) = tool("nbdcopy") else {
        return;
    };
    let dir = scratch();
    let img = sparse(dir.path(), "disk.img");
    let empty = dir.path().join("empty.img");
    fs::File::create(&empty)
        .unwrap()
        .set_len(16 * MIB as u64)
        .unwrap();
    let served = Served::start(
        dir.path(),
        &[img.to_str().unwrap(), empty.to_str().unwrap()],
    );
    let out = dir.path().join("out.img");
    copy.args(["--connections=4", &served.uri, out.to_str().unwrap()]);
    ok(copy);
    assert!(fs::read(&img).unwrap() == fs::read(&out).unwrap());
    let mut back = tool("nbdcopy").unwrap();
    let to = served.uri_of("empty.img");
    back.args(["--connections=4", "--flush", out.to_str().unwrap(), &to]);
    ok(back);
    let mut across = tool("nbdcopy").unwrap();
    across.args([&served.uri, &to]);
    ok(across);
    served.end();
    assert!(fs::read(&img).unwrap() == fs::read(&empty).unwrap());
}

/// Writes, zeros, trims and reads through libnbd's Python binding.
#[test]
fn nbdsh_requests_everything() {
    let Some(mut sh) = tool("nbdsh") else { return };
    let dir = scratch();
    let served = Served::start(dir.path(), &["mem:16M"]);
    let script = "
h.pwrite(b'x' * 8192, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(8192, 4096) == b'x' * 8192
h.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE)
h.zero(4096, 1048576, nbd.CMD_FLAG_FAST_ZERO)
h.trim(4096, 12288, nbd.CMD_FLAG_FUA)
h.cache(4096, 0)
h.flush()
assert h.pread(8192, 4096) == b'\\0' * 4096 + b'x' * 4096
chunks = []
h.pread_structured(16384, 0, lambda *a: chunks.append(a[2]))
assert sorted(chunks) == [nbd.READ_DATA, nbd.READ_HOLE, nbd.READ_HOLE], chunks
mode = h.get_strict_mode()
h.set_strict_mode(0)
for at in [1, 16 << 20]:
    try:
        h.pread(512, at)
        assert False
    except nbd.Error as e:
        assert e.errno == 'EINVAL', e.errno
h.set_strict_mode(mode)
whole = []
h.pread_structured(16384, 0, lambda *a: whole.append(a[2]), nbd.CMD_FLAG_DF)
assert whole == [nbd.READ_DATA], whole
print('fine')
";
    sh.args(["-u", &served.uri, "-c", script]);
    assert_eq!(ok(sh).trim(), "fine");
    let text = served.end();
    assert!(text.contains("2 refused, 0 failed"), "{text}");
}

#[test]
fn qemu_converts_compares_and_writes() {
    let (Some(mut convert), Some(mut io)) = (tool("qemu-img"), tool("qemu-io")) else {
        return;
    };
    let dir = scratch();
    let img = sparse(dir.path(), "disk.img");
    let served = Served::start(dir.path(), &[img.to_str().unwrap()]);
    let copy = dir.path().join("copy.qcow2");
    convert.args([
        "convert",
        "-f",
        "raw",
        "-O",
        "qcow2",
        &served.uri,
        copy.to_str().unwrap(),
    ]);
    ok(convert);
    let compare = || {
        let mut compare = tool("qemu-img").unwrap();
        compare.args([
            "compare",
            "-f",
            "raw",
            "-F",
            "qcow2",
            &served.uri,
            copy.to_str().unwrap(),
        ]);
        compare
    };
    ok(compare());
    io.args(["-f", "raw", &served.uri]);
    for command in [
        "write -P 7 1M 64k",
        "read -P 7 1M 64k",
        "write -f -P 8 2M 64k",
        "write -z 1M 4k",
        "write -z -u 3M 64k",
        "discard 4M 64k",
        "flush",
        "read -P 0 1M 4k",
        "read -P 8 2M 64k",
        "read -P 0 3M 64k",
    ] {
        io.args(["-c", command]);
    }
    let text = ok(io);
    assert!(!text.contains("failed"), "{text}");
    assert!(
        !compare().output().unwrap().status.success(),
        "they differ now"
    );
    let mut map = tool("qemu-img").unwrap();
    map.args(["map", "-f", "raw", "--output=json", &served.uri]);
    let map: serde_json::Value = serde_json::from_str(&ok(map)).unwrap();
    let sum: u64 = map
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["length"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, 16 * MIB as u64);
    served.end();
    let bytes = fs::read(&img).unwrap();
    assert!(bytes[MIB + 4096..MIB + 65536].iter().all(|b| *b == 7));
    assert!(bytes[2 * MIB..2 * MIB + 65536].iter().all(|b| *b == 8));
}

#[test]
fn fio_verifies_over_several_connections() {
    let Some(mut help) = tool("fio") else { return };
    if !ok({
        help.arg("--enghelp");
        help
    })
    .contains("nbd")
    {
        return skip("fio has no engine nbd");
    }
    let dir = scratch();
    let img = sparse(dir.path(), "disk.img");
    let served = Served::start(dir.path(), &[img.to_str().unwrap()]);
    let mut fio = tool("fio").unwrap();
    let uri = format!("--uri={}", served.uri);
    fio.current_dir(dir.path()).args([
        "--name=v",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bsrange=4k-64k",
        "--iodepth=64",
        "--numjobs=4",
        "--size=4M",
        "--offset_increment=4M",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--do_verify=1",
        "--loops=3",
        "--trim_percentage=0",
        "--thread",
    ]);
    ok(fio);
    served.end();
}

/// The server is in a sandbox unless it is told otherwise, and says so.
#[test]
fn in_a_sandbox() {
    let dir = scratch();
    // Filters of a process; this one may have some itself, in a container.
    let filters = |process: &str| -> u32 {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line.unwrap().trim().parse().unwrap()
    };
    let of = |served: &Served| filters(&served.child.id().to_string());
    let own = filters("self");
    let served = Served::start(dir.path(), &["mem:1M"]);
    assert_eq!(of(&served), own + 1);
    let text = served.end();
    assert!(text.contains("sandbox: files "), "{text}");
    assert!(text.contains("; system calls limited to "), "{text}");
    let served = Served::start(dir.path(), &["--no-sandbox", "mem:1M"]);
    assert_eq!(of(&served), own);
    assert!(!served.end().contains("sandbox"));
}

/// A service manager ends a server with all processes of its own: what removes the server's files outlives the signal. The server is spared
/// when memory is short, where root starts it.
#[test]
fn ended_with_all_its_processes() {
    let dir = scratch();
    let pid_file = dir.path().join("pid");
    let served = Served::start(
        dir.path(),
        &["--pid-file", pid_file.to_str().unwrap(), "mem:1M"],
    );
    let pid = served.child.id();
    assert!(pid_file.exists());
    let lower = Command::new("sh")
        .args(["-c", "echo -900 > /proc/self/oom_score_adj"])
        .output();
    if lower.unwrap().status.success() {
        let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        assert!(score.trim().parse::<i32>().unwrap() <= -900, "{score}");
    } else {
        skip("this user may not lower oom_score_adj");
    }
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let children: Vec<i32> = children
        .split_whitespace()
        .map(|child| child.parse().unwrap())
        .collect();
    assert!(!children.is_empty());
    for signal in ["HUP", "INT", "TERM"] {
        for child in &children {
            crate::common::run("kill", &["-s", signal, &child.to_string()]);
        }
    }
    served.end();
    assert!(!pid_file.exists(), "the pid file is removed");
}

/// `kill -9` loses nothing that was flushed.
#[test]
fn killed() {
    let Some(mut copy) = tool("nbdcopy") else {
        return;
    };
    let dir = scratch();
    let source = sparse(dir.path(), "source.img");
    let outer = crate::common::image(dir.path(), "outer.img", "64M", &["-t", "ext4"], None);
    let (empty, inner) = (dir.path().join("empty.img"), dir.path().join("inner.img"));
    fs::File::create(&empty)
        .unwrap()
        .set_len(16 * MIB as u64)
        .unwrap();
    fs::File::create(&inner)
        .unwrap()
        .set_len(16 * MIB as u64)
        .unwrap();
    diorite(&["put", &outer, inner.to_str().unwrap(), "/inner.img"]).ok();
    let inside = format!("{outer}!/inner.img");
    let mut served = Served::start(dir.path(), &[empty.to_str().unwrap(), &inside]);
    copy.args(["--flush", source.to_str().unwrap(), &served.uri]);
    ok(copy);
    let mut copy = tool("nbdcopy").unwrap();
    copy.args([
        "--flush",
        source.to_str().unwrap(),
        &served.uri_of("inner.img"),
    ]);
    ok(copy);
    served.signal(rustix::process::Signal::KILL);
    assert_eq!(served.child.wait().unwrap().code(), None);
    assert!(fs::read(&source).unwrap() == fs::read(&empty).unwrap());
    diorite(&["recover", &outer]).ok();
    diorite(&["cmp", &outer, "/inner.img", source.to_str().unwrap()]).ok();
    crate::common::run("e2fsck", &["-fn", &outer]);
    // Its socket is still there, and the next server replaces it.
    assert!(served.socket.exists());
    Served::start(dir.path(), &["mem:1M"]).end();
}

/// A disk that fails half-way, and another export beside it.
#[test]
fn a_disk_that_fails() {
    let Some(mut io) = tool("qemu-io") else {
        return;
    };
    let dir = scratch();
    let bad = "bad=sim:16M,latency=1us,eio=2+1000000";
    let served = Served::start(dir.path(), &[bad, "good=mem:16M"]);
    io.args([
        "-f",
        "raw",
        &served.uri_of("bad"),
        "-c",
        "read 0 64k",
        "-c",
        "read 1M 64k",
    ]);
    let out = io.output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("Input/output error"), "{text}");
    let mut io = tool("qemu-io").unwrap();
    io.args([
        "-f",
        "raw",
        &served.uri_of("good"),
        "-c",
        "write -P 5 0 1M",
        "-c",
        "read -P 5 0 1M",
        "-c",
        "flush",
    ]);
    assert!(!ok(io).contains("failed"));
    served.end();
}

#[test]
fn a_signal_prints_statistics() {
    let dir = scratch();
    let pid_file = dir.path().join("pid");
    let mut served = Served::start(
        dir.path(),
        &["--pid-file", pid_file.to_str().unwrap(), "mem:1M"],
    );
    while !pid_file.exists() {
        std::thread::yield_now();
    }
    served.signal(rustix::process::Signal::USR1);
    let mut line = String::new();
    served.out.read_line(&mut line).unwrap();
    assert!(line.starts_with("sandbox: "), "{line}");
    line.clear();
    served.out.read_line(&mut line).unwrap();
    assert!(
        line.starts_with("export \"mem\": 0 clients, 0 reads"),
        "{line}"
    );
    assert_eq!(
        fs::read_to_string(&pid_file).unwrap().trim(),
        served.child.id().to_string()
    );
    served.end();
    assert!(!pid_file.exists());
}

#[test]
fn wrong_usage_and_what_cannot_be_served() {
    let dir = scratch();
    let socket = dir.path().join("s");
    let socket = socket.to_str().unwrap();
    diorite(&["serve", "nbd", "mem:1M"]).failed(2, "--socket");
    diorite(&["serve", "nbd", "--socket", socket]).failed(2, "LOCATOR");
    let missing = dir.path().join("missing.img");
    diorite(&[
        "serve",
        "nbd",
        "--socket",
        socket,
        missing.to_str().unwrap(),
    ])
    .failed(1, "No such file");
    let twice = ["serve", "nbd", "--socket", socket, "a=mem:1M", "a=mem:1M"];
    diorite(&twice).failed(1, "two exports have the name \"a\"");
    let open = ["serve", "nbd", "--listen", "0.0.0.0:0", "mem:1M"];
    diorite(&open).failed(1, "is not a loopback address");
    let names = [
        "serve", "nbd", "--socket", socket, "--name", "a", "--name", "b", "mem:1M",
    ];
    diorite(&names).failed(2, "more names than locators");
    let served = Served::start(dir.path(), &["mem:1M"]);
    let taken = served.socket.to_str().unwrap();
    diorite(&["serve", "nbd", "--socket", taken, "mem:1M"]).failed(1, "another server answers");
    served.end();
}

/// The defect: the sandbox of the server had the image and not what it names, so no overlay could be served.
#[test]
fn overlays_are_served() {
    if tool("nbdcopy").is_none() {
        return;
    }
    let dir = scratch();
    let img = sparse(dir.path(), "disk.img");
    let Some(over) = overlays(&img) else { return };
    let before = fs::read(&img).unwrap();
    let new = noise(9, before.len());
    let source = dir.path().join("new.img");
    fs::write(&source, &new).unwrap();
    for over in over {
        for (options, ways, want) in [
            (&["-r"][..], "?backing", &before),
            (&[], "?backing&ro", &before),
            (&[], "?backing", &new),
        ] {
            let locator = format!("{}{ways}", over.display());
            let served = Served::start(dir.path(), &[options, &[&locator]].concat());
            let out = dir.path().join("out.img");
            for (from, to) in [
                (source.to_str().unwrap(), &*served.uri),
                (&*served.uri, out.to_str().unwrap()),
            ] {
                if to == served.uri && want != &new {
                    continue;
                }
                let mut copy = tool("nbdcopy").unwrap();
                copy.args(["--flush", from, to]);
                ok(copy);
            }
            served.end();
            assert!(&fs::read(&out).unwrap() == want, "{locator} {options:?}");
        }
        let mut check = xtask::run::tool("qemu-img");
        check.args(["check", "-q", "-f", "qcow2"]).arg(&over);
        ok(check);
    }
    assert!(fs::read(&img).unwrap() == before);
}
