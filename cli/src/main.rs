//! Finds out why a UDP service on Linux does not reach line rate, fixes it while it runs, and proves it with numbers.
fn main() {}
