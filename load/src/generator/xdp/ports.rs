//! Source ports of flows that have no socket.

use std::collections::BTreeSet;

use crate::error::GeneratorError;
use crate::generator::builder::GeneratorBuilder;

// Lower ports are more likely to belong to services.
const LEAST_PORT: u16 = 10_000;

// Ports for all flows from `sources` source addresses: flow `id` has port number `id / sources`.
// The user's ports, or free ports outside the kernel's ephemeral range.
pub(super) fn choose_ports(builder: &GeneratorBuilder, sources: usize) -> Result<Vec<u16>, GeneratorError> {
    let port_count = builder.flows.div_ceil(sources.max(1));
    if let Some(requested_ports) = &builder.source_ports {
        let ports: Vec<u16> = requested_ports.clone().take(port_count).collect();
        return match ports.len() {
            available if available < port_count => {
                Err(GeneratorError::too_few_ports(builder.flows, available, sources))
            }
            _ => Ok(ports),
        };
    }
    let used_ports = bound_udp_ports();
    let ephemeral = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| parse_port_range(&text))
        // The kernel's default (net/ipv4/af_inet.c, inet_init_net).
        .unwrap_or((32_768, 60_999));
    let free = (LEAST_PORT..=u16::MAX)
        .rev()
        .filter(|port| !(ephemeral.0..=ephemeral.1).contains(port) && !used_ports.contains(port));
    let ports: Vec<u16> = free.take(port_count).collect();
    if ports.len() < port_count {
        return Err(GeneratorError::xdp(format!(
            "{} flows need {port_count} source ports, and {} are free outside net.ipv4.ip_local_port_range: give ports or more source addresses",
            builder.flows,
            ports.len()
        )));
    }
    Ok(ports)
}

/// The local ports of all UDP sockets of the calling thread's network namespace.
pub fn bound_udp_ports() -> BTreeSet<u16> {
    ["udp", "udp6"]
        .iter()
        .filter_map(|name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok())
        .flat_map(|text| text.lines().skip(1).filter_map(local_port).collect::<Vec<_>>())
        .collect()
}

/// `  42: 0100007F:1F90 00000000:0000 07 ...`: the port of the first address.
fn local_port(line: &str) -> Option<u16> {
    let local_address = line.split_whitespace().nth(1)?;
    u16::from_str_radix(local_address.rsplit(':').next()?, 16).ok()
}

fn parse_port_range(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ports_and_the_ephemeral_port_range_parse() {
        let line = "  151: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0";
        assert_eq!(local_port(line), Some(8080));
        let line = " 9: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07";
        assert_eq!(local_port(line), Some(53));
        assert_eq!(local_port("nothing"), None);
        assert_eq!(parse_port_range("32768\t60999\n"), Some((32_768, 60_999)));
        assert_eq!(parse_port_range("x"), None);
    }

    #[test]
    fn given_source_ports_are_used_in_order_and_refused_if_too_few() {
        let builder = GeneratorBuilder::default().flows(5).source_ports(7000..=7002);
        assert_eq!(choose_ports(&builder, 2).unwrap(), [7000, 7001, 7002]);
        let error = choose_ports(&builder, 1).unwrap_err().to_string();
        assert!(error.starts_with("5 flows, but 3 source ports on 1 source"), "{error}");
    }

    #[test]
    fn chosen_ports_are_distinct_and_unused_on_the_host() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let builder = GeneratorBuilder::default().flows(100);
        let ports = choose_ports(&builder, 1).unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 100);
        assert!(bound_udp_ports().contains(&socket.local_addr().unwrap().port()));
        assert!(ports.iter().all(|port| !bound_udp_ports().contains(port)));
    }
}
