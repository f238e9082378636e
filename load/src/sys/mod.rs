//! System calls that no safe wrapper offers, and all unsafe code of this crate.

#![allow(unsafe_code)]

mod batch;
mod clock;
mod socket;
pub(crate) mod xdp;

pub(crate) use batch::{ReceiveBatch, ReplyDatagram, SendBatch};
pub(crate) use clock::max_clock_error_us;
pub(crate) use socket::{receive_drops, request_receive_stamps};
