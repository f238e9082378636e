//! The packet path of one Linux host: what it is set to, and typed knobs to change it.
//!
//! Every read and write goes through a [`Host`] handle that is passed in: the live host, a
//! directory captured from another machine, or a scripted fake. Nothing here prints.

mod cpu_set;
mod known;
pub mod netlink;
mod root;
pub mod setting;
pub mod stage;
mod sys;

pub use cpu_set::{CpuSet, ParseCpuSetError};
pub use known::Known;
pub use root::{Host, HostError};
pub use setting::{Setting, SettingError, Value};
