//! diorite
