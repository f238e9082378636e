//! The `linerate` command.

mod command;
mod render;

fn main() {}
