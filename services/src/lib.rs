//! Servers of real protocols on the engine: [`dns`], [`ntp`] and [`radius`], and an [`echo`] and a [`sink`] for measurements.
//!
//! Each is a [`Service`](linerate_engine::Service): it reads a request and writes a reply without system calls, so all backends
//! of the engine can serve it. No service answers replies, and none sends more bytes to an unverified source than it
//! received, except where the protocol requires it.

pub mod dns;
pub mod echo;
pub mod guarded_service;
pub mod ntp;
pub mod radius;
pub mod refusals;
pub mod sink;
pub mod start;
mod sys;
