//! What it is: the judges of one state of a volume whose size was changing.
//! Input: an image as a power cut left it, what it may be. Output: findings, in words. Steps: diorite's check must find nothing in
//! the state as it is. Copy A is recovered by diorite, copy B repaired by `e2fsck -fy`, copy C (if requested) mounted by the kernel,
//! which then writes until there is no space. Each of them must have one of the sizes and the files; `e2fsck -fn` and diorite's check
//! must find nothing in it. Without a journal, A begins with what e2fsck has repaired. Invariant: each excused line of e2fsck is
//! listed here. Limit: one state at a time.

use super::history::Told;
use crate::bed::scratch;
use crate::error::{Result, at};
use crate::left;
use crate::torn::{Super, superblock};
use diorite::{OpenOptions, Volume};
use diorite_block::{Device, MemDevice};
use diorite_check::{CheckOptions, Kind, check_device};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xtask::run;

/// Blocks that nobody uses, as a move of the journal may leave them.
const LEAKS: [&str; 3] = [
    "Block bitmap differences:  -",
    "Free blocks count wrong",
    "Padding at end",
];
/// The state as it is. In the middle of a change of the size the superblock says that no recovery is needed, and has the mark of an orphan
/// file in use, as e2fsck tells too.
const CUT: &str = "what the power cut left";
/// The superblock was replaced by a copy, whose counts are old.
const FROM_COPY: [&str; 2] = ["Free blocks count wrong (", "Free inodes count wrong ("];

/// See the module.
#[derive(Debug)]
pub struct Judge {
    dir: tempfile::TempDir,
}

/// What is excused.
#[derive(Clone, Copy)]
struct Excuses {
    leaks: bool,
    copy: bool,
}

impl Judge {
    /// A judge.
    ///
    /// # Errors
    /// The host has no room.
    pub fn new() -> Result<Judge> {
        Ok(Judge { dir: scratch()? })
    }

    /// Judges a state: a cut at a position of the log.
    ///
    /// # Errors
    /// A tool is missing, or the host has no room.
    pub fn judge(
        &self,
        image: &[u8],
        (told, cut): (&Told, usize),
        kernel: bool,
    ) -> Result<Vec<String>> {
        let mut found = Vec::new();
        let whole = superblock(image);
        if whole == Super::Lost {
            return Ok(found);
        }
        let excuses = Excuses {
            leaks: told.may_leak(cut),
            copy: whole == Super::Torn,
        };
        let converts = told.converts(cut);
        let b = self.put("b", image)?;
        match run::repair(&b) {
            Err(error) if !converts => found.push(format!("e2fsck repairs: {error}")),
            _ => {}
        }
        let repaired = left::read(&b, image.len())?;
        let start = if told.journal { image } else { &repaired };
        if told.journal && !excuses.copy {
            let device = memory(image)?;
            self.checked(&device, CUT, excuses, &mut found);
        }
        let by = |bytes: &[u8], who: &str, excuses: Excuses, found: &mut Vec<String>| {
            let device = memory(bytes)?;
            match Volume::open_device(device.clone(), &OpenOptions::writable()) {
                Ok(volume) => {
                    told.judge(&volume, cut, who, found);
                    if let Err(error) = volume.close() {
                        found.push(format!("{who} is closed: {error}"));
                    }
                }
                Err(error) => found.push(format!("{who} is opened: {error}")),
            }
            self.whole(&device, who, excuses, found)
        };
        by(start, "copy A", excuses, &mut found)?;
        if converts {
            return Ok(found);
        }
        let nothing = Excuses {
            leaks: false,
            copy: false,
        };
        by(&repaired, "copy B", nothing, &mut found)?;
        if kernel && told.journal && whole == Super::Whole {
            let c = self.put("c", image)?;
            match self.filled(&c) {
                Ok(()) => {
                    let bytes = left::read(&c, image.len())?;
                    by(&bytes, "copy C", excuses, &mut found)?;
                }
                Err(error) => found.push(format!("the kernel: {error}")),
            }
        }
        Ok(found)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        std::fs::write(&path, bytes).map_err(at(&path))?;
        Ok(path)
    }

