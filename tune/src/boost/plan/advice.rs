//! Advice on problems that only the server's own configuration can fix, with their cost.

use super::ServerAdvice;
use super::receiving_cpus::ReceivingCpus;
use super::unit::{CpuChooser, ThreadPlacement};
use crate::boost::catalog::{self, OptionEffect, ProductOption, ServerProduct};
use crate::boost::{ObservedServer, count};

/// The cost of a single socket.
pub(super) fn single_socket(server: &ObservedServer, readers: usize, cpus: usize) -> Vec<ServerAdvice> {
    let sentence = match readers {
        0 | 1 => format!(
            "One thread reads one socket: it uses one CPU at most, on however many of the {cpus} CPUs packets arrive."
        ),
        threads => format!(
            "{threads} threads take turns at one socket, its lock and its buffer. Where that was measured, two threads on one \
             socket received 480,000 packets/s, and one alone 650,000 (M. Majkowski, How to receive a million packets per \
             second, 2015); 20 cores made 270,000 transactions/s with one socket, and 2.54 million with a socket a thread and \
             interrupts spread too (T. Makita, Boost UDP Transaction Performance, 2016)."
        ),
    };
    // With a thread per CPU there are enough workers already.
    let effects = [OptionEffect::Sockets, OptionEffect::Workers];
    let mut advice =
        with_options(server, sentence, if readers < cpus { &effects } else { &effects[..1] }, cpus);
    // The server's own option is simpler.
    if cpus > 1 && advice.iter().all(|item| item.option.is_none()) {
        advice.push(replicas(server, cpus));
    }
    advice
}

/// Copies of the whole server, which require no option of the server.
fn replicas(server: &ObservedServer, cpus: usize) -> ServerAdvice {
    let port = server.udp_ports().first().copied().unwrap_or_default();
    ServerAdvice {
        what: "Several copies of the server can share its port, unmodified. Not if requests must see the same data in memory, if \
               copies would write the same files, or if a licence counts processes."
            .to_owned(),
        option: Some(format!("linerate boost run --replicas {cpus} --port {port} -- COMMAND")),
        source: Some("docs/replicas.md".to_owned()),
    }
}

/// The cost of too few readers, or of readers on CPUs without packets.
pub(super) fn units(
    server: &ObservedServer,
    receiving: &ReceivingCpus,
    units: &[ThreadPlacement<'_>],
) -> Vec<ServerAdvice> {
    if units.is_empty() {
        return Vec::new();
    }
    let mut advice = Vec::new();
    let cpus = receiving.arrival_cpus().unwrap_or(&receiving.online);
    let unread_cpus = cpus.iter().filter(|cpu| !units.iter().any(|unit| unit.cpu == *cpu)).count();
    if units.len() < cpus.len() {
        let verb = if receiving.arrival_cpus().is_some() { "arrive" } else { "may arrive" };
        let sentence = format!(
            "Packets {verb} on {} CPUs, and {} read them: those of {} are read on another CPU than they arrive on.",
            cpus.len(),
            count(units.len(), "thread"),
            count(unread_cpus, "CPU"),
        );
        advice.extend(with_options(server, sentence, &[OptionEffect::Workers], cpus.len()));
    } else if units.len() > cpus.len() && receiving.arrival_cpus().is_some() {
        let sentence = format!(
            "Packets arrive on {}, and {} read them: those on other CPUs take part in them, at the cost of fetching each packet from \
             another CPU's cache. More queues, or RPS, bring packets to these CPUs: linerate tune plans that.",
            count(cpus.len(), "CPU"),
            count(units.len(), "thread"),
        );
        advice.push(without_option(sentence));
    }
    let is_known = receiving.arrival_cpus().is_some();
    let misplaced_units =
        units.iter().filter(|unit| unit.chosen == CpuChooser::Bound && !receiving.receives(unit.cpu));
    for unit in misplaced_units.filter(|_| is_known) {
        let sentence = format!(
            "Thread {} is bound to CPU {} by the server or by who started it, and no packets arrive there: it is left there, and reads those \
             of another CPU.",
            unit.reader.tid, unit.cpu
        );
        advice.extend(with_options(server, sentence, &[OptionEffect::Pinning], cpus.len()));
    }
    advice
}

/// The server's own option for a setting that is made from outside and ends with its sockets and
/// threads.
pub(super) fn lasting_option(server: &ObservedServer, effect: OptionEffect) -> Vec<ServerAdvice> {
    let sentence = format!(
        "What is set from outside ends with the server; it has an option for {} itself.",
        effect.in_words()
    );
    let options = product(server).into_iter().flat_map(|product| product.options_for(effect));
    options.map(|option| option_advice(sentence.clone(), option, server.readers.len())).collect()
}

fn product(server: &ObservedServer) -> Option<&'static ServerProduct> {
    catalog::product(server.product.as_deref()?)
}

/// The sentence, with the first option of the product that has one of `effects`. Each
/// further option is an item of its own.
fn with_options(
    server: &ObservedServer,
    sentence: String,
    effects: &[OptionEffect],
    cpus: usize,
) -> Vec<ServerAdvice> {
    let Some(product) = product(server) else { return vec![without_option(sentence)] };
    let options: Vec<_> = effects.iter().flat_map(|effect| product.options_for(*effect)).collect();
    let Some((first, further)) = options.split_first() else {
        return vec![without_option(format!(
            "{sentence} {}: {} No option of it changes that, as far as is known here.",
            product.name, product.shape
        ))];
    };
    let further_advice = |option: &&ProductOption| {
        let sentence = format!("{} has an option for {} too.", product.name, option.gives.in_words());
        option_advice(sentence, option, cpus)
    };
    std::iter::once(option_advice(sentence, first, cpus)).chain(further.iter().map(further_advice)).collect()
}

fn without_option(sentence: String) -> ServerAdvice {
    ServerAdvice { what: sentence, option: None, source: None }
}

/// Advice with the option as a person writes it: the number of CPUs, the version that it requires.
fn option_advice(sentence: String, option: &ProductOption, cpus: usize) -> ServerAdvice {
    let setting = option.with_cpus(cpus);
    let text = match &option.since {
        Some(since) => format!("{setting} ({since} and later)"),
        None => setting,
    };
    ServerAdvice { what: sentence, option: Some(text), source: Some(option.source.clone()) }
}
