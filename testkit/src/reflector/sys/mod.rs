//! System calls without a safe wrapper, and all unsafe code of this crate.

#![allow(unsafe_code)]

mod receive;
mod socket;

pub(crate) use receive::ReflectorReceiveBatch;
pub(crate) use socket::{receive_drops, request_receive_stamps};
