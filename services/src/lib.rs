//! Servers of real protocols on the engine: [`dns`], [`ntp`] and [`radius`], and an [`echo`] for measurements.
//!
//! Each is a [`Service`](linerate_engine::Service): it gets a request and writes a reply, without calling the kernel, so that all
//! of the engine's backends serve it. None answers a reply, and none answers an unverified source with more bytes than it
//! got, unless its protocol leaves no other way and it was told to.

pub mod dns;
pub mod echo;
pub mod guarded;
pub mod ntp;
pub mod radius;
pub mod refusals;
mod sys;
