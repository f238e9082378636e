//! Counters per queue from the netdev family (`qstats-get`, Linux 6.9;
//! Documentation/netlink/specs/netdev.yaml).

use std::io;

use serde::{Deserialize, Serialize};

use super::attribute::{RequestAttributes, attribute, number, u32_of};
use super::generic::GenericFamily;
use crate::{Host, Known};

// `NETDEV_CMD_QSTATS_GET`, `NETDEV_A_QSTATS_...` and `NETDEV_QSTATS_SCOPE_QUEUE` of linux/netdev.h.
const GET: u8 = 12;
const INTERFACE: u16 = 1;
const QUEUE_TYPE: u16 = 2;
const QUEUE: u16 = 3;
const SCOPE: u16 = 4;
const SCOPE_QUEUE: u32 = 1;
const RECEIVED_PACKETS: u16 = 8;
const RECEIVED_BYTES: u16 = 9;
const SENT_PACKETS: u16 = 10;
const SENT_BYTES: u16 = 11;
const RECEIVE_DROPS: u16 = 13;
const RECEIVE_OVERRUNS: u16 = 14;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueStatistics {
    pub(crate) rx: Vec<QueueStatistic>,
    pub(crate) tx: Vec<QueueStatistic>,
}

/// `None` for values that the driver does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueStatistic {
    pub(crate) queue: u32,
    #[serde(default)]
    pub(crate) packets: Option<u64>,
    #[serde(default)]
    pub(crate) bytes: Option<u64>,
    /// Packets that the device lost for any reason (`rx-hw-drops`), or otherwise for lack of
    /// buffers (`rx-hw-drop-overruns`).
    #[serde(default)]
    pub(crate) drops: Option<u64>,
}

impl QueueStatistics {
    // `None` if the kernel or the driver does not report queue statistics.
    pub(crate) fn observe(host: &Host, interface: &str, index: &Known<u32>) -> Known<Option<Self>> {
        let operation = format!("reading the queue statistics of {interface}");
        let request = || request_statistics(*index.known()?);
        match host.call(&format!("netdev/{interface}/qstats"), &operation, request) {
            // Kernels before Linux 6.3 have no netdev family.
            Err(error) if error.errno() == Some(libc::ENOENT) => Known::Value(None),
            answer => Known::if_supported(answer),
        }
    }
}

fn request_statistics(interface: u32) -> io::Result<QueueStatistics> {
    let request = RequestAttributes::default().u32(INTERFACE, interface).u32(SCOPE, SCOPE_QUEUE);
    let answers = GenericFamily::open("netdev")?.dump(GET, &request)?;
    Ok(parse_answers(interface, answers.iter().map(Vec::as_slice)))
}

/// One item per queue.
fn parse_answers<'a>(interface: u32, answers: impl Iterator<Item = &'a [u8]>) -> QueueStatistics {
    let mut statistics = QueueStatistics::default();
    for answer in answers.filter(|answer| u32_of(answer, INTERFACE) == Some(interface)) {
        let Some(queue) = u32_of(answer, QUEUE) else { continue };
        let value = |kind| attribute(answer, kind).and_then(number);
        match u32_of(answer, QUEUE_TYPE) {
            Some(0) => statistics.rx.push(QueueStatistic {
                queue,
                packets: value(RECEIVED_PACKETS),
                bytes: value(RECEIVED_BYTES),
                drops: value(RECEIVE_DROPS).or_else(|| value(RECEIVE_OVERRUNS)),
            }),
            Some(1) => statistics.tx.push(QueueStatistic {
                queue,
                packets: value(SENT_PACKETS),
                bytes: value(SENT_BYTES),
                drops: None,
            }),
            _ => {}
        }
    }
    statistics.rx.sort_by_key(|item| item.queue);
    statistics.tx.sort_by_key(|item| item.queue);
    statistics
}

/// Fuzzer entry.
pub(crate) fn any_answer(bytes: &[u8]) {
    let _ = parse_answers(u32_of(bytes, INTERFACE).unwrap_or(0), std::iter::once(bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answer of Linux 6.18 for the queue pair of a virtio_net interface with index 4, without the
    /// family header.
    const RECEIVE: [u8; 48] = [
        8, 0, 1, 0, 4, 0, 0, 0, 8, 0, 2, 0, 0, 0, 0, 0, 8, 0, 3, 0, 0, 0, 0, 0, 8, 0, 8, 0, 0x78, 0x83, 0, 0,
        8, 0, 9, 0, 0x96, 0xef, 0x2b, 0x30, 8, 0, 13, 0, 5, 0, 0, 0,
    ];
    const SEND: [u8; 40] = [
        8, 0, 1, 0, 4, 0, 0, 0, 8, 0, 2, 0, 1, 0, 0, 0, 8, 0, 3, 0, 0, 0, 0, 0, 8, 0, 10, 0, 0xa6, 0x54, 0,
        0, 8, 0, 11, 0, 0x70, 0x09, 0x1e, 0,
    ];

    #[test]
    fn queue_statistics_of_the_interface_are_parsed() {
        let statistics = parse_answers(4, [&SEND[..], &RECEIVE[..]].into_iter());
        let item =
            QueueStatistic { queue: 0, packets: Some(33656), bytes: Some(0x302b_ef96), drops: Some(5) };
        assert_eq!(statistics.rx, [item]);
        assert_eq!((statistics.tx[0].packets, statistics.tx[0].drops), (Some(21670), None));
        assert_eq!(parse_answers(5, [&SEND[..], &RECEIVE[..]].into_iter()), QueueStatistics::default());
    }

    #[test]
    fn queue_counters_missing_from_the_message_are_none() {
        let statistics = parse_answers(4, std::iter::once(&RECEIVE[..24]));
        assert_eq!(statistics.rx, [QueueStatistic { queue: 0, ..QueueStatistic::default() }]);
    }
}
