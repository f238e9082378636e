//! Compares linerate's answers with those of NSD and Knot DNS, for the same zones and queries. The
//! comparison with NSD includes malformed queries. Only differences that an RFC explains are
//! allowed.
//!
//! `LINERATE_TEST_LONG=1` sends 100,000 queries to NSD instead of 20,000. `LINERATE_TEST_SEED` sets
//! the seed of the queries.

mod explained;
mod meaning;
mod queries;
mod rival;
mod zones;

use std::collections::BTreeMap;
use std::io::Write as _;

use linerate_services::dns::{DnsAnswerer, QueryTransport, ServedZones, UDP_SIZE, Zones};
use linerate_testkit::reflector::installed::find;
use linerate_testkit::skip;
use meaning::MessageContent;

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn answers_agree_with_nsd_up_to_rfc_differences() {
    let Some(program) = find("nsd") else {
        return skip("answers_agree_with_nsd_up_to_rfc_differences", "nsd is not installed");
    };
    let directory = tempfile::tempdir().expect("a directory");
    let files = zones::write(directory.path());
    let zones = Zones::load(&files).expect("zones");
    let mut ours = DnsAnswerer::new(ServedZones::new(zones));
    let nsd = rival::ReferenceServer::nsd(&program, directory.path(), &files);

    let count = if environment("LINERATE_TEST_LONG") == Some(1) { 100_000 } else { 20_000 };
    let mut generator =
        queries::QueryGenerator::new(environment("LINERATE_TEST_SEED").unwrap_or(1), zones::names());
    let queries: Vec<Vec<u8>> = (0..count).map(|_| generator.next()).collect();
    let kinds = compare(&mut ours, &nsd, "nsd", &queries).kinds;
    assert_same_over_tcp(&nsd, &mut ours, &queries[..2_000]);
    // The queries must have caused every kind of answer.
    for kind in ["silence", "0", "1", "3", "4", "5", "9", "truncated"] {
        assert!(kinds.get(kind).is_some_and(|count| *count > 20), "few answers of kind {kind}: {kinds:?}");
    }
}

struct Comparison {
    /// Answers of the other server by kind.
    kinds: BTreeMap<String, usize>,
    reasons: BTreeMap<&'static str, usize>,
}

