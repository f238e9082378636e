//! Destinations and source addresses of requests.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, ensure};
use linerate_networks::Net;

// The most addresses a network of sources may have.
const MOST_SOURCES: usize = 1 << 16;

/// All destinations: first those named on the command line, then those of the file.
pub(crate) fn targets(named: &[String], file: Option<&str>) -> Result<Vec<SocketAddr>> {
    let mut targets = named.iter().map(|target| resolve(target)).collect::<Result<Vec<_>>>()?;
    if let Some(file) = file {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read targets {file}"))?;
        targets.extend(listed(&text, file)?);
        ensure!(!targets.is_empty(), "{file} names no destination: one ADDR:PORT a line");
    }
    Ok(targets)
}

/// The destinations of a file's text.
fn listed(text: &str, file: &str) -> Result<Vec<SocketAddr>> {
    let entries = text.lines().enumerate().filter_map(|(index, line)| {
        let entry = line.split('#').next().unwrap_or_default().trim();
        (!entry.is_empty()).then_some((index + 1, entry))
    });
    entries.map(|(line, entry)| resolve(entry).with_context(|| format!("{file}:{line}"))).collect()
}

fn resolve(target: &str) -> Result<SocketAddr> {
    let mut addresses = target.to_socket_addrs().with_context(|| {
        format!("'{target}' is no destination such as 192.168.0.1:7777 or [fd00::1]:7777")
    })?;
    addresses.next().with_context(|| format!("'{target}' has no address"))
}

/// The source addresses of all networks, without those that no host can have.
pub(crate) fn sources(networks: &[Net]) -> Result<Vec<IpAddr>> {
    let mut all = Vec::new();
    for network in networks {
        let left = MOST_SOURCES - all.len().min(MOST_SOURCES);
        let hosts: Vec<IpAddr> = network.hosts().take(left + 1).collect();
        ensure!(
            hosts.len() <= left,
            "--sources {network}: more than {MOST_SOURCES} addresses, give a longer prefix"
        );
        all.extend(hosts);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_needs_a_port() {
        let error = resolve("127.0.0.1").expect_err("no port");
        assert!(error.to_string().starts_with("'127.0.0.1' is no destination such as"));
    }

    #[test]
    fn a_file_lists_destinations_and_comments() {
        let text = "# all of them\n10.0.0.1:53\n\n  [fd00::1]:53  # the other\n";
        let targets = listed(text, "x").expect("a list");
        assert_eq!(targets, ["10.0.0.1:53".parse().expect("v4"), "[fd00::1]:53".parse().expect("v6")]);
        let error = listed("10.0.0.1:53\n\nhere\n", "list.txt").expect_err("refused");
        assert_eq!(error.to_string(), "list.txt:3");
    }

    #[test]
    fn networks_of_sources_are_listed_up_to_a_bound() {
        let net = |text: &str| text.parse::<Net>().expect("a network");
        assert_eq!(sources(&[net("10.0.0.0/29"), net("fd00::7")]).expect("few").len(), 7);
        assert!(sources(&[net("10.0.0.0/8")]).is_err());
        assert!(sources(&[net("10.0.0.0/16"), net("10.1.0.0/24")]).is_err());
    }
}
