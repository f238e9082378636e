//! `linerate cost` as root: frames that no server reads take time from a process on the same CPU.

mod accord;
mod compared;
mod refused;
mod scene;
