//! Live XDP frames: the calls to `bpf(2)` that make them, and the memory shared with the programs.

mod call;
mod layout;
mod mapped_array;

pub(crate) use call::{ReplyNamespace, RequestOutlet, attach};
pub(crate) use layout::{
    BATCH, BUCKETS, FILL_BYTES, HEAD_BYTES, INTERVALS, MARKS, PARTS, PROBES, REQUEST_BYTES, SEGMENTS,
    SUB_BITS, TupleEntry, VERDICT_BYTES, XdpFlow, XdpMark, XdpRequest, XdpRow, XdpSettings,
};
pub(crate) use mapped_array::{MappedArray, Shared};
