//! The plan for a server.

mod advice;
mod benefit;
mod changes;
mod group;
mod options;
mod receiving_cpus;
mod table;
mod unit;

#[cfg(test)]
mod properties;
#[cfg(test)]
pub(super) mod sample;
#[cfg(test)]
mod tests;

use crate::TunePlan;
use crate::plan::{PlannedChange, SkippedFinding};
use linerate_host::PacketPath;
use linerate_host::setting::SteeringTable;
use linerate_host::stage::machine::MachineState;
use linerate_host::stage::socket::SocketProtocol;
use serde::{Deserialize, Serialize};

use crate::boost::ObservedServer;
use crate::boost::catalog::OptionEffect;
use crate::boost::discovery::ReaderThread;
use group::{OwnedGroup, SkipReason, SteeringMethod};
pub(super) use receiving_cpus::ReceivingCpus;
pub(super) use table::CpuHosts;
use unit::{CpuChooser, ThreadPlacement};

/// Options beyond steering and pinning.
#[derive(Debug, Clone, Default)]
pub struct BoostChoice {
    /// Poll for this many microseconds (SO_BUSY_POLL).
    pub busy_poll_us: Option<u32>,
    /// Receive buffers of at least this many bytes, as the kernel counts them.
    pub receive_buffer_bytes: Option<u64>,
    /// Skip IP ids if all observed replies were small enough.
    pub skip_ip_id: bool,
    /// Do not pin threads.
    pub no_pin: bool,
    /// Do not steer groups.
    pub no_steer: bool,
    /// Steer by SO_INCOMING_CPU instead of a program.
    pub by_incoming_cpu: bool,
    /// `boost run` started the server, and steers its sockets.
    pub is_steered_by_run: bool,
    /// Steer a server even if, according to the catalogue, it keeps the state of a client in one
    /// thread.
    pub anyway: bool,
}

/// A plan for a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BoostPlan {
    /// The changes of the tune. Its `skipped` has the changes that are not possible, with reasons.
    pub plan: TunePlan,
    pub places: Vec<CpuAssignment>,
    /// Advice on the server's own configuration.
    pub advice: Vec<ServerAdvice>,
    /// Groups that cannot be steered and threads that cannot be pinned, with reasons.
    pub refusals: Vec<BoostRefusal>,
}

/// A CPU, and the sockets and threads that receive its packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuAssignment {
    pub cpu: u32,
    /// Whether packets of the server's interfaces arrive there.
    pub receives: bool,
    /// Cookies, one per group; several if there are more readers than CPUs.
    pub sockets: Vec<u64>,
    /// The threads that should run there.
    pub threads: Vec<u32>,
}

/// A problem that only the server's own configuration can fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAdvice {
    /// A sentence on its cost.
    pub what: String,
    /// A line for the server's configuration; `None` if no option is known.
    pub option: Option<String>,
    /// URL of the documentation.
    pub source: Option<String>,
}

/// A change that is not possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoostRefusal {
    /// The group or thread.
    pub what: String,
    pub why: String,
}

/// Makes a plan: a pure function of its arguments.
///
/// Buffers grow first. Then threads are pinned while the kernel's hash still spreads packets over
/// all of them. When the steering program starts, each socket's thread is in place. The undo has
/// the reverse order, so no socket receives the packets of a CPU that its thread has left.
pub fn make(server: &ObservedServer, path: &PacketPath, choice: &BoostChoice) -> BoostPlan {
    let mut draft = BoostDraft::default();
    let cpus = match ReceivingCpus::of(server, path) {
        _ if server.udp_ports().is_empty() => {
            draft.refuse("the server", "it has no UDP socket, and boost is for UDP servers");
            Vec::new()
        }
        Some(receiving) => {
            draft.decide(server, &path.machine, &receiving, choice);
            draft.set_options(server, path, choice);
            let order = receiving.order();
            order.into_iter().filter(|cpu| receiving.receives(*cpu)).collect()
        }
        None => {
            let reason = path.machine.online.why().unwrap_or_default();
            draft.refuse("the server", &format!("it is not known which CPUs are online ({reason})"));
            Vec::new()
        }
    };
    draft.into_plan(format!("boost {}", server.title()), cpus)
}

#[derive(Default)]
struct BoostDraft {
    buffers: Vec<PlannedChange>,
    pins: Vec<PlannedChange>,
    steering: Vec<PlannedChange>,
    options: Vec<PlannedChange>,
    places: Vec<CpuAssignment>,
    advice: Vec<ServerAdvice>,
    /// Reasons in order of appearance, each with its groups and threads.
    refusals: Vec<(String, Vec<String>)>,
}

