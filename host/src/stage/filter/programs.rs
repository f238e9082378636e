//! Programs on an interface: XDP, tc and tcx.

use super::InterfaceFilters;
use crate::netlink::{XdpAttachKind, tc, xdp_attached, xdp_features};
use crate::stage::link::LinkState;
use crate::{Host, Known};

pub(super) fn read_programs(host: &Host, link: &LinkState) -> InterfaceFilters {
    let interface = link.interface.clone();
    let index = match &link.index {
        Known::Value(index) => *index,
        Known::Unknown { why } => {
            return InterfaceFilters {
                interface,
                xdp: Known::unknown(why.clone()),
                driver_runs_xdp: Known::unknown(why.clone()),
                tc: Known::unknown(why.clone()),
            };
        }
    };
    let xdp = Known::from(xdp_attached(host, &interface, index));
    let driver_runs_xdp = match &xdp {
        Known::Value(Some(program)) if program.mode == XdpAttachKind::Generic => {
            xdp_features(host, &interface, index).map(|features| Some(features.basic))
        }
        Known::Value(_) => Known::Value(None),
        Known::Unknown { why } => Known::unknown(why.clone()),
    };
    let action = format!("counting the tc filters of {interface}");
    let tc = host.call(&format!("tc/{interface}"), &action, || tc::programs(index)).into();
    InterfaceFilters { interface, xdp, driver_runs_xdp, tc }
}
