//! Arguments that select a host and a part of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use linerate_host::{Scope, Severity};

use crate::quantity;

/// Interfaces and services.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ScopeArgs {
    /// Network interface; repeatable [default: all with a device]
    #[arg(short = 'i', long = "interface", value_name = "IF")]
    interfaces: Vec<String>,
    /// Only the service on this UDP port
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only the services of this process
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Read the counters twice, this many seconds apart, and judge by the difference
    #[arg(long, value_name = "SECONDS", value_parser = quantity::seconds(0.1..=86_400.0))]
    pub(crate) interval: Option<Duration>,
}

/// A host and a part of it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HostScopeArgs {
    #[command(flatten)]
    pub(crate) scope_args: ScopeArgs,
    /// Read a capture of another host, or a directory with its proc and sys
    #[arg(long, value_name = "DIR|FILE.tar.gz")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SeverityLevel {
    /// Keeps the service from scaling, or loses packets now
    High,
    /// Costs tens of percent, or loses packets at peaks
    Medium,
    /// Costs a few percent, or only under some loads
    Low,
    /// Worth knowing
    Note,
}

impl ScopeArgs {
    pub(crate) fn of_interface(interface: Option<String>) -> Self {
        Self { interfaces: interface.into_iter().collect(), ..Self::default() }
    }

    /// The same arguments for a single reading.
    pub(crate) fn without_interval(&self) -> Self {
        Self { interval: None, ..self.clone() }
    }

    // The named interfaces and services; `None` without any.
    pub(crate) fn scope(&self) -> Option<Scope> {
        let scope = Scope { interfaces: self.interfaces.clone(), port: self.port, pid: self.pid };
        (scope != Scope::default()).then_some(scope)
    }
}

impl From<SeverityLevel> for Severity {
    fn from(level: SeverityLevel) -> Self {
        match level {
            SeverityLevel::High => Severity::High,
            SeverityLevel::Medium => Severity::Medium,
            SeverityLevel::Low => Severity::Low,
            SeverityLevel::Note => Severity::Note,
        }
    }
}