impl BoostDraft {
    fn decide(
        &mut self,
        server: &ObservedServer,
        machine: &MachineState,
        receiving: &ReceivingCpus,
        choice: &BoostChoice,
    ) {
        let groups = self.groups(server, machine, receiving, choice);
        let (units, unplaced_readers) = unit::place(server, &groups, receiving);
        for (reader, reason) in unplaced_readers {
            self.refuse(&thread_name(reader), &reason);
        }
        let hosts = CpuHosts::of(machine, receiving, &units.iter().map(|unit| unit.cpu).collect());
        let has_unit = |cpu| units.iter().any(|unit| unit.cpu == cpu);
        let table_of = |owned| {
            let table = hosts.table(machine, receiving, owned, &units);
            match &owned.way {
                SteeringMethod::Program(Some(current)) if receiving.is_as_good(current, &table, has_unit) => {
                    current.clone()
                }
                _ => table,
            }
        };
        let tables: Vec<(&OwnedGroup<'_>, SteeringTable)> =
            groups.iter().map(|owned| (owned, table_of(owned))).collect();
        self.advice.extend(advice::units(server, receiving, &units));
        if !choice.no_steer
            && let Some(reason) = benefit::skip_reason(server, &tables, &units)
        {
            groups.iter().for_each(|owned| self.refuse(&group::name(owned.group), &reason));
            return;
        }
        let is_fed = |unit: &ThreadPlacement<'_>| {
            let reads = |owned: &OwnedGroup<'_>| {
                owned.sockets.iter().any(|(_, reader)| reader.tid == unit.reader.tid)
            };
            choice.no_steer
                || unit.chosen == CpuChooser::OnlyOne
                || tables.iter().any(|(owned, table)| reads(owned) && benefit::is_by_cpu(owned, table))
        };
        let fed_units: Vec<ThreadPlacement<'_>> = units.iter().copied().filter(is_fed).collect();
        if !choice.no_pin {
            self.pin(&fed_units);
        }
        if !choice.no_steer {
            for (owned, table) in &tables {
                self.steer(server, (owned, table), &units);
            }
        }
        self.places = places(receiving, &tables, &fed_units, choice);
        if !self.steering.is_empty() {
            self.advice.extend(advice::lasting_option(server, OptionEffect::Steering));
        }
    }

    /// The groups that can be steered. Other groups are refused with the reason and advice.
    fn groups<'s>(
        &mut self,
        server: &'s ObservedServer,
        machine: &MachineState,
        receiving: &ReceivingCpus,
        choice: &BoostChoice,
    ) -> Vec<OwnedGroup<'s>> {
        let mut groups = Vec::new();
        let mut most_readers = None;
        for group in &server.groups {
            match group::judge(server, group, machine, choice) {
                Ok(owned) => groups.push(owned),
                Err(SkipReason::SingleListener) => {}
                Err(SkipReason::Single(readers)) => {
                    most_readers = most_readers.max(Some(readers));
                    self.refuse(&group::name(group), &single_socket_reason(readers));
                }
                Err(SkipReason::Because(reason)) => self.refuse(&group::name(group), &reason),
            }
        }
        for owned in &groups {
            for member in &owned.unread {
                let socket_name = format!("socket {} of {}", member.socket.cookie, group::name(owned.group));
                self.refuse(&socket_name, "no thread was seen to read it: it is given no packets");
            }
        }
        // TCP listeners only follow the threads that read datagrams.
        if !groups.iter().any(|owned| owned.group.protocol == SocketProtocol::Udp) {
            groups.clear();
        }
        if let Some(readers) = most_readers {
            self.advice.extend(advice::single_socket(server, readers, receiving.online.len()));
        }
        groups
    }

    fn pin(&mut self, units: &[ThreadPlacement<'_>]) {
        for unit in units {
            let thread = thread_name(unit.reader);
            if unit.chosen == CpuChooser::OnlyOne {
                self.refuse(&thread, &format!("its control group lets it run on CPU {} alone", unit.cpu));
            }
            match changes::pin(unit) {
                Ok(change) => self.pins.extend(change),
                Err(reason) => self.refuse(&thread, &reason),
            }
        }
    }

    fn steer(
        &mut self,
        server: &ObservedServer,
        (owned, table): (&OwnedGroup<'_>, &SteeringTable),
        units: &[ThreadPlacement<'_>],
    ) {
        let group_name = group::name(owned.group);
        match &owned.way {
            SteeringMethod::Already => {
                self.refuse(&group_name, "is steered already, by SO_INCOMING_CPU of each socket");
            }
            SteeringMethod::OwnByCpu => self.refuse(&group_name, group::BY_CPU),
            _ if table.by_cpu.is_empty() => {
                self.refuse(&group_name, "none of its threads can be given a CPU");
            }
            _ if changes::is_like_hash(owned, table) => {
                let reason = "one thread or one CPU has all its sockets: steering would change nothing";
                self.refuse(&group_name, reason);
            }
            SteeringMethod::Program(Some(current_table)) if current_table == table => {}
            SteeringMethod::Program(current_table) => {
                self.steering.push(changes::steer(server, owned, current_table.as_ref(), table));
            }
            SteeringMethod::IncomingCpu(cause) => match changes::set_incoming_cpus(owned, units, cause) {
                Ok(changes) => self.steering.extend(changes),
                Err(reason) => self.refuse(&group_name, &reason),
            },
        }
    }

    /// Options of sockets, including those in no group.
    fn set_options(&mut self, server: &ObservedServer, path: &PacketPath, choice: &BoostChoice) {
        for group in server.groups.iter().filter(|group| group.protocol == SocketProtocol::Udp) {
            let group_name = group::name(group);
            match options::receive_buffers(server, group, choice) {
                Ok(changes) => self.buffers.extend(changes),
                Err(reason) => self.refuse(&group_name, &reason),
            }
            for changes in [options::path_mtu(server, group, path, choice), options::busy_poll(group, choice)]
            {
                match changes {
                    Ok(changes) => self.options.extend(changes),
                    Err(reason) => self.refuse(&group_name, &reason),
                }
            }
        }
        if !self.buffers.is_empty() {
            self.advice.extend(advice::lasting_option(server, OptionEffect::Buffers));
        }
    }

    fn refuse(&mut self, subject: &str, reason: &str) {
        match self.refusals.iter_mut().find(|(known_reason, _)| known_reason == reason) {
            Some((_, subjects)) => subjects.push(subject.to_owned()),
            None => self.refusals.push((reason.to_owned(), vec![subject.to_owned()])),
        }
    }

    fn into_plan(self, goal: String, cpus: Vec<u32>) -> BoostPlan {
        let refusals: Vec<BoostRefusal> = self
            .refusals
            .into_iter()
            .map(|(why, subjects)| BoostRefusal { what: list_first(&subjects), why })
            .collect();
        let skipped_finding =
            |refusal: &BoostRefusal| SkippedFinding::note("boost", refusal.what.clone(), &refusal.why);
        BoostPlan {
            plan: TunePlan {
                cpus,
                changes: [self.buffers, self.pins, self.steering, self.options].concat(),
                skipped: refusals.iter().map(skipped_finding).collect(),
                ..TunePlan::new(goal)
            },
            places: self.places,
            advice: self.advice,
            refusals,
        }
    }
}

fn thread_name(reader: &ReaderThread) -> String {
    format!("thread {} ({})", reader.tid, reader.name)
}

fn single_socket_reason(readers: usize) -> String {
    match readers {
        0 => "one socket, and no thread was seen to read it: nothing can be steered".to_owned(),
        1 => "one socket, 1 thread: nothing can be steered".to_owned(),
        threads => format!(
            "one socket, {threads} threads: nothing can be steered: all packets queue at one lock and one buffer"
        ),
    }
}

/// The assignment of each CPU; empty if nothing is steered or pinned.
fn places(
    receiving: &ReceivingCpus,
    tables: &[(&OwnedGroup<'_>, SteeringTable)],
    units: &[ThreadPlacement<'_>],
    choice: &BoostChoice,
) -> Vec<CpuAssignment> {
    let is_steered = |owned: &OwnedGroup<'_>, table| !choice.no_steer && benefit::is_by_cpu(owned, table);
    let steered: Vec<_> = tables.iter().filter(|(owned, table)| is_steered(owned, table)).collect();
    if steered.is_empty() && (choice.no_pin || units.is_empty()) {
        return Vec::new();
    }
    let place = |cpu: u32| {
        let rows = steered.iter().filter_map(|(_, table)| table.by_cpu.get(&cpu));
        let local_units = units.iter().filter(|unit| unit.cpu == cpu && (!choice.no_pin || unit.is_bound()));
        CpuAssignment {
            cpu,
            receives: receiving.receives(cpu),
            sockets: rows.flatten().copied().collect(),
            threads: local_units.map(|unit| unit.reader.tid).collect(),
        }
    };
    receiving.online.iter().map(place).collect()
}

fn list_first(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let text = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        Some(more) => format!("{text} and {more} more"),
        None => text,
    }
}
