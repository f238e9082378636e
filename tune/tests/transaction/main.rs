//! Transactions on a host that refuses, half obeys, is changed by others, and at any point ends the program.

mod fake;
mod nic;
mod outcomes;
mod polling;
mod property;
mod text;
