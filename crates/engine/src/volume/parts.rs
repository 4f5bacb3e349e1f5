//! Names for the memory of a volume, for measurements.
//!
//! Input: a volume and files of it. Output: names and ranges of addresses. Invariants: the names are those of structs, fields and lock
//! classes. Limits: valid as long as volume and files live; what is allocated later has no name.

use super::Volume;
use crate::locks::CLASSES;
use crate::queue::File;
use diorite_block::sync::Parts;

impl Volume {
    /// Names the parts of the volume, of these files and of the lock classes for a trace of accesses to memory. For measurements only.
    #[doc(hidden)]
    pub fn parts_in_memory(&self, files: &[&File], parts: &mut Parts) {
        for class in CLASSES.iter().chain(&diorite_block::sync::CLASSES) {
            parts.add(format!("lock class {}", class.name()), *class);
        }
        parts.add("service", &**self.service());
        self.inner().parts_in_memory(parts);
        for file in files {
            file.inode().parts_in_memory(parts);
        }
    }
}
