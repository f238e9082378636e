//! Amplification: the reply bytes per request byte that a sender with forged source addresses can
//! cause, over generated requests.
//!
//! The table in docs/serve.md lists these factors.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hmac::{Hmac, Mac as _};
use linerate_services::dns::{DnsRateLimit, DnsService, ServedZones, Zones};
use linerate_services::ntp::{HEADER_BYTES, NtpService, NtpSettings, NtpTimestamp};
use linerate_services::radius::{self, RadiusServer, RequestOutcome, UserDatabase};
use md5::Md5;

const REQUESTS: usize = 200_000;

/// The answered requests, and the largest amplification factor.
#[derive(Default)]
struct AmplificationStats {
    answered: usize,
    worst: f64,
}

impl AmplificationStats {
    fn add(&mut self, request: &[u8], answer: Option<usize>) {
        if let Some(length) = answer {
            self.answered += 1;
            self.worst = self.worst.max(length as f64 / request.len().max(1) as f64);
        }
    }
}

/// Random bytes. Half of the results have `length` bytes, the others fewer than 100. Four of five
/// begin with a byte of `starts`.
fn random_bytes(random: &mut fastrand::Rng, starts: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; if random.bool() { length } else { random.usize(0..100) }];
    random.fill(&mut bytes);
    if let (Some(first), true) = (bytes.first_mut(), random.u8(..) < 200) {
        *first = random.choice(starts).copied().unwrap_or(0);
    }
    bytes
}

#[test]
fn ntp_replies_are_never_longer_than_requests() {
    let mut server = NtpService::new(NtpSettings { local_stratum: Some(1), ..NtpSettings::default() });
    let mut random = fastrand::Rng::with_seed(5905);
    let (mut account, mut reply) = (AmplificationStats::default(), [0; 2048]);
    let source = IpAddr::from([192, 0, 2, 1]);
    for _ in 0..REQUESTS {
        // Client requests of versions 1 to 4, control and private messages (modes 6 and 7),
        // broadcasts, and server replies.
        let request = random_bytes(
            &mut random,
            &[0x0b, 0x13, 0x1b, 0x23, 0x16, 0x17, 0x1e, 0x25, 0x24, 0xe3],
            HEADER_BYTES,
        );
        let answer = server.answer_at(&request, source, NtpTimestamp::now(), &mut reply);
        account.add(&request, answer.ok());
    }
    println!("ntp: {} of {REQUESTS} answered, factor at most {:.2}", account.answered, account.worst);
    assert!(account.answered > REQUESTS / 100, "only {} answered: too few valid requests", account.answered);
    assert_eq!(account.worst, 1.0);
}

#[test]
fn radius_does_not_answer_requests_without_the_secret() {
    let file = "[[client]]\nnetwork = \"192.0.2.0/24\"\nsecret = \"a secret\"\n[[user]]\nname = \"u\"\npassword = \"p\"\n";
    let users = Arc::new(UserDatabase::parse(file, Path::new("users")).expect("a file of users"));
    let mut random = fastrand::Rng::with_seed(2865);
    let mut reply = [0; 4096];
    let radius = RadiusServer::new(users);
    let mut worker = radius.worker();
    let mut account = AmplificationStats::default();
    for number in 0..REQUESTS / 5 {
        let packet = forged_packet(&mut random);
        // Three of four requests come from a configured client, the others from an unknown source.
        let source = SocketAddr::from(([192, 0, 2 + u8::from(number % 4 == 0), 1], 2000));
        let (_, length) = worker.answer_at(&packet, source, Instant::now(), &mut reply);
        account.add(&packet, length);
    }
    let counts = radius.counts();
    println!("radius: {} of {} answered; {counts}", account.answered, REQUESTS / 5);
    assert_eq!(account.answered, 0);
    // Every reason for silence occurred, so the forged requests reached every check.
    for reason in [
        RequestOutcome::Malformed,
        RequestOutcome::WrongType,
        RequestOutcome::UnknownClient,
        RequestOutcome::WrongSecret,
    ] {
        assert!(counts.of(reason) > 0, "{counts}");
    }
    // The same server answers a client that knows the secret.
    let mut signed = [&[12, 1, 0, 38][..], &[0; 16], &[80, 18], &[0; 16]].concat();
    let mac = Hmac::<Md5>::new_from_slice(b"a secret").expect("any key").chain_update(&signed).finalize();
    signed[22..].copy_from_slice(&mac.into_bytes());
    let source = SocketAddr::from(([192, 0, 2, 1], 2000));
    let (outcome, length) = worker.answer_at(&signed, source, Instant::now(), &mut reply);
    assert_eq!((outcome, length), (RequestOutcome::Status, Some(38)));
}

