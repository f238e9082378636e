//! How a request of `linerate load` differs from a reply of `linerate serve echo`.
//!
//! The echo answers requests only, and marks its replies. So a reply that reaches an echo, because the source of a
//! request was forged, is not answered again.

/// Bytes of the header; a shorter payload cannot be a request.
pub const HEADER_BYTES: usize = 40;

/// First four bytes of every request: "LNR" and the version of the layout.
pub const REQUEST: [u8; 4] = *b"LNR\x01";

/// First four bytes of a reply of `serve echo`. Three bytes differ from [`REQUEST`], so that one
/// damaged byte cannot turn a request into a reply or a reply into a request.
pub const REPLY: [u8; 4] = *b"lnr\x01";
