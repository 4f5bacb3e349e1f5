//! What it is: the header of libdiorite, made of the sources of frontends/c by cbindgen.
//! Input: those sources, and the settings in cbindgen.toml. Output: the text of diorite.h.
//! Invariant: what is in the repository says what the sources say: a test compares them. Limit: none without cbindgen.

use crate::documents::root;
use crate::run::tool;
use std::path::PathBuf;

/// The header in the repository.
#[must_use]
pub fn path() -> PathBuf {
    root().join("frontends/c/diorite.h")
}

/// The text that cbindgen makes now.
///
/// # Errors
/// There is no cbindgen, or it does not understand the sources: the text for the user.
pub fn made() -> Result<String, String> {
    let ran = tool("cbindgen")
        .current_dir(root().join("frontends/c"))
        .args(["--quiet", "--config", "cbindgen.toml", "src/lib.rs"])
        .output()
        .map_err(|e| format!("cbindgen: {e} (cargo install cbindgen --locked)"))?;
    if !ran.status.success() {
        return Err(format!(
            "cbindgen: {}",
            String::from_utf8_lossy(&ran.stderr)
        ));
    }
    String::from_utf8(ran.stdout).map_err(|e| format!("cbindgen: {e}"))
}
