//! Where packets end: each stage's packets in, out, and lost by named reason.

pub mod reason;
pub mod seen;

mod causes;
mod ledger;
mod watch;

pub use ledger::{
    Entry, Evidence, Exactness, GeneratorSaid, Grown, Kind, Ledger, Loss, Sampled, Step, Waiting, Way,
};
pub use watch::{SampledWatch, Watch, observe};
