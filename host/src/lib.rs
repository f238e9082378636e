//! The packet path of one Linux host: its state, and typed settings to change it.
//!
//! Every read and write passes through a [`Host`] handle: the live host, a directory captured from
//! another machine, or a scripted fake. Nothing here prints.

mod amount;
mod background;
pub mod bind_hooks;
pub mod bpf;
pub mod capture;
pub mod counter;
pub mod counter_sample;
mod cpu_set;
pub mod delivery;
pub mod diagnosis;
mod ethtool;
pub mod finding;
pub mod ini;
mod interrupts;
mod known;
pub mod live;
pub mod netlink;
#[doc(hidden)]
pub mod parse;
pub mod process;
pub mod recording;
mod reuseport;
mod root;
mod scope;
pub mod setting;
pub mod socket_redirect;
pub mod stage;
pub mod stats;
mod summary;
mod sys;

pub use background::BackgroundThread;
pub use capture::OpenedCapture;
pub use counter::Counter;
pub use cpu_set::{CpuSet, ParseCpuSetError};
pub use diagnosis::Diagnosis;
pub use finding::{Evidence, Finding, SettingChange, Severity};
pub use known::Known;
pub use recording::HostRecording;
pub use root::{Host, HostError, IrqbalanceSetup};
pub use scope::Scope;
pub use setting::{Setting, SettingError, SettingValue};
pub use stage::{HostView, PacketPath, StageName};
pub use summary::{HostSummary, host_name, unix_seconds};
