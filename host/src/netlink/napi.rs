//! NAPI instances with their interrupts and queues: `napi-get` and `queue-get` of the netdev family
//! (Linux 6.8, Documentation/netlink/specs/netdev.yaml).

use std::collections::BTreeMap;
use std::io;

use super::attribute::{RequestAttributes, u32_of};
use super::generic::GenericFamily;
use crate::stage::softirq::NapiInstance;

// `NETDEV_CMD_QUEUE_GET` and `NETDEV_CMD_NAPI_GET` of linux/netdev.h.
const GET_QUEUE: u8 = 10;
const GET_NAPI: u8 = 11;

// `NETDEV_A_QUEUE_ID`, `_IFINDEX`, `_TYPE` (0 for receive queues) and `_NAPI_ID`.
const QUEUE_ID: u16 = 1;
const QUEUE_INTERFACE: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI: u16 = 4;
const RECEIVE: u32 = 0;

/// `NETDEV_A_NAPI_IFINDEX`, `_ID`, `_IRQ` and `_PID`.
const NAPI_INTERFACE: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_IRQ: u16 = 3;
const NAPI_PID: u16 = 4;

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

/// In the order of interfaces and ids. Items without an id are left out.
pub(crate) fn decode(napi: &[Vec<u8>], queues: &[Vec<u8>]) -> Vec<NapiInstance> {
    let mut found: BTreeMap<(u32, u32), NapiInstance> = BTreeMap::new();
    for item in napi {
        let (Some(interface_index), Some(id)) = (u32_of(item, NAPI_INTERFACE), u32_of(item, NAPI_ID)) else {
            continue;
        };
        let (irq, pid) = (u32_of(item, NAPI_IRQ), u32_of(item, NAPI_PID));
        let (receive_queues, transmit_queues) = (Vec::new(), Vec::new());
        let instance = NapiInstance { interface_index, id, irq, pid, receive_queues, transmit_queues };
        found.insert((interface_index, id), instance);
    }
    for item in queues {
        let (Some(interface), Some(napi)) = (u32_of(item, QUEUE_INTERFACE), u32_of(item, QUEUE_NAPI)) else {
            continue;
        };
        let (Some(queue), Some(instance)) = (u32_of(item, QUEUE_ID), found.get_mut(&(interface, napi)))
        else {
            continue;
        };
        match u32_of(item, QUEUE_TYPE) {
            Some(RECEIVE) => instance.receive_queues.push(queue),
            Some(_) => instance.transmit_queues.push(queue),
            None => {}
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attribute::words;
    #[test]
    fn queues_are_found_with_the_instance_that_polls_them() {
        let napi = [
            words(&[(NAPI_INTERFACE, 2), (NAPI_ID, 8194), (NAPI_IRQ, 51), (NAPI_PID, 900)]),
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
        assert_eq!((&found[1].receive_queues[..], &found[1].transmit_queues[..]), (&[1][..], &[1][..]));
    }

    #[test]
    fn the_kernel_lists_them_or_says_that_it_does_not() {
        match instances() {
            Ok(found) => assert!(found.iter().all(|napi| napi.interface_index > 0)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}"),
        }
    }
}
