//! Transactions on hosts that refuse a change, make a part of it, are changed by others, or kill
//! the program at any point.

mod fake;
mod nic;
mod outcomes;
mod polling;
mod property;
mod text;
mod threads;
