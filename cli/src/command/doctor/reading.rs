//! Reading a host, once or twice.

use std::time::Duration;

use anyhow::{Result, ensure};
use linerate_host::diagnosis::UnknownItem;
use linerate_host::stage::link::with_devices_below;
use linerate_host::stage::socket::HostSockets;
use linerate_host::{Host, HostRecording, HostView, OpenedCapture, PacketPath, Scope, host_name};

use super::arguments::HostScopeArgs;
use super::interval_wait::wait;
use crate::interrupt::InterruptFlag;
use crate::origin;

/// A host to read, and the part of it to read.
pub(crate) struct ObservedHost {
    first: Host,
    // The second reading of a capture; `None` if the capture has only one.
    later: Option<Host>,
    /// Whether all reads are recorded.
    keep: bool,
    pub(crate) scope: Scope,
    interval: Option<Duration>,
    live: bool,
    unix_seconds: Option<u64>,
    /// `None` if it is unknown, as in an anonymous capture.
    pub(crate) host_name: Option<String>,
    pub(crate) is_anonymous: bool,
}

pub(crate) struct HostReadings {
    before: Option<PacketPath>,
    now: PacketPath,
    // Seconds since 1970 at the last reading; `None` if a capture does not have it.
    pub(crate) unix_seconds: Option<u64>,
    /// Whether it is the host that the program runs on.
    pub(crate) live: bool,
    /// The host at each reading in order, as a recording if reads are recorded.
    pub(crate) hosts: Vec<Host>,
    pub(crate) scope: Scope,
    process_is_gone: bool,
}

impl ObservedHost {
    /// Opens the host, and checks that the named interfaces and process exist. With `is_recording`, all reads are recorded.
    pub(crate) fn open(input: &HostScopeArgs, is_recording: bool) -> Result<Self> {
        let (first, later, capture_info) = match &input.root {
            Some(root) => {
                let OpenedCapture { first, later, about: capture_info } = OpenedCapture::open(root)?;
                ensure!(
                    input.scope_args.interval.is_none() || later.is_some(),
                    "--interval needs two readings: {} holds one reading (doctor capture --interval makes two)",
                    root.display()
                );
                (first, later, capture_info)
            }
            None => (Host::live(), None, None),
        };
        let with_recording = |host: Host| if is_recording { host.recording() } else { host };
        let is_live = input.root.is_none();
        let info = capture_info.as_ref();
        let captured_scope = info.map(|info| info.scope.clone());
        let captured_name = info.and_then(|info| info.host_name.clone());
        let mut observed_host = Self {
            first: with_recording(first),
            later: later.map(with_recording),
            keep: is_recording,
            scope: input.scope_args.scope().or(captured_scope).unwrap_or_default(),
            interval: input.scope_args.interval,
            live: is_live,
            unix_seconds: info.and_then(|info| info.unix_seconds),
            host_name: if is_live { host_name() } else { captured_name },
            is_anonymous: info.is_some_and(|info| info.anonymous),
        };
        observed_host.scope.check(&observed_host.first)?;
        let scope = &mut observed_host.scope;
        scope.interfaces = with_devices_below(&observed_host.first, &scope.interfaces);
        Ok(observed_host)
    }

    /// Reads once, or twice with `--interval` and no interrupt.
    pub(crate) fn read(self, interrupt: &InterruptFlag) -> Result<HostReadings> {
        let mut unix_seconds = if self.live { origin::unix_seconds() } else { self.unix_seconds };
        if self.live && self.interval.is_some() {
            // This loads the BPF iterators of groups, so that the first reading takes as long as
            // the second: rates refer to the time between their beginnings.
            let _ = HostSockets::observe(&Host::live(), &self.scope);
        }
        let first = PacketPath::observe(&self.first, &self.scope);
        self.scope.check_sockets(&first.socket)?;
        let Self { first: host, later, keep, scope, interval, live, .. } = self;
        let mut hosts = vec![host];
        let second_host = match (interval, live) {
            (Some(time), true) if wait(time, interrupt)? => {
                Some(if keep { Host::live().recording() } else { Host::live() })
            }
            (_, true) => None,
            (_, false) => later,
        };
        let Some(second_host) = second_host else {
            let process_is_gone = false;
            return Ok(HostReadings {
                before: None,
                now: first,
                unix_seconds,
                live,
                hosts,
                scope,
                process_is_gone,
            });
        };
        if live {
            unix_seconds = origin::unix_seconds();
        }
        // So that the capture contains the list of interfaces.
        let _ = second_host.list("/sys/class/net");
        let process_is_gone = scope.process_is_gone(&second_host);
        let now = PacketPath::observe(&second_host, &scope);
        hosts.push(second_host);
        Ok(HostReadings { before: Some(first), now, unix_seconds, live, hosts, scope, process_is_gone })
    }
}

impl HostReadings {
    pub(crate) fn view(&self) -> HostView<'_> {
        HostView { now: &self.now, before: self.before.as_ref() }
    }

    /// The recorded reads, in order.
    pub(crate) fn into_recordings(self) -> Vec<HostRecording> {
        self.hosts.into_iter().map(Host::into_recording).collect()
    }

    /// Interfaces and processes of the first reading that are missing in the second.
    pub(crate) fn vanished_items(&self) -> Vec<UnknownItem> {
        const WHY: &str = "it was there at the first reading, and gone at the second";
        let before = self.before.iter().flat_map(|before| &before.link);
        let vanished_links = before.filter(|link| self.now.link_of(&link.interface).is_none());
        let interfaces = vanished_links.map(|link| format!("link[{}]", link.interface));
        let process = self.scope.pid.filter(|_| self.process_is_gone).map(|pid| format!("process {pid}"));
        interfaces.chain(process).map(|item| UnknownItem { what: item, why: WHY.to_owned() }).collect()
    }
}
