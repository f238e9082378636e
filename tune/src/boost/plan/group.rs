//! Which groups of sockets can be steered, and which thread reads each socket.

use linerate_host::Known;
use linerate_host::setting::SteeringTable;
use linerate_host::stage::machine::MachineState;
use linerate_host::stage::socket::SocketProtocol;

use super::BoostChoice;
use crate::boost::ObservedServer;
use crate::boost::catalog;
use crate::boost::discovery::{GroupSocket, ReaderThread, ServerGroup};

/// SO_INCOMING_CPU of a socket has an effect in its group since this version
/// (`reuseport_select_sock_by_hash` in net/core/sock_reuseport.c).
const INCOMING_CPU_COUNTS: (u32, u32) = (6, 2);

/// A group whose sockets are read by one thread each.
pub(super) struct OwnedGroup<'s> {
    pub(super) group: &'s ServerGroup,
    /// The sockets that are read, each with its reader.
    pub(super) sockets: Vec<(&'s GroupSocket, &'s ReaderThread)>,
    /// Sockets that no thread reads.
    pub(super) unread: Vec<&'s GroupSocket>,
    /// How the group will be steered.
    pub(super) way: SteeringMethod,
}

/// How a group is steered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SteeringMethod {
    /// By linerate's program, with its current table; `None` if it is not attached.
    Program(Option<SteeringTable>),
    /// By SO_INCOMING_CPU of each socket, for this reason.
    IncomingCpu(&'static str),
    /// By SO_INCOMING_CPU of each socket, which is set already.
    Already,
    /// By CPU, by a classic program of the server's own.
    OwnByCpu,
}

/// Why a group is not steered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SkipReason {
    /// It is a single socket, with this number of readers.
    Single(usize),
    /// A TCP listener without a group: nothing to report.
    SingleListener,
    Because(String),
}

/// Whether a group can be steered, and how.
pub(super) fn judge<'s>(
    server: &'s ObservedServer,
    group: &'s ServerGroup,
    machine: &MachineState,
    choice: &BoostChoice,
) -> Result<OwnedGroup<'s>, SkipReason> {
    if !group.reuseport || group.members.len() < 2 {
        return Err(single_socket(server, group));
    }
    if choice.is_steered_by_run {
        return Err(SkipReason::Because("linerate boost run steers its replicas (--steer)".to_owned()));
    }
    if group.protocol == SocketProtocol::Udp
        && !choice.anyway
        && let Some(reason) = client_state(server, group)
    {
        return Err(SkipReason::Because(reason));
    }
    let mut sockets = Vec::new();
    let mut unread = Vec::new();
    for member in &group.members {
        let cookie = member.socket.cookie;
        let readers: Vec<&ReaderThread> =
            server.readers_of(cookie).filter(|reader| !is_only_holder(reader, cookie, group)).collect();
        match readers.as_slice() {
            [] => unread.push(member),
            [reader] => sockets.push((member, *reader)),
            several => {
                return Err(SkipReason::Because(format!(
                    "{} threads read socket {} of it: its packets have no one CPU to go to",
                    several.len(),
                    member.socket.cookie
                )));
            }
        }
    }
    if sockets.is_empty() {
        return Err(SkipReason::Because("no thread was seen to read any of its sockets".to_owned()));
    }
    let method = steering_method(group, machine, choice).map_err(SkipReason::Because)?;
    if method == SteeringMethod::OwnByCpu
        && !sockets.iter().all(|(member, _)| arrival_cpu(server, member).is_some())
    {
        let reason = format!("{BY_CPU}. To pin its threads, too, run boost again under load");
        return Err(SkipReason::Because(reason));
    }
    Ok(OwnedGroup { group, sockets, unread, way: method })
}

/// Why a server that keeps state of its clients in threads is not steered.
fn client_state(server: &ObservedServer, group: &ServerGroup) -> Option<String> {
    let product_by_name = server.product.as_deref().and_then(catalog::product);
    // A server of one protocol may have QUIC on another port, as Knot has DNS over QUIC.
    let product_by_port = catalog::of_ports(&[group.local.port()]);
    let product = [product_by_name, product_by_port]
        .into_iter()
        .flatten()
        .find(|product| product.client_state.is_some())?;
    let state = product.client_state.as_ref()?;
    Some(format!(
        "{} keeps each client's state in {}: steering by CPU would send a client's packets to threads \
         that do not know the client. The kernel's hash sends all packets of a flow to one thread, \
         and stays ({}). If it is another server, --anyway steers it",
        product.name, state.kept_in, state.source
    ))
}

/// Why a group that a classic program steers by CPU is not steered.
pub(super) const BY_CPU: &str =
    "is steered by CPU already, by a classic BPF program of its own or of another tool";

