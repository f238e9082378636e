//! What of a lab works on this machine.

use std::os::fd::AsFd;

use serde::Serialize;

use crate::namespace::{Namespace, Sysfs};
use crate::resident::Resident;
use crate::rtnetlink::{self, Connection, NewEnd};

/// Whether something works here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ability {
    /// It does.
    Works,
    /// It does not.
    Missing {
        /// Why.
        why: String,
    },
}

/// What of a lab works here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Network namespaces. Without them there is no lab.
    pub namespaces: Ability,
    /// Pairs of virtual interfaces. Without them there is no lab.
    pub veth: Ability,
    /// More than one queue on these.
    pub multi_queue: Ability,
    /// A sysfs for a namespace, through which queues are seen and steered.
    pub sysfs: Ability,
    /// IPv6.
    pub ipv6: Ability,
}

/// Tries everything in a namespace that is gone when this returns.
pub fn probe() -> Probe {
    match Resident::start("probe", Namespace::enter_new) {
        Ok((resident, namespace)) => match resident.run(|| inside(&namespace)) {
            Ok(found) => found,
            Err(error) => nothing(&error.to_string()),
        },
        Err(error) => nothing(&error.to_string()),
    }
}

fn nothing(why: &str) -> Probe {
    let missing = || Ability::Missing { why: why.to_owned() };
    Probe {
        namespaces: missing(),
        veth: missing(),
        multi_queue: missing(),
        sysfs: missing(),
        ipv6: missing(),
    }
}

fn inside(namespace: &Namespace) -> Probe {
    let veth = make_pair(namespace);
    Probe {
        multi_queue: match &veth {
            Ability::Works => queues(namespace),
            missing @ Ability::Missing { .. } => missing.clone(),
        },
        veth,
        sysfs: match &namespace.sysfs {
            Sysfs::Missing { why } => Ability::Missing { why: why.clone() },
            Sysfs::Detached { .. } | Sysfs::Private { .. } => Ability::Works,
        },
        ipv6: match crate::wire::why_no_ipv6() {
            Some(why) => Ability::Missing { why },
            None => Ability::Works,
        },
        namespaces: Ability::Works,
    }
}

/// Names of the ends of the pair that is tried.
const ENDS: [&str; 2] = ["probe0", "probe1"];
const QUEUES: u32 = 2;

fn make_pair(namespace: &Namespace) -> Ability {
    let end = |at: u8| NewEnd {
        name: ENDS[usize::from(at)],
        index: 10 + u32::from(at),
        mac: [2, 0, 0, 0, 0, at],
        queues: QUEUES,
        mtu: 1500,
    };
    let pair = rtnetlink::veth_pair(end(0), end(1), namespace.file.as_fd());
    let made = Connection::open().map_err(|e| e.to_string()).and_then(|mut route| {
        route.create(pair).map_err(|refused| match refused.detail {
            Some(detail) => format!("{} ({detail})", refused.source),
            None => refused.source.to_string(),
        })
    });
    match made {
        Ok(()) => Ability::Works,
        Err(why) => Ability::Missing { why: format!("cannot make a veth pair: {why}") },
    }
}

fn queues(namespace: &Namespace) -> Ability {
    let why = match &namespace.sysfs {
        Sysfs::Missing { .. } => "cannot be seen without a sysfs".to_owned(),
        Sysfs::Detached { path, .. } | Sysfs::Private { path } => {
            let path = path.join("class/net").join(ENDS[0]).join("queues/rx-1");
            if path.exists() {
                return Ability::Works;
            }
            format!("asked for {QUEUES} queues, and the second is not there")
        }
    };
    Ability::Missing { why }
}