/// Compares linerate's answers over UDP with those of another server. Only differences that an RFC
/// explains are allowed.
fn compare(
    ours: &mut DnsAnswerer,
    rival: &rival::ReferenceServer,
    name: &str,
    queries: &[Vec<u8>],
) -> Comparison {
    let mut reply = vec![0; 65_535];
    let our_answers: Vec<Option<Vec<u8>>> = queries
        .iter()
        .map(|query| {
            let length = ours.answer(query, &mut reply, QueryTransport::Udp { most: UDP_SIZE })?;
            Some(reply[..length].to_vec())
        })
        .collect();
    let answered: Vec<bool> = our_answers.iter().map(Option::is_some).collect();
    let their_answers = rival.answers(queries, &answered);

    let mut comparison = Comparison { kinds: BTreeMap::new(), reasons: BTreeMap::new() };
    let mut different = Vec::new();
    for ((query, our), their) in queries.iter().zip(&our_answers).zip(&their_answers) {
        let (our, their) = (our.as_deref().map(meaning::read), their.as_deref().map(meaning::read));
        *comparison.kinds.entry(kind(their.as_ref())).or_default() += 1;
        let difference = match (&our, &their) {
            (Some(Ok(our)), Some(Ok(their))) => {
                explained::difference(query, our, their, || full(ours, query))
            }
            (None, None) => Ok(explained::SAME),
            _ => Err("one answers, or cannot be read"),
        };
        match difference {
            Ok(reason) => *comparison.reasons.entry(reason).or_default() += 1,
            Err(why) => different.push(format!("{why}: {query:02x?}\n ours   {our:?}\n theirs {their:?}")),
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {} queries: {:?} {:#?}",
        queries.len(),
        comparison.kinds,
        comparison.reasons
    );
    let examples = different[..different.len().min(12)].join("\n");
    assert!(different.is_empty(), "{} of {} differ from {name}:\n{examples}", different.len(), queries.len());
    comparison
}

/// linerate's complete answer, over TCP.
fn full(ours: &mut DnsAnswerer, query: &[u8]) -> MessageContent {
    let mut reply = vec![0; 65_535];
    let length = ours.answer(query, &mut reply, QueryTransport::Tcp).expect("an answer over TCP");
    meaning::read(&reply[..length]).expect("an answer that can be read")
}

/// Compares the answers to 5,000 queries with NSD and with Knot DNS, for zones with `@`, time
/// units, delegations, deep glue and wildcards.
#[test]
fn differences_from_nsd_and_knot_are_allowed_by_rfcs() {
    const COUNT: usize = 5_000;
    let directory = tempfile::tempdir().expect("a directory");
    let files = zones::write(directory.path());
    let mut ours = DnsAnswerer::new(ServedZones::new(Zones::load(&files).expect("zones")));
    let seed = environment("LINERATE_TEST_SEED").unwrap_or(9471);
    let mut generator = queries::QueryGenerator::new(seed, zones::deep_names());
    let queries: Vec<Vec<u8>> = (0..COUNT).map(|_| generator.plain()).collect();
    for name in ["nsd", "knotd"] {
        let Some(program) = find(name) else {
            let why = format!("{name} is not installed");
            skip("differences_from_nsd_and_knot_are_allowed_by_rfcs", why);
            continue;
        };
        let start = if name == "nsd" { rival::ReferenceServer::nsd } else { rival::ReferenceServer::knot };
        let rival = start(&program, directory.path(), &files);
        let Comparison { kinds, reasons } = compare(&mut ours, &rival, name, &queries);
        assert!(!kinds.contains_key("silence"), "{name}: {kinds:?}");
        assert!(reasons.get(explained::SAME).is_some_and(|count| *count > COUNT / 4), "{reasons:?}");
    }
}

/// Compares answers over TCP, which are complete at any size. Leaves out queries (malformed, or
/// with an unknown opcode) for which NSD limits the rate of responses.
fn assert_same_over_tcp(nsd: &rival::ReferenceServer, ours: &mut DnsAnswerer, queries: &[Vec<u8>]) {
    let mut reply = vec![0; 65_535];
    let mut answered_queries = Vec::new();
    for query in queries {
        let Some(length) = ours.answer(query, &mut reply, QueryTransport::Tcp) else { continue };
        let answer = meaning::read(&reply[..length]).expect("an answer that can be read");
        if !matches!(answer.header[3] & 15, 1 | 4) {
            answered_queries.push((query.as_slice(), answer));
        }
    }
    let theirs =
        nsd.stream_answers(answered_queries.iter().map(|(query, _)| *query)).expect("answers over TCP");
    for ((query, our), their) in answered_queries.iter().zip(&theirs) {
        let their = meaning::read(their).expect("an answer that can be read");
        if let Err(why) = explained::difference(query, our, &their, || full(ours, query)) {
            panic!("over TCP, {why}: {query:02x?}\n ours   {our:?}\n theirs {their:?}");
        }
    }
    assert!(
        answered_queries.len() > queries.len() / 2,
        "{} of {} queries",
        answered_queries.len(),
        queries.len()
    );
}

/// The kind of an answer: its response code, `truncated`, or `silence`.
fn kind(answer: Option<&Result<MessageContent, String>>) -> String {
    match answer {
        None => "silence".into(),
        Some(Err(_)) => "unreadable".into(),
        Some(Ok(answer)) if answer.header[2] & 2 != 0 && answer.question.len() > 5 => "truncated".into(),
        Some(Ok(answer)) => (answer.header[3] & 15).to_string(),
    }
}
