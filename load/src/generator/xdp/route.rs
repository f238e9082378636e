//! The routes of flows, and whether frames can be sent that way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};

use linerate_host::Host;
use linerate_host::netlink::{self, RoutePath, XdpAttachKind, XdpState};

use super::frame::FlowRoute;
use super::ports;
use crate::error::{GeneratorError, invalid};
use crate::generator::options::GeneratorOptions;
use crate::sys::xdp::{FILL_BYTES, REQUEST_BYTES};
use crate::workload::LoadWorkload;

// The first kernel that sends frames made by a program: Linux 5.18.
const LEAST_KERNEL: (u32, u32) = (5, 18);

// The first kernel that reports the XDP features of a driver: Linux 6.3.
const TELLING_KERNEL: (u32, u32) = (6, 3);

/// The routes of all flows, which leave by one interface.
#[derive(Debug)]
pub(super) struct FlowRoutes {
    pub(super) ways: Vec<FlowRoute>,
    pub(super) interface: String,
    pub(super) index: u32,
    /// Whether live frames and clones that are refused are lost in the far end's full queue.
    pub(super) hands_over: [bool; 2],
    // Why no live frames leave by the interface; `None` if they do.
    pub(super) no_frames: Option<String>,
    /// Whether only an attempt shows if live frames leave by the interface (before Linux 6.3).
    pub(super) frames_untried: bool,
}

impl FlowRoutes {
    /// Finds the routes in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`GeneratorError::Xdp`] with the obstacle.
    pub(super) fn find(options: &GeneratorOptions) -> Result<Self, GeneratorError> {
        check_kernel(&kernel_release(), LEAST_KERNEL).map_err(GeneratorError::xdp)?;
        check_user()?;
        let v4 = options.targets.first().is_none_or(SocketAddr::is_ipv4);
        if options.targets.iter().any(|target| target.is_ipv4() != v4) {
            return Err(GeneratorError::xdp(
                "targets of both IPv4 and IPv6: a program makes frames of one, give one kind",
            ));
        }
        if let Some(target) = options.targets.iter().find(|target| is_link_local(target.ip())) {
            return Err(GeneratorError::xdp(format!(
                "{target} is a link-local address, which a route does not tie to one interface: use sockets"
            )));
        }
        let host = Host::live();
        let find_path = |target: IpAddr, source: Option<IpAddr>| {
            netlink::path_to(&host, target, source).map_err(|error| GeneratorError::xdp(error.to_string()))
        };
        let mut sources: Vec<Option<IpAddr>> = options.sources.iter().copied().map(Some).collect();
        sources.retain(|source| source.is_some_and(|ip| ip.is_ipv4() == v4));
        if sources.is_empty() {
            // The kernel's choice for each target.
            sources.push(None);
        }
        let ports = ports::choose_ports(options, sources.len())?;
        let mut ways = Vec::with_capacity(options.flows);
        let mut common_path: Option<RoutePath> = None;
        // Flows with equal addresses share a route.
        let mut paths: HashMap<(IpAddr, Option<IpAddr>), RoutePath> = HashMap::new();
        for id in 0..options.flows {
            let target = options.targets[id % options.targets.len()];
            let row = id / sources.len();
            let source = sources[(id + row) % sources.len()];
            let path = match paths.entry((target.ip(), source)) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let source = match source {
                        Some(source) => source,
                        None => find_path(target.ip(), None)?.source,
                    };
                    // Rules may have another route for this source, as for connect().
                    entry.insert(find_path(target.ip(), Some(source))?)
                }
            };
            let first_path = common_path.get_or_insert_with(|| path.clone());
            first_path.mtu = first_path.mtu.min(path.mtu);
            if (first_path.index, first_path.vlan) != (path.index, path.vlan) {
                return Err(GeneratorError::xdp(format!(
                    "targets by several ways ({} and {}): frames leave by one interface and VLAN, give targets of one",
                    path_label(first_path),
                    path_label(path)
                )));
            }
            ways.push(FlowRoute {
                from: SocketAddr::new(path.source, ports[row]),
                to: target,
                from_mac: path.source_mac,
                to_mac: path.next_hop_mac,
                vlan: path.vlan,
            });
        }
        let Some(common_path) = common_path else { return invalid("no flows") };
        check_length(options, &common_path, v4)?;
        let state = netlink::xdp_state(&host, &common_path.interface, common_path.index)
            .map_err(|error| GeneratorError::xdp(error.to_string()))?;
        check_interface(&common_path.interface, &state)?;
        let is_veth = state.driver.value().is_some_and(|driver| driver == "veth");
        // Clones pass the qdisc, which drops them on this host.
        let has_queue = netlink::has_root_queue(&host, &common_path.interface, common_path.index);
        let hands_over = [is_veth, is_veth && has_queue.value() != Some(&true)];
        let no_frames = why_no_frames(&common_path.interface, &state);
        Ok(FlowRoutes {
            ways,
            interface: common_path.interface,
            index: common_path.index,
            hands_over,
            no_frames,
            frames_untried: state.features.value().is_none(),
        })
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

fn path_label(path: &RoutePath) -> String {
    match path.vlan {
        Some(vlan) => format!("{} VLAN {vlan}", path.interface),
        None => path.interface.clone(),
    }
}

