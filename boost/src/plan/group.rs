//! Which groups of sockets can be steered, and who reads what.

use linerate_host::Known;
use linerate_host::setting::SteeringTable;
use linerate_host::stage::machine::Machine;
use linerate_host::stage::socket::Protocol;

use super::Choice;
use crate::Server;
use crate::sight::{Group, Member, Reader};

/// SO_INCOMING_CPU of a socket counts in its group since then (`reuseport_select_sock_by_hash` in
/// net/core/sock_reuseport.c).
const INCOMING_CPU_COUNTS: (u32, u32) = (6, 2);

/// A group whose sockets are read by one thread each.
pub(super) struct Owned<'s> {
    pub(super) group: &'s Group,
    /// The sockets that are read, each with its reader.
    pub(super) sockets: Vec<(&'s Member, &'s Reader)>,
    /// Those that nobody reads.
    pub(super) unread: Vec<&'s Member>,
    /// How it is to be steered.
    pub(super) way: Way,
}

/// How a group is steered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// By our program: what it has now, none where there is none.
    Program(Option<SteeringTable>),
    /// By SO_INCOMING_CPU of each socket, for this reason.
    IncomingCpu(&'static str),
    /// By SO_INCOMING_CPU of each socket, as it is already.
    Already,
}

/// Why a group is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is a single socket, with so many readers.
    Single(usize),
    /// It is no UDP socket, and single: nothing to tell.
    SingleListener,
    /// Something else.
    Because(String),
}

/// Whether a group can be steered, and how.
pub(super) fn judge<'s>(
    server: &'s Server,
    group: &'s Group,
    machine: &Machine,
    choice: &Choice,
) -> Result<Owned<'s>, Unfit> {
    if !group.reuseport || group.members.len() < 2 {
        return Err(single(server, group));
    }
    let mut sockets = Vec::new();
    let mut unread = Vec::new();
    for member in &group.members {
        let cookie = member.socket.cookie;
        let readers: Vec<&Reader> =
            server.readers_of(cookie).filter(|reader| !only_holds(reader, cookie, group)).collect();
        match readers.as_slice() {
            [] => unread.push(member),
            [reader] => sockets.push((member, *reader)),
            several => {
                return Err(Unfit::Because(format!(
                    "{} threads read socket {} of it: its packets have no one CPU to go to",
                    several.len(),
                    member.socket.cookie
                )));
            }
        }
    }
    if sockets.is_empty() {
        return Err(Unfit::Because("no thread was seen to read any of its sockets".to_owned()));
    }
    let way = way(group, machine, choice).map_err(Unfit::Because)?;
    Ok(Owned { group, sockets, unread, way })
}

/// Whether a thread is only guessed to read the socket, and was seen to read another of the group: workers inherit those of
/// their siblings from the process that made all, and one of a sibling that died would otherwise count as read.
fn only_holds(reader: &Reader, cookie: u64, group: &Group) -> bool {
    let reads = |other: &u64| !reader.guessed.contains(other);
    let has_own = group.members.iter().map(|member| &member.socket.cookie);
    !reads(&cookie) && has_own.filter(|other| reader.sockets.contains(other)).any(reads)
}

/// As a person names it.
pub(super) fn name(group: &Group) -> String {
    format!("{} {}", group.protocol.name(), group.local)
}

fn single(server: &Server, group: &Group) -> Unfit {
    if group.protocol == Protocol::Tcp {
        return Unfit::SingleListener;
    }
    if group.members.len() > 1 {
        let count = group.members.len();
        return Unfit::Because(format!(
            "its {count} sockets are in no reuseport group: the kernel gives all packets to one of them"
        ));
    }
    let readers = group.members.iter().flat_map(|member| server.readers_of(member.socket.cookie)).count();
    Unfit::Single(readers)
}

fn way(group: &Group, machine: &Machine, choice: &Choice) -> Result<Way, String> {
    let (major, minor) = INCOMING_CPU_COUNTS;
    let incoming_counts = machine.kernel_is_at_least(major, minor);
    let table = match &group.steering {
        Known::Unknown { why } if incoming_counts != Some(true) => {
            return Err(format!("it is not known whether a program steers it already ({why})"));
        }
        // A program that is there goes first, and the option changes nothing then.
        Known::Unknown { .. } => {
            return Ok(Way::IncomingCpu("Whether a program steers it already could not be read."));
        }
        Known::Value(text) => steered_by(text)?,
    };
    // A program would go first, and silently take the place of what the server asked for.
    if table.is_none() && incoming_counts != Some(false) && every_socket_asks(group) {
        return Ok(Way::Already);
    }
    if !choice.by_incoming_cpu {
        return Ok(Way::Program(table));
    }
    match (incoming_counts, table) {
        (_, Some(_)) => Err("a program of ours steers it already: undo that boost first".to_owned()),
        (Some(true), None) => Ok(Way::IncomingCpu("It was asked for.")),
        (Some(false), None) => {
            Err(format!("SO_INCOMING_CPU counts in a group since Linux {major}.{minor} only"))
        }
        (None, None) => Err(format!(
            "SO_INCOMING_CPU counts in a group since Linux {major}.{minor}, and this kernel's version is unknown"
        )),
    }
}

/// The table of our program, or none where nothing steers. What others attached is named.
fn steered_by(text: &str) -> Result<Option<SteeringTable>, String> {
    let foreign = |what: &str| format!("{what} (its own or another tool's): left as it is");
    match text {
        "none" => Ok(None),
        "classic" => Err(foreign("is steered already by a classic program")),
        "classic-by-cpu" => Err(foreign("is steered already by a classic program by CPU")),
        other => match other.parse::<SteeringTable>() {
            Ok(table) => Ok(Some(table)),
            Err(_) => Err(foreign(&format!("is steered already by {other}"))),
        },
    }
}

/// Whether each socket asks for the packets of a CPU.
fn every_socket_asks(group: &Group) -> bool {
    group.members.iter().all(|member| incoming_cpu(member).flatten().is_some())
}

/// The CPU that a socket asks for; none where its options are not known.
#[expect(clippy::option_option, reason = "not known, known to be none, and a CPU are three things")]
pub(super) fn incoming_cpu(member: &Member) -> Option<Option<u32>> {
    member.options.value()?.as_ref().map(|options| options.incoming_cpu)
}
