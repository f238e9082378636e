//! Build chores: benches, fuzzing, CI.
fn main() {}
