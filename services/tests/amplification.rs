//! Amplification: the reply bytes per query byte that a sender with forged source addresses can
//! cause.

use std::net::IpAddr;
use std::time::Instant;

use linerate_services::dns::{DnsRateLimit, DnsService, ServedZones, Zones};

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
