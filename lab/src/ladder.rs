//! The ladder: steps of tuning, each measured against the configuration before it.
//!
//! A [`config::LadderConfig`] describes a run. [`lab_run`] measures it in a lab, [`host_run`] on a
//! real interface with [`remote`] generators. Both call `run`, which depends only on
//! [`testbed::Testbed`]. The result is a [`report::LadderReport`].

mod boost_changes;
mod client_guard;
pub mod config;
pub mod configuration;
pub mod cpu_use;
pub mod error;
pub mod host_run;
mod host_testbed;
pub mod lab_run;
pub(crate) mod lab_testbed;
mod plan_changes;
pub mod predict;
mod program_server;
pub(crate) mod read_count;
pub mod remote;
pub mod report;
pub mod run;
mod running_program;
pub(crate) mod sampler;
pub mod saturation;
pub(crate) mod server;
pub mod step;
pub(crate) mod summary;
pub mod testbed;
