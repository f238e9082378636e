//! Traffic of an interface.

use crate::stage::{HostView, PacketPath};

/// Packets per second below which an interface is quiet: between two readings, and on average since
/// boot, which includes nights.
const QUIET_NOW: f64 = 1_000.0;
const QUIET_SINCE_BOOT: f64 = 100.0;

/// Whether an interface received almost nothing between two readings.
pub(in crate::stage) fn is_quiet_now(view: &HostView<'_>, interface: &str) -> bool {
    view.before.is_some() && is_quiet(view, interface)
}

/// Whether an interface is known to receive almost nothing.
pub(in crate::stage) fn is_quiet(view: &HostView<'_>, interface: &str) -> bool {
    let received_packets =
        |path: &PacketPath| path.link_of(interface)?.totals.value()?.get("rx_packets").copied();
    if view.before.is_some() {
        return view.rate(received_packets).is_some_and(|rate| rate < QUIET_NOW);
    }
    let (Some(packets), Some(uptime)) = (received_packets(view.now), view.now.uptime_seconds.value()) else {
        return false;
    };
    let packets = packets as f64;
    packets < QUIET_SINCE_BOOT * uptime
}