/// The CPU whose packets a socket was seen to get; `None` if too few were seen.
pub(super) fn arrival_cpu(server: &ObservedServer, member: &GroupSocket) -> Option<u32> {
    const ENOUGH: u64 = 100;
    let arrived = &server.delivery.value()?.arrived;
    let own_arrivals = arrived.iter().filter(|arrival| arrival.cookie == member.socket.cookie);
    own_arrivals
        .filter(|arrival| arrival.packets >= ENOUGH)
        .max_by_key(|arrival| arrival.packets)
        .map(|arrival| arrival.cpu)
}

/// Whether a thread is only guessed to read the socket, but was seen to read another socket of the
/// group. Workers inherit the sockets of their siblings from the process that made them all, so the
/// socket of a dead sibling would otherwise count as read.
fn is_only_holder(reader: &ReaderThread, cookie: u64, group: &ServerGroup) -> bool {
    let reads = |other: u64| !reader.guessed.contains(&other);
    !reads(cookie) && group.cookies().filter(|other| reader.sockets.contains(other)).any(reads)
}

pub(super) fn name(group: &ServerGroup) -> String {
    format!("{} {}", group.protocol.name(), group.local)
}

fn single_socket(server: &ObservedServer, group: &ServerGroup) -> SkipReason {
    if group.protocol == SocketProtocol::Tcp {
        return SkipReason::SingleListener;
    }
    if group.members.len() > 1 {
        let count = group.members.len();
        return SkipReason::Because(format!(
            "its {count} sockets are in no reuseport group: the kernel gives all packets to one of them"
        ));
    }
    SkipReason::Single(group.cookies().flat_map(|cookie| server.readers_of(cookie)).count())
}

fn steering_method(
    group: &ServerGroup,
    machine: &MachineState,
    choice: &BoostChoice,
) -> Result<SteeringMethod, String> {
    let (major, minor) = INCOMING_CPU_COUNTS;
    let incoming_counts = machine.kernel_is_at_least((major, minor));
    let table = match &group.steering {
        Known::Unknown { why } if incoming_counts != Some(true) => {
            return Err(format!("it is not known whether a program steers it already ({why})"));
        }
        // An attached program has precedence, and then the option has no effect.
        Known::Unknown { .. } => {
            return Ok(SteeringMethod::IncomingCpu("Whether a program steers it already could not be read."));
        }
        Known::Value(text) if text == "classic-by-cpu" => return Ok(SteeringMethod::OwnByCpu),
        Known::Value(text) => parse_steering(text)?,
    };
    // A program would have precedence, and would silently replace the server's own choice.
    if table.is_none() && incoming_counts != Some(false) && every_socket_has_incoming_cpu(group) {
        return Ok(SteeringMethod::Already);
    }
    if !choice.by_incoming_cpu {
        return Ok(SteeringMethod::Program(table));
    }
    match (incoming_counts, table) {
        (_, Some(_)) => Err("a program of ours steers it already: undo that boost first".to_owned()),
        (Some(true), None) => Ok(SteeringMethod::IncomingCpu("It was asked for.")),
        (Some(false), None) => {
            Err(format!("SO_INCOMING_CPU counts in a group since Linux {major}.{minor} only"))
        }
        (None, None) => Err(format!(
            "SO_INCOMING_CPU counts in a group since Linux {major}.{minor}, and this kernel's version is unknown"
        )),
    }
}

/// The table of linerate's program; `None` if no program steers. An error names the program of
/// another owner.
fn parse_steering(text: &str) -> Result<Option<SteeringTable>, String> {
    let other_owner =
        |program: &str| format!("is steered already by {program} of its own or of another tool");
    match text {
        "none" => Ok(None),
        "classic" => Err(other_owner("a classic BPF program")),
        other => match other.parse::<SteeringTable>() {
            Ok(table) if table.follows_quic_ids => {
                Err("is steered by QUIC connection ID, by linerate boost run".to_owned())
            }
            Ok(table) => Ok(Some(table)),
            Err(_) => Err(other_owner(&format!("the BPF program '{other}'"))),
        },
    }
}

fn every_socket_has_incoming_cpu(group: &ServerGroup) -> bool {
    group.members.iter().all(|member| incoming_cpu(member).flatten().is_some())
}

/// The SO_INCOMING_CPU of a socket; `None` if its options are unknown.
#[expect(clippy::option_option, reason = "not known, known to be none, and a CPU are three things")]
pub(super) fn incoming_cpu(member: &GroupSocket) -> Option<Option<u32>> {
    member.options.value()?.as_ref().map(|options| options.incoming_cpu)
}
