//! The counts of an observation.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeliveryReport {
    /// Time in which datagrams were counted: all of the observation, or windows of it if there were
    /// many.
    pub seconds: f64,
    /// Datagrams that were read, by socket, CPUs and thread.
    pub read: Vec<DeliveryCount>,
    /// Datagrams that were put into a socket, by socket and CPU. Includes those that were read,
    /// except a few that arrived before the start.
    pub arrived: Vec<ArrivalCount>,
    /// Datagrams that were sent, by socket.
    pub sent: Vec<SendCount>,
    /// Datagrams that were not counted, because a program was busy with another thread's datagram
    /// or a table was full. Zero unless there are many thousands of sockets and threads, or the
    /// kernel is preemptible.
    #[serde(default)]
    pub missed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryCount {
    pub cookie: u64,
    /// The CPU whose softirq put them into the socket. `None` if they arrived before the start or
    /// thousands were waiting. Derived from the order of the queue: if datagrams of a socket arrive
    /// on several CPUs at the same moment, they can be exchanged.
    pub arrived_on: Option<u32>,
    pub read_on: u32,
    /// As this process sees it; zero if the process is in another PID namespace.
    pub pid: u32,
    /// Zero like `pid`.
    pub tid: u32,
    pub packets: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalCount {
    pub cookie: u64,
    pub cpu: u32,
    pub packets: u64,
    /// Datagrams dropped because the buffer was full, in all of the observation.
    pub refused: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendCount {
    pub cookie: u64,
    pub packets: u64,
    /// Largest payload. Datagrams that leave together (UDP_SEGMENT) count as one here and in
    /// `packets`.
    pub largest_bytes: u32,
}
