//! A qcow2 file as a device.
//!
//! Input: a [`FormatRequest`]: the file, open as a device, which holds the locks on it. Output: a device of the disk in it; a new file.
//! Invariants: the header, and the tables of a file that is written, are judged before the file is written to; a backing file or a file for
//! the data is opened only if that is allowed; a flush makes the tables durable with the data; a file that is written is marked as dirty
//! (`mark`), and one that was not closed is repaired first (`counts`). Limits: the file is read and written through the host's page cache.

use crate::counts::repair;
use crate::disk::{Disk, Turns};
use crate::header::{Header, LOOKED_AT, check_counts};
use crate::judge::{Judged, judge};
use crate::mark::Mark;
use crate::storage::{Below, Roots};
use crate::tables::check_first_table;
use diorite_block::device::DeviceErrorKind;
use diorite_block::locator::{self, FormatRequest, ImageFormat, OpenOptions};
use diorite_block::{
    Bio, Blocking, Buf, CallPool, CallQueue, Device, DeviceError, DeviceQueue, DeviceReport,
    Geometry, Locator, QueueOptions, Run, RunsBios,
};
use imago::file::File;
use imago::qcow2::Qcow2;
use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder,
    PermissiveImplicitOpenGate, StorageOpenOptions,
};
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Files behind each other, at most.
const MOST_BEHIND: usize = 64;

/// The device.
struct Qcow2Device {
    pool: Arc<CallPool<Disk>>,
    name: String,
    /// Holds the locks on the file; behind the pool, which writes when it ends.
    below: Arc<dyn Device>,
    /// Those of the files behind it: who would overwrite one of them sees that it is in use.
    _chain: Vec<Arc<dyn Device>>,
}

/// Opens a qcow2 file: for `diorite_block::locator::register_qcow2`.
///
/// # Errors
/// It is no such file, is refused, or needs a file that is not allowed.
pub fn open(request: FormatRequest<'_>) -> Result<Arc<dyn Device>, DeviceError> {
    let refused = |why: String| {
        let what = format!("{}: {why}", request.name);
        DeviceError::new(DeviceErrorKind::Unsupported, what)
    };
    let mut header = look(&request.below, request.path).map_err(refused)?;
    check_allowed(&header, &request).map_err(refused)?;
    let failed = |e: io::Error| DeviceError::host(format!("{}: qcow2: {e}", request.name), e);
    if header.is_dirty() {
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).open(request.path);
        let repaired = file.and_then(|file| repair(&file, &header));
        repaired.map_err(failed)?;
        header = look(&request.below, request.path).map_err(refused)?;
    }
    let judged = match request.write {
        true => Some(writable(&request, &header).map_err(refused)?),
        false => {
            check_tables(request.path, &header).map_err(refused)?;
            None
        }
    };
    let chain = match request.backing {
        true => chain(request.path, &header).map_err(refused)?,
        false => Vec::new(),
    };
    let mark = match (request.write, header.features) {
        (true, Some(features)) => Some(Mark::new(request.path, features).map_err(failed)?),
        _ => None,
    };
    let file = storage(request.path, request.write).map_err(failed)?;
    let disk = disk(file, &header, judged, mark, request.backing).map_err(failed)?;
    Ok(Arc::new(Qcow2Device {
        pool: Arc::new(CallPool::new("qcow2", disk)),
        name: request.name,
        below: request.below,
        _chain: chain,
    }))
}

/// The disk in a file whose header was checked. `judged`: if it is written.
pub(crate) fn disk(
    file: File,
    header: &Header,
    judged: Option<Judged>,
    mark: Option<Mark>,
    backing: bool,
) -> io::Result<Disk> {
    let write = judged.is_some();
    let frees = judged.as_ref().is_some_and(|judged| judged.frees);
    let turns = frees.then(|| Turns::new(header.cluster));
    let (counts_at, counts_len) = header.counts;
    let roots = Roots {
        clusters: header.l1,
        counts: (counts_at, counts_len as u64),
    };
    let (below, data) = match judged {
        Some(judged) => {
            let [tables, data] = Below::ordered(file, header.cluster, roots, judged.taken);
            (tables, Some(data))
        }
        None => (Below::plain(file, header.cluster), None),
    };
    let watch = below.watch();
    let mut builder = Qcow2::<Below>::builder(below).write(write);
    if header.data_file.is_none() {
        builder = builder.data_file(data);
    }
    let opened = match backing {
        true => builder.open(PermissiveImplicitOpenGate::default()),
        false => builder.backing(None).open(DenyImplicitOpenGate::default()),
    };
    let access = FormatAccess::new(opened?);
    let sizes = (header.size, header.cluster);
    Ok(Disk::new(access, sizes, !write, mark, watch, turns))
}

/// Whether a file can be written.
fn writable(request: &FormatRequest<'_>, header: &Header) -> Result<Judged, String> {
    let (at, len) = header.counts;
    check_counts(read(&request.below, at, len)?.as_slice())?;
    let file = std::fs::File::open(request.path).map_err(|e| e.to_string())?;
    judge(&file, header)
}

/// Whether the tables of a file that is read are in it.
fn check_tables(path: &Path, header: &Header) -> Result<(), String> {
    let mut table = vec![0; usize::try_from(header.l1.1).map_err(|e| e.to_string())?];
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let len = file.metadata().map_err(|e| e.to_string())?.len();
    let read = file.read_exact_at(&mut table, header.l1.0);
    read.map_err(|e| e.to_string())?;
    check_first_table(&table, header.cluster, len)
        .map_err(|why| format!("{why}: is it complete? 'qemu-img check' tells more"))
}

