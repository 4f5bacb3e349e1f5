//! diorite command
fn main() {}
