//! Files read and written through the page cache, beside direct requests.
//!
//! | file | asks |
//! |---|---|
//! | `atomic` | writes inside and outside of an atomic change |
//! | `basics` | what a caller of `File` sees: positions, lengths, sizes |
//! | `claims` | direct writes in flight over cached blocks |
//! | `edges` | ends of files, largest sizes, requests that nobody reaps |
//! | `failing` | failed write-back: reported once per open file |
//! | `faults` | every request to the device fails in turn |
//! | `hostile` | calls, and orders of calls, that broke a promise once |
//! | `kept` | what no `File` names: files without a name, closed files, the end of the volume |
//! | `memory` | a host that gives no memory for pages |
//! | `model` | mixed operations against an array of bytes, by one thread and by several |
//! | `policies` | direct writes beside cached pages, under each policy |
//! | `pressure` | budgets much smaller than what is read and written |
//! | `small` | many small files: nothing waits for the device, requests are large |
//! | `space` | full volumes: space is promised by the write |
//! | `std_io` | the standard library's readers and writers |

mod atomic;
mod basics;
mod claims;
mod edges;
mod failing;
mod faults;
mod hostile;
mod kept;
mod memory;
mod model;
mod policies;
mod pressure;
mod small;
mod space;
mod std_io;

/// A new volume with a budget of its own, so that tests beside it do not change its numbers.
fn alone(size: &str, args: &[&str]) -> (tempfile::TempDir, std::path::PathBuf, diorite::Volume) {
    let dir = crate::common::scratch();
    let image = crate::common::names::empty(dir.path(), size, args);
    let options = diorite::OpenOptions::writable().page_cache(diorite::PageCache::new(64 << 20));
    let volume = diorite::Volume::open(image.to_str().unwrap(), &options).unwrap();
    (dir, image, volume)
}
