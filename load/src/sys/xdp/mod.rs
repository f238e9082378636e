//! Live XDP frames: the calls to `bpf(2)` that make them, and the memory shared with the programs.

mod call;
mod layout;
mod mapped;

pub(crate) use call::{Namespace, Outlet, attach};
pub(crate) use layout::{
    BATCH, BUCKETS, FILL_BYTES, Flow, HEAD_BYTES, INTERVALS, MARKS, Mark, PARTS, PROBES, REQUEST_BYTES,
    Request, Row, SEGMENTS, SUB_BITS, Settings, Tuple, VERDICT_BYTES,
};
pub(crate) use mapped::{Mapped, Shared};