/// Makes an empty disk of `size` bytes in a file, whose contents are lost.
///
/// # Errors
/// The host's.
pub fn create(path: &Path, size: u64) -> io::Result<()> {
    if !size.is_multiple_of(512) {
        return Err(io::Error::other(format!(
            "a disk of {size} bytes is no multiple of 512"
        )));
    }
    let file = storage(path, true)?;
    Qcow2::<File>::create_builder(file).size(size).create()
}

fn storage(path: &Path, write: bool) -> io::Result<File> {
    let file = std::fs::File::options()
        .read(true)
        .write(write)
        .open(path)?;
    let options = StorageOpenOptions::new().write(write).filename(path);
    File::from_open_file(file, options)
}

/// Reads the header.
fn look(below: &Arc<dyn Device>, path: &Path) -> Result<Header, String> {
    let len = path.metadata().map_err(|e| e.to_string())?.len();
    let size = below.geometry().size.min(LOOKED_AT as u64);
    let size = usize::try_from(size).unwrap_or(LOOKED_AT);
    Header::parse(read(below, 0, size)?.as_slice(), len)
}

fn read(below: &Arc<dyn Device>, at: u64, len: usize) -> Result<Buf, String> {
    let read = Blocking::new(below.clone()).read(at, Buf::zeroed(len));
    read.map_err(|e| format!("its header cannot be read: {e}"))
}

/// Opens the files behind one, each once, as far as their headers lead. The library that reads them follows a circle without end, and waits
/// for a pipe.
fn chain(path: &Path, header: &Header) -> Result<Vec<Arc<dyn Device>>, String> {
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino()));
    let mut seen = HashSet::from([identity(path).map_err(|e| e.to_string())?]);
    let (mut at, mut backing) = (path.to_owned(), header.backing.clone());
    let mut open = Vec::new();
    while let Some((name, format)) = backing.take() {
        let plain = name.strip_prefix("file:").unwrap_or(&name);
        at = at.parent().unwrap_or(Path::new("")).join(plain);
        let of = |why: String| format!("its backing file \"{}\": {why}", at.display());
        let meta = at.metadata().map_err(|e| of(e.to_string()))?;
        if !meta.is_file() && !meta.file_type().is_block_device() {
            return Err(of("it is neither a file nor a block device".to_owned()));
        }
        if !seen.insert((meta.dev(), meta.ino())) || open.len() == MOST_BEHIND {
            return Err(of(format!(
                "files lead to each other in a circle, or more than {MOST_BEHIND} deep"
            )));
        }
        let mut raw = Locator::file(&at);
        if let Locator::File(file) = &mut raw {
            file.format = Some(ImageFormat::Raw);
        }
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let device = locator::open(&raw, &options).map_err(|e| of(e.to_string()))?;
        if format.as_deref() == Some("qcow2") {
            let header = look(&device, &at).map_err(of)?;
            check_tables(&at, &header).map_err(of)?;
            backing = header.backing;
        }
        open.push(device);
    }
    Ok(open)
}

fn check_allowed(header: &Header, request: &FormatRequest<'_>) -> Result<(), String> {
    if !request.write && header.is_dirty() {
        return Err(
            "it was not closed (the dirty bit): opening it for writing, as 'diorite recover' does, repairs it, or 'qemu-img check -r all'"
                .to_owned(),
        );
    }
    if request.write && header.snapshots > 0 {
        return Err(format!(
            "it has internal snapshots ({}), so it is only read: open it with '?ro', or delete them with 'qemu-img snapshot -d'",
            header.snapshots
        ));
    }
    let others = match (&header.backing, &header.data_file) {
        (Some((name, None)), _) if request.backing => {
            return Err(format!(
                "it does not say the format of its backing file \"{name}\": 'qemu-img rebase -u -F FORMAT -b {name}' does"
            ));
        }
        _ if request.backing => return Ok(()),
        (None, None) => return Ok(()),
        (Some((name, _)), None) => format!("has the backing file \"{name}\""),
        (None, Some(data)) => format!("has its data in the file \"{data}\""),
        (Some((name, _)), Some(data)) => {
            format!("has the backing file \"{name}\" and its data in the file \"{data}\"")
        }
    };
    Err(format!(
        "it {others}: '?backing' opens what an image names, if you trust whoever made it"
    ))
}

impl Device for Qcow2Device {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.pool.runner().geometry()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            engine: "threads".to_owned(),
            mode: "qcow2".to_owned(),
            below: Some(Box::new(self.below.report())),
            ..DeviceReport::default()
        }
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        // It also checks the range.
        self.all_data(range.clone(), most)?;
        let runs = self.pool.runner().stored(range, most);
        runs.map_err(|e| DeviceError::host(format!("{}: qcow2: {e}", self.name), e))
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let queue = CallQueue::new(self.pool.clone(), options);
        let queue = queue.map_err(|e| DeviceError::host(format!("{}: no thread", self.name), e))?;
        Ok(Box::new(queue))
    }

    fn rest(&self) -> Result<(), DeviceError> {
        let rested = self.pool.runner().rest();
        rested.map_err(|e| DeviceError::host(format!("{}: qcow2: {e}", self.name), e))
    }

    fn run_here(&self, mut bio: Bio) -> Result<Bio, Bio> {
        self.pool.runner().run(&mut bio);
        Ok(bio)
    }
}
