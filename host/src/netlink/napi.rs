//! NAPI instances with their interrupts, queues and polling: `napi-get`, `queue-get` (Linux 6.8) and
//! `napi-set` (6.13) of the netdev family (Documentation/netlink/specs/netdev.yaml).

use std::collections::BTreeMap;
use std::io;

use super::attribute::{RequestAttributes, attribute, number, u32_of};
use super::generic::GenericFamily;
use crate::stage::softirq::{NapiInstance, NapiPolling};

// `NETDEV_CMD_QUEUE_GET`, `_NAPI_GET` and `_NAPI_SET` of linux/netdev.h.
const GET_QUEUE: u8 = 10;
const GET_NAPI: u8 = 11;
const SET_NAPI: u8 = 14;

// `NETDEV_A_QUEUE_ID`, `_IFINDEX`, `_TYPE` (0 for receive queues) and `_NAPI_ID`.
const QUEUE_ID: u16 = 1;
const QUEUE_INTERFACE: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI: u16 = 4;
const RECEIVE: u32 = 0;

// `NETDEV_A_NAPI_IFINDEX`, `_ID`, `_IRQ`, `_PID`, `_DEFER_HARD_IRQS`, `_GRO_FLUSH_TIMEOUT`,
// `_IRQ_SUSPEND_TIMEOUT` and `_THREADED`.
const NAPI_INTERFACE: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_IRQ: u16 = 3;
const NAPI_PID: u16 = 4;
const NAPI_DEFER: u16 = 5;
const NAPI_GRO_FLUSH: u16 = 6;
const NAPI_SUSPEND: u16 = 7;
const NAPI_THREADED: u16 = 8;

/// All NAPI instances of interfaces that are up, in the calling thread's network namespace.
/// `EOPNOTSUPP` from kernels without the command.
pub(crate) fn instances() -> io::Result<Vec<NapiInstance>> {
    let mut family = GenericFamily::open("netdev").map_err(|error| match error.raw_os_error() {
        // A kernel without the family is reported like one without the command.
        Some(libc::ENOENT) => io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        _ => error,
    })?;
    let napi = family.dump(GET_NAPI, &RequestAttributes::default())?;
    let queues = family.dump(GET_QUEUE, &RequestAttributes::default())?;
    Ok(decode(&napi, &queues))
}

/// Sets how an instance polls. `None` leaves a value unchanged.
pub(crate) fn set_polling(id: u32, polling: &NapiPolling) -> io::Result<()> {
    let mut request = RequestAttributes::default().u32(NAPI_ID, id);
    for (kind, value) in [(NAPI_DEFER, polling.defer_hard_irqs), (NAPI_THREADED, polling.threaded)] {
        request = value.map_or(request.clone(), |value| request.u32(kind, value));
    }
    for (kind, value) in
        [(NAPI_GRO_FLUSH, polling.gro_flush_timeout_ns), (NAPI_SUSPEND, polling.irq_suspend_timeout_ns)]
    {
        request = value.map_or(request.clone(), |value| request.bytes(kind, &value.to_ne_bytes()));
    }
    GenericFamily::open("netdev")?.send(SET_NAPI, &request)
}

/// In the order of interfaces and ids. Items without an id are left out.
pub(crate) fn decode(napi: &[Vec<u8>], queues: &[Vec<u8>]) -> Vec<NapiInstance> {
    let mut instances: BTreeMap<(u32, u32), NapiInstance> = BTreeMap::new();
    for item in napi {
        let (Some(interface_index), Some(id)) = (u32_of(item, NAPI_INTERFACE), u32_of(item, NAPI_ID)) else {
            continue;
        };
        let (irq, pid) = (u32_of(item, NAPI_IRQ), u32_of(item, NAPI_PID));
        let (receive_queues, transmit_queues) = (Vec::new(), Vec::new());
        let long_value = |kind| attribute(item, kind).and_then(number);
        let polling = NapiPolling {
            defer_hard_irqs: u32_of(item, NAPI_DEFER),
            gro_flush_timeout_ns: long_value(NAPI_GRO_FLUSH),
            irq_suspend_timeout_ns: long_value(NAPI_SUSPEND),
            threaded: u32_of(item, NAPI_THREADED),
        };
        let instance =
            NapiInstance { interface_index, id, irq, pid, receive_queues, transmit_queues, polling };
        instances.insert((interface_index, id), instance);
    }
    for item in queues {
        let (Some(interface), Some(napi)) = (u32_of(item, QUEUE_INTERFACE), u32_of(item, QUEUE_NAPI)) else {
            continue;
        };
        let (Some(queue), Some(instance)) = (u32_of(item, QUEUE_ID), instances.get_mut(&(interface, napi)))
        else {
            continue;
        };
        match u32_of(item, QUEUE_TYPE) {
            Some(RECEIVE) => instance.receive_queues.push(queue),
            Some(_) => instance.transmit_queues.push(queue),
            None => {}
        }
    }
    instances.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute::words;

    #[test]
    fn queues_are_assigned_to_their_napi_instance() {
        let napi = [
            words(&[
                (NAPI_INTERFACE, 2),
                (NAPI_ID, 8194),
                (NAPI_IRQ, 51),
                (NAPI_PID, 900),
                (NAPI_DEFER, 2),
                (NAPI_SUSPEND, 20_000),
                (NAPI_THREADED, 2),
            ]),
            words(&[(NAPI_INTERFACE, 2), (NAPI_ID, 8193)]),
            words(&[(NAPI_INTERFACE, 2)]),
        ];
        let queues = [
            words(&[(QUEUE_ID, 1), (QUEUE_INTERFACE, 2), (QUEUE_TYPE, 0), (QUEUE_NAPI, 8194)]),
            words(&[(QUEUE_ID, 1), (QUEUE_INTERFACE, 2), (QUEUE_TYPE, 1), (QUEUE_NAPI, 8194)]),
            words(&[(QUEUE_ID, 0), (QUEUE_INTERFACE, 3), (QUEUE_TYPE, 0), (QUEUE_NAPI, 8193)]),
            words(&[(QUEUE_ID, 0), (QUEUE_INTERFACE, 2), (QUEUE_TYPE, 0)]),
        ];
        let found = decode(&napi, &queues);
        assert_eq!(found.iter().map(|napi| napi.id).collect::<Vec<_>>(), [8193, 8194]);
        assert_eq!((found[0].irq, found[0].pid, found[0].receive_queues.len()), (None, None, 0));
        assert_eq!((found[1].irq, found[1].pid), (Some(51), Some(900)));
        let polling = NapiPolling {
            defer_hard_irqs: Some(2),
            irq_suspend_timeout_ns: Some(20_000),
            threaded: Some(2),
            ..NapiPolling::default()
        };
        assert_eq!((found[1].polling, found[0].polling), (polling, NapiPolling::default()));
        assert_eq!((&found[1].receive_queues[..], &found[1].transmit_queues[..]), (&[1][..], &[1][..]));
    }
}
