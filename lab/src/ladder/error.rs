//! Why a run could not be made.

use std::net::IpAddr;

use linerate_host::{CpuSet, HostError};
use linerate_tune::boost::discovery::DiscoveryError;
use linerate_tune::journal::JournalError;
use linerate_tune::transaction::TuneError;

/// Why a configuration could not be set or measured: one line.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    #[error("interrupted")]
    Cancelled,
    #[error(transparent)]
    Setting(#[from] linerate_host::SettingError),
    #[error("server: {0}")]
    Server(String),
    #[error("generator: {0}")]
    Generator(String),
    /// No other step can be measured: a server that the run did not start has ended, its real clients exceeded a limit of
    /// loss or response time, or the interface has no link.
    #[error("{0}")]
    RunEnded(String),
    /// The generator or its connection ended; no other step can be measured.
    #[error("generator lost: {0}")]
    GeneratorLost(String),
    #[error("{setting}: {why}")]
    Refused { setting: String, why: String },
    /// The journal refused a change, or another program has changed the setting since.
    #[error(transparent)]
    Tune(#[from] linerate_tune::transaction::TuneError),
    /// No request was answered.
    #[error("{0}")]
    Unanswered(String),
    #[error("lab: {0}")]
    Lab(String),
    #[error("CPU {wanted} is not among those this process may run on ({allowed})")]
    NoSuchCpu { wanted: u32, allowed: CpuSet },
    #[error("cannot read the CPUs that this process may run on: {0}")]
    AffinityUnreadable(String),
    /// The payload does not fit a datagram.
    #[error(transparent)]
    Wire(#[from] linerate_load::wire::WireError),
}

impl TestbedError {
    /// Whether no other step can be measured either.
    #[must_use]
    pub fn ends_run(&self) -> bool {
        matches!(
            self,
            TestbedError::Cancelled
                | TestbedError::RunEnded(_)
                | TestbedError::GeneratorLost(_)
                | TestbedError::Tune(_)
        )
    }
}

impl From<crate::LabError> for TestbedError {
    fn from(error: crate::LabError) -> Self {
        TestbedError::Lab(error.to_string())
    }
}

impl From<linerate_engine::ServerError> for TestbedError {
    fn from(error: linerate_engine::ServerError) -> Self {
        TestbedError::Server(error.to_string())
    }
}

impl From<linerate_load::GeneratorError> for TestbedError {
    fn from(error: linerate_load::GeneratorError) -> Self {
        match error {
            linerate_load::GeneratorError::Cancelled => TestbedError::Cancelled,
            error => TestbedError::Generator(error.to_string()),
        }
    }
}

/// Why a run could not be made: one line.
#[derive(Debug, thiserror::Error)]
pub enum HostRunError {
    #[error("no interface '{interface}': there are {known}")]
    NoInterface { interface: String, known: String },
    #[error(
        "{interface} has no address that another host could send to: give it one, or name one with --listen"
    )]
    NoAddress { interface: String },
    #[error("{address} is not an address of {interface}, which has {known}")]
    NotItsAddress { address: IpAddr, interface: String, known: String },
    #[error(
        "{server} listens on port {port} of {bound} and not at an address of {interface} ({known}): name the interface of its \
         clients"
    )]
    ListensElsewhere { server: String, port: u16, bound: String, interface: String, known: String },
    /// There is no such server, or it cannot be observed.
    #[error(transparent)]
    Server(#[from] DiscoveryError),
    #[error("{interface} does not report its speed: name it, such as --link 10G")]
    NoSpeed { interface: String },
    /// The run may use none of the CPUs that the plan spreads packets over.
    #[error("none of the CPUs that packets of {interface} go to ({planned}) is among those to be used")]
    NoCpu { interface: String, planned: CpuSet },
    #[error(transparent)]
    Host(#[from] HostError),
    /// The journal cannot be written, so nothing was changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Tune(#[from] TuneError),
    #[error("{run}; then the settings could not be restored: {undo} (linerate tune undo {tune})")]
    NotUndone {
        /// How the run ended.
        run: String,
        /// What is not restored, and why.
        undo: String,
        /// Number of the tune.
        tune: u64,
    },
    /// The CPUs cannot be used, the payload does not fit a datagram, or server or generator failed.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
}
