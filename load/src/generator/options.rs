//! Options of a generator.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use linerate_networks::Net;
use rustix::process::{Resource, getrlimit};

use serde::{Deserialize, Serialize};

use super::socket::SocketGenerator;
use super::xdp::XdpGenerator;
use super::{Generator, GeneratorDescription, MAX_BURST};
use crate::error::{GeneratorError, invalid};
use crate::workload::LoadWorkload;

// Estimate of the process's other open files, rather too high than too low.
const OTHER_FILES: u64 = 32;

/// The way in which requests get into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GeneratorBackend {
    /// Live XDP frames where they work, else sockets; [`GeneratorDescription::fallbacks`] has the
    /// reason.
    #[default]
    Auto,
    /// Live XDP frames, or an error that names the missing requirement.
    Xdp,
    Socket,
}

/// The requests that leave as live frames, if the backend supports them.
///
/// A live frame costs a receiving network stack more than a clone, and a sender less: a search that
/// changed from one to the other would measure that difference. Therefore the rate never decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LiveFrames {
    /// Requests of floods, and of slots with [`crate::LoadSlot::live_frames`].
    #[default]
    Floods,
    /// All requests except those of windows. Threads that pace live frames never yield their CPU.
    Always,
    /// No requests. A veth whose far end loses its NAPI accepts no more live frames.
    Never,
}

#[derive(Debug, Clone)]
pub struct GeneratorOptions {
    /// Destinations. Flows use the targets in turn; the families may be mixed. An IPv4-mapped IPv6
    /// address is used as IPv4.
    pub targets: Vec<SocketAddr>,
    /// Source addresses, used in turn by the flows of their family; the kernel chooses if empty.
    pub sources: Vec<IpAddr>,
    /// Networks to which load is allowed although they are neither loopback, lab nor private.
    pub allowed: Vec<Net>,
    /// Threads that send and receive; 1 by default.
    pub threads: usize,
    /// Source ports over all threads; 16 by default.
    pub flows: usize,
    /// The workload; an echo of 100 bytes by default.
    pub workload: LoadWorkload,
    pub backend: GeneratorBackend,
    pub live_frames: LiveFrames,
    /// Source ports, used by the flows in turn, each with every source address before a port is
    /// used twice; free ports by default.
    pub source_ports: Option<RangeInclusive<u16>>,
    /// The most requests of one flow sent in a row; [`MAX_BURST`] by default. Smaller bursts mix
    /// the flows more and require more system calls.
    pub burst: usize,
    /// CPUs for the threads, in turn; not pinned by default.
    pub cpus: Option<Vec<u32>>,
    /// The niceness of the threads; the caller's niceness by default.
    pub nice: Option<i32>,
    /// Whether to forbid fragments (IP_MTU_DISCOVER = IP_PMTUDISC_DO). A payload over the path MTU
    /// is then refused by [`GeneratorOptions::start`].
    pub no_fragment: bool,
    /// Window mode: the time after which an unanswered request releases its place; 200 ms by
    /// default. It still counts as answered if its reply arrives before the drain ends.
    pub timeout: Duration,
    /// A flag that ends a running slot early when set; the account is still complete.
    pub cancel: Arc<AtomicBool>,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        GeneratorOptions {
            targets: Vec::new(),
            sources: Vec::new(),
            allowed: Vec::new(),
            threads: 1,
            flows: 16,
            workload: LoadWorkload::Echo { payload_bytes: 100 },
            backend: GeneratorBackend::Auto,
            live_frames: LiveFrames::default(),
            source_ports: None,
            burst: MAX_BURST,
            cpus: None,
            nice: None,
            no_fragment: false,
            timeout: Duration::from_millis(200),
            cancel: Arc::default(),
        }
    }
}

impl GeneratorOptions {
    /// The default options for these targets.
    pub fn new(targets: Vec<SocketAddr>) -> Self {
        GeneratorOptions { targets, ..GeneratorOptions::default() }
    }