/// A query for the text of `tN.example.`, with EDNS.
fn query(number: usize) -> Vec<u8> {
    let label = format!("t{number}");
    let mut query = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, label.len() as u8];
    query.extend(label.as_bytes());
    query.extend(b"\x07example\0");
    query.extend([0, 16, 0, 1]);
    query.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    query
}

/// Queries per flood: enough to reach every limit, and few enough for a busy machine.
const FLOOD: usize = 10_000;

/// Sends a flood of queries for `names` names, with sources in one network. Returns its duration in
/// seconds and its statistics.
fn flood_statistics(limit: Option<DnsRateLimit>, names: usize) -> (f64, FloodStats) {
    let text = format!("\"{}\" ", "x".repeat(250)).repeat(4);
    let zone: String = (0..names).map(|name| format!("t{name} 60 IN TXT {text}\n")).collect();
    let zone = format!("@ 60 IN SOA a b 1 2 3 4 5\n@ 60 IN NS a\n{zone}");
    let served = ServedZones::new(Zones::parse("example", &zone).expect("a zone"));
    let mut server = DnsService::new(served).rate_limit(limit);
    let (mut flood, mut reply) = (FloodStats::default(), [0; 2048]);
    let started = Instant::now();
    for number in 0..FLOOD {
        let query = query(number % names);
        let source = IpAddr::from([192, 0, 2, number as u8]);
        let length = server.answer_at(&query, source, &mut reply).unwrap_or(0);
        flood.query_bytes += query.len();
        flood.reply_bytes += length;
        flood.truncated += usize::from(length > 0 && length <= query.len());
    }
    (started.elapsed().as_secs_f64(), flood)
}

#[derive(Default)]
struct FloodStats {
    query_bytes: usize,
    reply_bytes: usize,
    truncated: usize,
}

impl FloodStats {
    fn factor(&self) -> f64 {
        self.reply_bytes as f64 / self.query_bytes as f64
    }
}

#[test]
fn dns_amplification_stays_within_the_surplus_limit() {
    let limit = DnsRateLimit::default();
    for names in [1, 1000] {
        let (_, open) = flood_statistics(None, names);
        let (seconds, limited) = flood_statistics(Some(limit), names);
        println!(
            "dns, {} queries for {names} names: factor {:.1} without limits, {:.2} with, in {seconds:.2} s",
            FLOOD,
            open.factor(),
            limited.factor()
        );
        assert!(open.factor() > 20.0, "{}", open.factor());
        // The limit allows a surplus of bytes per second, and the bucket is full at first.
        let surplus = f64::from(limit.surplus_bytes) * (seconds + 1.0);
        assert!(limited.reply_bytes as f64 <= limited.query_bytes as f64 + surplus, "{}", limited.factor());
        // Truncated replies make real clients repeat their queries over TCP.
        assert!(limited.truncated > FLOOD / 3, "{} truncated", limited.truncated);
    }
}

/// A packet with well-formed attributes, signed with a wrong secret or not at all, and sometimes
/// with a damaged byte.
fn forged_packet(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut packet =
        vec![*random.choice(&[1, 1, 1, 4, 4, 12, 12, 2, 3, 5, 11]).unwrap_or(&1), random.u8(..), 0, 0];
    let mut authenticator = [0; 16];
    random.fill(&mut authenticator);
    packet.extend(authenticator);
    let mut signature = None;
    for _ in 0..random.usize(0..5) {
        let kind = *random.choice(&[1, 2, 3, 40, 33, 79, 80]).unwrap_or(&1);
        let length = if kind == 80 { 16 } else { random.usize(0..32) };
        if kind == 80 {
            signature = Some(packet.len() + 2);
        }
        packet.extend([kind, length as u8 + 2]);
        packet.extend(std::iter::repeat_n(0, length));
    }
    let length = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
    radius::sign(&mut packet, signature, b"another secret", authenticator);
    // Signing replaces the header's authenticator by a digest, as in a reply. A request contains
    // the authenticator itself.
    packet[4..20].copy_from_slice(&authenticator);
    if random.u8(..) < 50 {
        let at = random.usize(0..packet.len());
        packet[at] = random.u8(..);
    }
    packet
}
