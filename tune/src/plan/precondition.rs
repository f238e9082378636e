//! Findings that have to be fixed before a change, because alone the change would make things
//! worse.

use linerate_host::Diagnosis;
use linerate_host::finding::Finding;
use linerate_host::stage::HostView;

use super::{HeldBackChanges, PlannedChange};
use crate::TuneProfile;

/// The finding that has to be fixed before packets are spread over more CPUs: the only busy
/// services read one shared socket each. `None` without such a finding, or if the profile
/// plans anyway.
///
/// Every CPU that delivers a datagram takes the lock of that socket's receive queue, as does every
/// thread that reads (`__udp_enqueue_schedule_skb` and `__skb_recv_udp`, net/ipv4/udp.c, Linux
/// 6.18).
pub(super) fn unmet<'d>(
    view: &HostView<'_>,
    diagnosis: &'d Diagnosis,
    profile: &TuneProfile,
) -> Option<&'d Finding> {
    let is_shared_socket = |finding: &&Finding| finding.id == "socket.shared-by-threads";
    let is_unmet = !profile.anyway && view.busy_services_share_a_socket();
    diagnosis.findings.iter().find(is_shared_socket).filter(|_| is_unmet)
}

/// The changes of a plan that are held back because of a finding.
pub(super) fn held_back(finding: &Finding, changes: Vec<PlannedChange>) -> HeldBackChanges {
    HeldBackChanges {
        until_fixed: finding.id.to_owned(),
        why: format!(
            "{}. Each CPU that delivers packets waits for the one lock of that socket, and so does each thread that \
             reads it: with packets on more CPUs, fewer are answered.",
            finding.title
        ),
        fix_first: format!("{} Then plan again.", finding.remedy),
        effect: "On 20 CPUs with one socket for 20 threads this step took a server from 270,000 to 17,000 transactions/s. \
                 With a socket per thread the same step was part of the way to 2,540,000."
            .to_owned(),
        source: "T. Makita, Boost UDP Transaction Performance, LinuxCon Japan 2016".to_owned(),
        changes,
    }
}
