//! Destinations and source addresses of requests.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, ensure};
use linerate_networks::Net;

use crate::quantity;

// The most addresses a network of sources may have.
const MOST_SOURCES: usize = 1 << 16;

/// All destinations: first those named on the command line, then those of the file.
pub(crate) fn targets(names: &[String], file: Option<&str>) -> Result<Vec<SocketAddr>> {
    let mut targets = names.iter().map(|target| resolve(target)).collect::<Result<Vec<_>>>()?;
    if let Some(file) = file {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read targets {file}"))?;
        targets.extend(parse_targets(&text, file)?);
        ensure!(!targets.is_empty(), "{file} names no destination: one ADDR:PORT a line");
    }
    Ok(targets)
}

/// The destinations of a file's text.
fn parse_targets(text: &str, file: &str) -> Result<Vec<SocketAddr>> {
    let entries = text.lines().enumerate().filter_map(|(index, line)| {
        let entry = line.split('#').next().unwrap_or_default().trim();
        (!entry.is_empty()).then_some((index + 1, entry))
    });
    entries.map(|(line, entry)| resolve(entry).with_context(|| format!("{file}:{line}"))).collect()
}

fn resolve(target: &str) -> Result<SocketAddr> {
    let scoped_target = quantity::with_scope_number(target).map_err(anyhow::Error::msg)?;
    let mut addresses = scoped_target.to_socket_addrs().with_context(|| {
        format!("'{target}' is no destination such as 192.168.0.1:7777 or [fd00::1]:7777")
    })?;
    addresses.next().with_context(|| format!("'{target}' has no address"))
}

/// The source addresses of all networks, without those that no host can have.
pub(crate) fn sources(networks: &[Net]) -> Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for network in networks {
        let remaining = MOST_SOURCES - addresses.len().min(MOST_SOURCES);
        let hosts: Vec<IpAddr> = network.hosts().take(remaining + 1).collect();
        ensure!(
            hosts.len() <= remaining,
            "--sources {network}: more than {MOST_SOURCES} addresses, give a longer prefix"
        );
        addresses.extend(hosts);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_files_parse_with_comments_and_report_bad_lines() {
        let text = "# all of them\n10.0.0.1:53\n\n  [fd00::1]:53  # the other\n";
        let targets = parse_targets(text, "x").expect("a list");
        assert_eq!(targets, ["10.0.0.1:53".parse().expect("v4"), "[fd00::1]:53".parse().expect("v6")]);
        let error = parse_targets("10.0.0.1:53\n\nhere\n", "list.txt").expect_err("refused");
        assert_eq!(error.to_string(), "list.txt:3");
    }

    #[test]
    fn link_local_destinations_name_their_interface() {
        assert_eq!(resolve("[fe80::1%lo]:7").expect("lo"), "[fe80::1%1]:7".parse().expect("an address"));
        assert_eq!(resolve("[fe80::1%3]:7").expect("a number"), "[fe80::1%3]:7".parse().expect("an address"));
        let error = resolve("[fe80::1%nosuch0]:7").expect_err("refused");
        assert_eq!(error.to_string(), "'[fe80::1%nosuch0]:7': no interface nosuch0");
    }

    #[test]
    fn source_networks_expand_up_to_a_limit() {
        let net = |text: &str| text.parse::<Net>().expect("a network");
        assert_eq!(sources(&[net("10.0.0.0/29"), net("fd00::7")]).expect("few").len(), 7);
        assert!(sources(&[net("10.0.0.0/8")]).is_err());
        assert!(sources(&[net("10.0.0.0/16"), net("10.1.0.0/24")]).is_err());
    }
}
