//! The name by which programs find the shared library at run time: of the ABI, not of the version.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdiorite.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
