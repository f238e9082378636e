//! What the packet path counts, as OpenMetrics with stable names, and the dashboard and alerts that go with them.
//!
//! [`FAMILIES`] is the one table of what is exported: encoder, documentation, and the checks of dashboard and rules all go by
//! it. An [`Exporter`] reads a host and keeps what has to outlive a reading: totals of counters whose sources come and go, and
//! which series a family may have. [`text`] writes what it gathered, [`http`] serves that, [`textfile`] puts it into a file.
//! Nothing here prints.

mod exporter;
mod families;
mod family;
mod gather;
pub mod http;
pub mod rules;
mod tally;
pub mod text;
pub mod textfile;
mod traced;

pub use exporter::{Exporter, Options};
pub use families::{FAMILIES, family, table};
pub use family::{Family, Fold, Kind, Of};
pub use tally::{Exposition, Number, Row};
pub use text::Format;
