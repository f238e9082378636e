//! The workloads against servers that people run, across a lab's link: what they answer is counted, and where they count
//! themselves, the counts are the same. A server that is not installed is skipped.

mod chrony;
mod freeradius;
mod nsd;
mod scene;