    /// Opens sockets or loads programs, and starts threads, in the calling thread's network
    /// namespace. The generator stays there, whichever thread uses it later. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Settings out of range, a destination that was not allowed, a payload over the MTU, too few
    /// open files, or a system call that failed: one line each. [`GeneratorError::Xdp`] with the
    /// missing requirement, unless sockets may be used instead.
    pub fn start(mut self) -> Result<Box<dyn Generator>, GeneratorError> {
        for target in &mut self.targets {
            target.set_ip(target.ip().to_canonical());
        }
        if let LoadWorkload::Echo { payload_bytes } = self.workload {
            self.workload = LoadWorkload::echo(payload_bytes);
        }
        self.check()?;
        let no_xdp_reason = match self.backend {
            GeneratorBackend::Socket => None,
            GeneratorBackend::Xdp | GeneratorBackend::Auto => match XdpGenerator::start(&self) {
                Ok(generator) => return Ok(Box::new(generator)),
                Err(reason @ GeneratorError::Xdp { .. }) if self.backend == GeneratorBackend::Auto => {
                    Some(reason.to_string())
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Box::new(SocketGenerator::start(&self, no_xdp_reason)?))
    }

    /// Like [`GeneratorOptions::start`], always with sockets.
    pub fn start_socket(self) -> Result<Box<dyn Generator>, GeneratorError> {
        GeneratorOptions { backend: GeneratorBackend::Socket, ..self }.start()
    }

    fn check(&self) -> Result<(), GeneratorError> {
        if self.targets.is_empty() {
            return invalid("no target given: name at least one ADDR:PORT");
        }
        for target in &self.targets {
            if target.port() == 0 {
                return invalid(format!("target {target} has port 0: name the port the service listens on"));
            }
            let address = target.ip();
            if !linerate_networks::is_near(address) && !self.allowed.iter().any(|net| net.contains(address)) {
                return invalid(format!(
                    "destination {address} is neither loopback, lab nor private: nothing was sent; if that host \
                     is yours to load, add --allow-destination {address}"
                ));
            }
            if !self.sources.is_empty() && !self.sources.iter().any(|ip| ip.is_ipv4() == address.is_ipv4()) {
                return invalid(format!(
                    "no source address of the family of target {target}: give one, or none at all"
                ));
            }
        }
        let (threads, flows, targets) = (self.threads, self.flows, self.targets.len());
        if threads == 0 {
            return invalid("zero threads: a generator needs at least one");
        }
        if flows == 0 {
            return invalid("zero flows: a generator needs at least one source port");
        }
        if flows < threads {
            return invalid(format!(
                "{threads} threads but only {flows} flows: every thread needs a flow of its own, ask for fewer \
                 threads or more flows"
            ));
        }
        if flows < targets {
            return invalid(format!(
                "{targets} targets but only {flows} flows: a target without a flow would get nothing, ask for \
                 at least {targets} flows"
            ));
        }
        self.workload.check()?;
        if !(1..=MAX_BURST).contains(&self.burst) {
            return invalid(format!("burst of {} requests: it must be 1 to {MAX_BURST}", self.burst));
        }
        if self.cpus.as_ref().is_some_and(Vec::is_empty) {
            return invalid("empty list of CPUs to pin to: name at least one, or do not pin");
        }
        Ok(())
    }

    /// Whether this process may open one socket per flow.
    pub(super) fn check_files(&self) -> Result<(), GeneratorError> {
        let flows = self.flows;
        let needed_files = flows as u64 + self.threads as u64 + OTHER_FILES;
        match getrlimit(Resource::Nofile).current {
            Some(limit) if needed_files > limit => {
                Err(GeneratorError::too_many_flows(flows, needed_files, limit))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn describe(&self, receive_buffer_bytes: u64, fallbacks: Vec<String>) -> GeneratorDescription {
        GeneratorDescription {
            backend: "socket".to_owned(),
            workload: self.workload.name().to_owned(),
            threads: self.threads,
            flows: self.flows,
            payload_bytes: self.workload.longest_bytes(),
            targets: self.targets.clone(),
            sources: self.sources.clone(),
            cpus: self.cpus.clone().unwrap_or_default(),
            no_fragment: self.no_fragment,
            nice: self.nice,
            receive_buffer_bytes,
            fallbacks,
        }
    }
}
