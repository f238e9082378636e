//! Source ports of flows that have no socket.

use linerate_host::stage::socket::{bound_udp_ports, port_range};

use crate::error::GeneratorError;
use crate::generator::options::GeneratorOptions;

// Lower ports are more likely to belong to services.
const LEAST_PORT: u16 = 10_000;

// Ports for all flows from `sources` source addresses: flow `id` has port number `id / sources`.
// The user's ports, or free ports outside the kernel's ephemeral range.
pub(super) fn choose_ports(options: &GeneratorOptions, sources: usize) -> Result<Vec<u16>, GeneratorError> {
    let port_count = options.flows.div_ceil(sources.max(1));
    if let Some(requested_ports) = &options.source_ports {
        let ports: Vec<u16> = requested_ports.clone().take(port_count).collect();
        return match ports.len() {
            available if available < port_count => {
                Err(GeneratorError::too_few_ports(options.flows, available, sources))
            }
            _ => Ok(ports),
        };
    }
    let used_ports = bound_udp_ports();
    let ephemeral = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| port_range(&text))
        // The kernel's default (net/ipv4/af_inet.c, inet_init_net).
        .unwrap_or((32_768, 60_999));
    let free = (LEAST_PORT..=u16::MAX)
        .rev()
        .filter(|port| !(ephemeral.0..=ephemeral.1).contains(port) && !used_ports.contains(port));
    let ports: Vec<u16> = free.take(port_count).collect();
    if ports.len() < port_count {
        return Err(GeneratorError::xdp(format!(
            "{} flows need {port_count} source ports, and {} are free outside net.ipv4.ip_local_port_range: give ports or more source addresses",
            options.flows,
            ports.len()
        )));
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn given_source_ports_are_used_in_order_and_refused_if_too_few() {
        let source_ports = Some(7000..=7002);
        let options = GeneratorOptions { flows: 5, source_ports, ..GeneratorOptions::default() };
        assert_eq!(choose_ports(&options, 2).unwrap(), [7000, 7001, 7002]);
        let error = choose_ports(&options, 1).unwrap_err().to_string();
        assert!(error.starts_with("5 flows, but 3 source ports on 1 source"), "{error}");
    }

    #[test]
    fn chosen_ports_are_distinct_and_unused_on_the_host() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let options = GeneratorOptions { flows: 100, ..GeneratorOptions::default() };
        let ports = choose_ports(&options, 1).unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 100);
        assert!(bound_udp_ports().contains(&socket.local_addr().unwrap().port()));
        assert!(ports.iter().all(|port| !bound_udp_ports().contains(port)));
    }
}
