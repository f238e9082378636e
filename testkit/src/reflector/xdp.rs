//! UDP services in XDP programs.

use aya::maps::PerCpuArray;
use aya::programs::links::FdLink;
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::reflector::error::ReflectorError;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/reflect.bpf.o"));

/// A service in native XDP at one interface, for IPv4 (without options), IPv6 (without extension
/// headers) and a VLAN tag. All other packets pass untouched.
///
/// The program is detached when this is dropped or when the process ends, for whatever reason.
///
/// On a veth, the attached program lets the other end send XDP frames. Its own replies are XDP
/// frames, too: they arrive only if the other end has an XDP program as well; GRO alone is not
/// enough for XDP_TX (Linux 6.18, drivers/net/veth.c, `veth_xdp_flush`). If a socket of the other
/// end sends, switch off its checksum offload (`ethtool -K IF tx off`): otherwise the request and
/// the reply leave the veth without a complete checksum.
#[derive(Debug)]
pub struct XdpService {
    ebpf: Ebpf,
    _link: FdLink,
}

#[derive(Debug, Clone)]
pub struct XdpBuilder {
    program: &'static str,
    port: u16,
    shortest_payload: u32,
}

/// Counters of an [`XdpService`]: `received == answered + dropped`. Replies that the link did not
/// take are in `answered`, because XDP_TX does not report them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpAccount {
    pub received: u64,
    /// Datagrams returned unchanged.
    pub answered: u64,
    /// Datagrams not answered: those of a sink.
    pub dropped: u64,
}

impl XdpService {
    /// Returns each datagram to its sender (XDP_TX).
    pub fn reflector() -> XdpBuilder {
        XdpBuilder::new("reflect")
    }

    /// Counts each datagram and drops it.
    pub fn sink() -> XdpBuilder {
        XdpBuilder::new("sink")
    }

    /// # Errors
    /// The counters cannot be read.
    pub fn account(&self) -> Result<XdpAccount, ReflectorError> {
        let operation = "cannot read the account of an XDP service";
        let map =
            self.ebpf.map("accounts").ok_or_else(|| ReflectorError::new(operation, "its object has none"))?;
        let accounts =
            PerCpuArray::<_, [u64; 3]>::try_from(map).map_err(|e| ReflectorError::new(operation, e))?;
        let each_cpu = accounts.get(&0, 0).map_err(|e| ReflectorError::new(operation, e))?;
        let mut total = XdpAccount::default();
        for [received, answered, dropped] in each_cpu.iter().copied() {
            total.received += received;
            total.answered += answered;
            total.dropped += dropped;
        }
        Ok(total)
    }
}

impl XdpBuilder {
    fn new(program: &'static str) -> Self {
        XdpBuilder { program, port: 0, shortest_payload: 0 }
    }

    /// Serves only datagrams to this port; without it, to any port.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Passes datagrams with a shorter payload to the network stack.
    #[must_use]
    pub fn shortest_payload(mut self, bytes: u16) -> Self {
        self.shortest_payload = bytes.into();
        self
    }

    /// Loads the program and attaches it to `interface` in the calling thread's network namespace.
    ///
    /// # Errors
    /// The interface does not exist, has no native XDP, or already has a program (which stays), or
    /// the process has no privilege (CAP_BPF and CAP_NET_ADMIN).
    pub fn attach(self, interface: &str) -> Result<XdpService, ReflectorError> {
        let operation = "cannot load an XDP service";
        let mut ebpf = EbpfLoader::new()
            .override_global("served_port", &self.port, true)
            .override_global("shortest_payload", &self.shortest_payload, true)
            .load(OBJECT)
            .map_err(|e| ReflectorError::new(operation, e))?;
        let program = ebpf.program_mut(self.program);
        let program =
            program.ok_or_else(|| ReflectorError::new(operation, "its object has no such program"))?;
        let program: &mut Xdp = program.try_into().map_err(|e| ReflectorError::new(operation, e))?;
        program.load().map_err(|e| ReflectorError::new(operation, e))?;
        let operation = format!("cannot attach an XDP service to {interface}");
        let id =
            program.attach(interface, XdpMode::Driver).map_err(|e| ReflectorError::new(&operation, e))?;
        let link = program.take_link(id).map_err(|e| ReflectorError::new(&operation, e))?;
        // A link without a file descriptor would outlive the process.
        let link = FdLink::try_from(link).map_err(|e| ReflectorError::new(&operation, e))?;
        Ok(XdpService { ebpf, _link: link })
    }
}
