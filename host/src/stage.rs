//! The stages a packet travels. Each has its own file.

pub mod machine;
