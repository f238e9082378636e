//! Packet accounting: each stage's packets in, out, and losses by reason.

pub mod packet_counts;
pub mod reason;

mod causes;
mod ledger;
mod result;
mod watch;

pub use ledger::{
    AccountingPath, CounterUse, GeneratorSaid, GrownCounter, LossExactness, PacketAccounting, PacketEvidence,
    PathStep, QueuedPackets, SampledTime, StageEntry, StageLoss,
};
pub use result::{CountedCommand, DropsResult};
pub use watch::DropsWatch;
