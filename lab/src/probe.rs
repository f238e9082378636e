//! What of a lab works on this machine.

use std::os::fd::AsFd;

use serde::Serialize;

use crate::namespace::{NamespaceSysfs, NetworkNamespace};
use crate::resident::ResidentThread;
use crate::rtnetlink::{self, NewEnd, RtnetlinkConnection};

/// Whether something works here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabAbility {
    Works,
    Missing { why: String },
}

/// What of a lab works here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LabProbe {
    /// Network namespaces. Without them there is no lab.
    pub namespaces: LabAbility,
    /// Pairs of virtual interfaces. Without them there is no lab.
    pub veth: LabAbility,
    /// More than one queue on these.
    pub multi_queue: LabAbility,
    /// A sysfs for a namespace, through which queues are seen and steered.
    pub sysfs: LabAbility,
    /// IPv6.
    pub ipv6: LabAbility,
}

/// Tries everything in a namespace that is gone when this returns.
pub fn probe() -> LabProbe {
    match ResidentThread::start("probe", NetworkNamespace::enter_new) {
        Ok((resident, namespace)) => match resident.run(|| inside(&namespace)) {
            Ok(found) => found,
            Err(error) => nothing(&error.to_string()),
        },
        Err(error) => nothing(&error.to_string()),
    }
}

fn nothing(why: &str) -> LabProbe {
    let missing = || LabAbility::Missing { why: why.to_owned() };
    LabProbe {
        namespaces: missing(),
        veth: missing(),
        multi_queue: missing(),
        sysfs: missing(),
        ipv6: missing(),
    }
}

fn inside(namespace: &NetworkNamespace) -> LabProbe {
    let veth = make_pair(namespace);
    LabProbe {
        multi_queue: match &veth {
            LabAbility::Works => queues(namespace),
            missing @ LabAbility::Missing { .. } => missing.clone(),
        },
        veth,
        sysfs: match &namespace.sysfs {
            NamespaceSysfs::Missing { why } => LabAbility::Missing { why: why.clone() },
            NamespaceSysfs::Detached { .. } | NamespaceSysfs::Private { .. } => LabAbility::Works,
        },
        ipv6: match crate::wire::why_no_ipv6() {
            Some(why) => LabAbility::Missing { why },
            None => LabAbility::Works,
        },
        namespaces: LabAbility::Works,
    }
}

/// Names of the ends of the pair that is tried.
const ENDS: [&str; 2] = ["probe0", "probe1"];
const QUEUES: u32 = 2;

fn make_pair(namespace: &NetworkNamespace) -> LabAbility {
    let end = |at: u8| NewEnd {
        name: ENDS[usize::from(at)],
        index: 10 + u32::from(at),
        mac: [2, 0, 0, 0, 0, at],
        queues: QUEUES,
        mtu: 1500,
    };
    let pair = rtnetlink::veth_pair(end(0), end(1), namespace.file.as_fd());
    let made = RtnetlinkConnection::open().map_err(|e| e.to_string()).and_then(|mut route| {
        route.create(pair).map_err(|refused| match refused.detail {
            Some(detail) => format!("{} ({detail})", refused.source),
            None => refused.source.to_string(),
        })
    });
    match made {
        Ok(()) => LabAbility::Works,
        Err(why) => LabAbility::Missing { why: format!("cannot make a veth pair: {why}") },
    }
}

fn queues(namespace: &NetworkNamespace) -> LabAbility {
    let why = match &namespace.sysfs {
        NamespaceSysfs::Missing { .. } => "cannot be seen without a sysfs".to_owned(),
        NamespaceSysfs::Detached { path, .. } | NamespaceSysfs::Private { path } => {
            let path = path.join("class/net").join(ENDS[0]).join("queues/rx-1");
            if path.exists() {
                return LabAbility::Works;
            }
            format!("asked for {QUEUES} queues, and the second is not there")
        }
    };
    LabAbility::Missing { why }
}
