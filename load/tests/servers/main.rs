//! The workloads against widely used servers, across the link of a lab. The tests compare the
//! generator's counters with the server's own counters, if it has any. Tests of servers that are
//! not installed are skipped.

mod chrony;
mod freeradius;
mod nsd;
mod scene;
