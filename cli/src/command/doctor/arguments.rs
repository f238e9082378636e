//! Arguments that select a host and a part of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linerate_host::{Scope, Severity};

use crate::named_values::NamedValue;
use crate::quantity;

/// Interfaces and services.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SubjectArgs {
    /// Network interface; repeatable [default: all with a device]
    #[arg(short = 'i', long = "interface", value_name = "IF")]
    pub(crate) interfaces: Vec<String>,
    /// Only the service on this UDP port
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Only the services of this process
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

/// Interfaces and services, and whether they are read twice.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ScopeArgs {
    #[command(flatten)]
    subject: SubjectArgs,
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

pub(crate) const SEVERITIES: &[NamedValue<Severity>] = &[
    ("high", "Keeps the service from scaling, or loses packets now", Severity::High),
    ("medium", "Costs tens of percent, or loses packets at peaks", Severity::Medium),
    ("low", "Costs a few percent, or only under some loads", Severity::Low),
    ("note", "Worth knowing", Severity::Note),
];

impl SubjectArgs {
    pub(crate) fn scope(&self) -> Scope {
        Scope { interfaces: self.interfaces.clone(), port: self.port, pid: self.pid }
    }
}

impl ScopeArgs {
    pub(crate) fn of_interface(interface: Option<String>) -> Self {
        let subject = SubjectArgs { interfaces: interface.into_iter().collect(), ..SubjectArgs::default() };
        Self { subject, ..Self::default() }
    }

    /// The same arguments for a single reading.
    pub(crate) fn without_interval(&self) -> Self {
        Self { interval: None, ..self.clone() }
    }

    // The named interfaces and services; `None` without any.
    pub(crate) fn scope(&self) -> Option<Scope> {
        let scope = self.subject.scope();
        (scope != Scope::default()).then_some(scope)
    }
}