    /// Both checks of a whole volume.
    fn whole(
        &self,
        device: &Arc<MemDevice>,
        who: &str,
        excuses: Excuses,
        found: &mut Vec<String>,
    ) -> Result<()> {
        self.checked(device, who, excuses, found);
        let mut bytes = vec![0; usize::try_from(device.geometry().size).unwrap_or(0)];
        device.read_at(0, &mut bytes);
        let path = self.put("whole", &bytes)?;
        let said = run::tool("e2fsck").arg("-fn").arg(&path).output();
        let said = said.map_err(at(&path))?;
        let text = String::from_utf8_lossy(&said.stdout);
        let excused = |line: &&str| {
            let any = |of: &[&str]| of.iter().any(|words| line.starts_with(words));
            excuses.leaks && any(&LEAKS) || excuses.copy && any(&FROM_COPY)
        };
        let tells = |line: &&str| {
            line.contains("wrong") || line.contains("differences") || line.ends_with("? no")
        };
        let is_answer = |line: &&str| line.trim_end() == "Fix? no";
        let mut lines = text.lines().filter(|line| tells(line) && !is_answer(line));
        if let Some(line) = lines.find(|line| !excused(line)) {
            found.push(format!("e2fsck -fn of {who}: {line}"));
        } else if !said.status.success() && !excuses.leaks && !excuses.copy {
            found.push(format!("e2fsck -fn of {who}: {text}"));
        }
        Ok(())
    }

    fn checked(
        &self,
        device: &Arc<MemDevice>,
        who: &str,
        excuses: Excuses,
        found: &mut Vec<String>,
    ) {
        let device: Arc<dyn Device> = device.clone();
        let options = CheckOptions::default().threads(1);
        let report = match check_device(&device, &options, &|_| ()) {
            Ok(report) => report,
            Err(error) => return found.push(format!("our check of {who}: {error}")),
        };
        let excused = |kind: Kind, what: &str| {
            let counts = kind == Kind::Counters && (excuses.copy || excuses.leaks);
            let mark = who == CUT && what.contains("orphan_present");
            counts || mark || kind == Kind::BlockBitmap && excuses.leaks
        };
        let mut kept = report.kept();
        if let Some((kind, finding)) = kept.find(|(kind, finding)| !excused(*kind, &finding.what)) {
            found.push(format!("our check of {who}: {kind}: {finding}"));
        }
    }

    /// The kernel recovers the volume, and writes until there is no space.
    fn filled(&self, image: &Path) -> std::result::Result<(), String> {
        let at = self.dir.path().join("mounted");
        std::fs::create_dir_all(&at).map_err(|error| error.to_string())?;
        let mount = run::tool("mount")
            .args(["-t", "ext4", "-o", "loop"])
            .args([image, &at])
            .output();
        let mount = mount.map_err(|error| error.to_string())?;
        if !mount.status.success() {
            return Err(String::from_utf8_lossy(&mount.stderr).into_owned());
        }
        let filled = fill(&at);
        xtask::mount::unmount(&at).map_err(|error| error.to_string())?;
        filled.map_err(|error| error.to_string())
    }
}

fn memory(bytes: &[u8]) -> Result<Arc<MemDevice>> {
    let device = Arc::new(MemDevice::try_new(bytes.len() as u64)?);
    device.write_at(0, bytes);
    Ok(device)
}

fn fill(at: &Path) -> std::io::Result<()> {
    for n in 0usize.. {
        let bytes = vec![0x6B; 1000 + n * 997 % 300_000];
        let file = std::fs::File::create(at.join(format!("filler{n}")));
        match file.and_then(|mut file| file.write_all(&bytes)) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