fn check_length(options: &GeneratorOptions, path: &RoutePath, v4: bool) -> Result<(), GeneratorError> {
    let payload = options.workload.longest_bytes();
    let max_payload = path.mtu as usize - if v4 { 28 } else { 48 }.min(path.mtu as usize);
    if payload > max_payload {
        return Err(GeneratorError::xdp(format!(
            "payload of {payload} bytes does not fit the MTU of {} bytes of {} unfragmented: at most {max_payload} bytes",
            path.mtu,
            path_label(path)
        )));
    }
    let (max_payload, limit_reason) = match options.workload {
        LoadWorkload::Echo { .. } => (FILL_BYTES, "an echo request must fit a page with its frame"),
        LoadWorkload::Exchange(_) => (REQUEST_BYTES, "a program has room for no longer prepared request"),
    };
    if payload > max_payload {
        return Err(GeneratorError::xdp(format!(
            "payload of {payload} bytes is over {max_payload} bytes: {limit_reason}"
        )));
    }
    Ok(())
}

fn check_interface(interface: &str, state: &XdpState) -> Result<(), GeneratorError> {
    if let Some(attached) = &state.attached {
        let program_id = attached.id.map_or_else(String::new, |id| format!(" (id {id})"));
        let attach_place = match attached.mode {
            XdpAttachKind::Native => "in the driver",
            XdpAttachKind::Generic => "in generic mode",
            XdpAttachKind::Offloaded => "on the NIC",
            XdpAttachKind::Several => "in several places",
        };
        return Err(GeneratorError::xdp(format!(
            "{interface} runs an XDP program already, {attach_place}{program_id}: it is left alone, detach it or use sockets"
        )));
    }
    let Some(features) = state.features.value() else {
        // Before Linux 6.3 only an attempt shows it.
        return match check_kernel(&kernel_release(), TELLING_KERNEL) {
            Ok(()) => Err(GeneratorError::xdp(format!(
                "the XDP features of {interface} are unknown: {}",
                state.features.why().unwrap_or("no reason given")
            ))),
            Err(_) => Ok(()),
        };
    };
    let driver = state.driver.value().map_or("its driver", String::as_str);
    if !features.basic {
        return Err(GeneratorError::xdp(format!(
            "{interface} ({driver}) runs no XDP programs in the driver"
        )));
    }
    Ok(())
}

// Why the interface sends no live frames, so that all requests leave as clones. `None` if it sends
// them, or if only an attempt shows it.
fn why_no_frames(interface: &str, state: &XdpState) -> Option<String> {
    if state.features.value().is_none_or(|features| features.transmit) {
        return None;
    }
    let driver = state.driver.value().map_or("its driver", String::as_str);
    Some(match driver {
        "veth" => format!(
            "the other end of {interface} accepts no frames: switch GRO on there (ethtool -K INTERFACE gro on), or attach an XDP program to it"
        ),
        _ => format!("{interface} ({driver}) does not send redirected frames (ndo_xdp_xmit)"),
    })
}

// Programs require capabilities for the whole machine, which no user namespace has.
fn check_user() -> Result<(), GeneratorError> {
    // Without user namespaces the file does not exist either.
    let uid_map =
        std::fs::read_to_string("/proc/self/uid_map").unwrap_or_else(|_| "0 0 4294967295".to_owned());
    let words: Vec<&str> = uid_map.split_whitespace().collect();
    if words != ["0", "0", "4294967295"] {
        return Err(GeneratorError::xdp(
            "this is a user namespace, where no BPF program may be loaded: run as root",
        ));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(GeneratorError::xdp(
            "this requires root (CAP_BPF, CAP_NET_ADMIN, and CAP_SYS_ADMIN for a network namespace)",
        ));
    }
    Ok(())
}

fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

// Whether a kernel release is at least this version. An unreadable release counts as new enough,
// because the attempt then shows the truth.
fn check_kernel(release: &str, min_version: (u32, u32)) -> Result<(), String> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) if (major, minor) < min_version => Err(format!(
            "Linux {release} is too old: this requires {}.{} or later",
            min_version.0, min_version.1
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_host::Known;
    use linerate_host::netlink::{AttachedXdp, XdpFeatures};

    #[test]
    fn kernels_before_5_18_are_refused_with_their_release() {
        assert_eq!(check_kernel("6.18.44-fc-v509", LEAST_KERNEL), Ok(()));
        assert_eq!(check_kernel("5.18.0", LEAST_KERNEL), Ok(()));
        assert!(check_kernel("5.15.0-91-generic", LEAST_KERNEL).unwrap_err().contains("5.15.0-91-generic"));
        assert_eq!(check_kernel("unheard of", LEAST_KERNEL), Ok(()));
    }

    #[test]
    fn errors_name_the_missing_xdp_feature_or_attached_program() {
        let all_features = XdpFeatures { basic: true, redirect: true, transmit: true };
        let state = |attached, features, driver: &str| XdpState {
            attached,
            features: Known::Value(features),
            driver: Known::Value(driver.to_owned()),
        };
        let refusal = |state| check_interface("eth7", &state).map_err(|error| error.to_string());
        assert_eq!(refusal(state(None, all_features, "veth")), Ok(()));
        let no_transmit = XdpFeatures { transmit: false, ..all_features };
        assert_eq!(refusal(state(None, no_transmit, "veth")), Ok(()));
        let no_frames = |features, driver| why_no_frames("eth7", &state(None, features, driver));
        assert!(no_frames(no_transmit, "veth").is_some_and(|why| why.contains("switch GRO on")));
        assert!(no_frames(no_transmit, "e1000e").is_some_and(|why| why.contains("ndo_xdp_xmit")));
        assert_eq!(no_frames(all_features, "e1000e"), None);
        let none = XdpFeatures { basic: false, redirect: false, transmit: false };
        assert!(refusal(state(None, none, "lo")).unwrap_err().contains("no XDP programs in the driver"));
        let other_program = AttachedXdp { id: Some(42), mode: XdpAttachKind::Generic };
        assert!(
            refusal(state(Some(other_program), all_features, "veth"))
                .unwrap_err()
                .contains("(id 42): it is left alone")
        );
    }
}
