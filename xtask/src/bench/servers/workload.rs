//! The protocols, and the queries of name servers.

use std::fmt::Write as _;
use std::sync::Arc;

use linerate_load::LoadWorkload;
use linerate_load::workload::dns::{self, DnsQueryOptions};

/// Hosts in the zone.
pub(super) const HOSTS: u32 = 1_000;

pub(super) const ZONE: &str = "example.test";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerProtocol {
    Echo,
    Dns,
}

/// Queries for the addresses of hosts that are there.
pub(super) fn dns_queries() -> anyhow::Result<LoadWorkload> {
    let mut queries = String::new();
    for host in 0..HOSTS {
        let kind = if host % 4 == 3 { "AAAA" } else { "A" };
        writeln!(queries, "host{host}.{ZONE} {kind}")?;
    }
    Ok(LoadWorkload::Exchange(Arc::new(dns::from_text(
        &queries,
        "the bench's queries",
        &DnsQueryOptions::default(),
    )?)))
}
