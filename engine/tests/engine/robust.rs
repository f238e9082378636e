//! A server answers good requests whatever other datagrams it receives.

use crate::support::{BACKENDS, client};
use linerate_engine::{Action, Request, Server};
use proptest::prelude::*;

/// The longest datagram that UDP over IPv4 carries.
const LONGEST: usize = 65_507;

fn answer_good_requests(request: &Request<'_>, reply: &mut [u8]) -> Action {
    match request.payload().strip_prefix(b"good") {
        Some(rest) if rest.len() == 4 => {
            reply[..4].copy_from_slice(rest);
            Action::Reply(4)
        }
        _ => Action::Drop,
    }
}

fn datagram() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..64),
        2 => (0..=LONGEST, any::<u8>()).prop_map(|(length, fill)| vec![fill; length]),
        1 => prop::sample::select(vec![0, 1, 2047, 2048, 2049, LONGEST]).prop_map(|length| vec![b'g'; length]),
        1 => (0..8usize).prop_map(|length| b"good1234"[..length].to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn good_requests_are_always_answered(
        junk in prop::collection::vec(datagram(), 1..24),
        max_request in prop::sample::select(vec![16usize, 2048, 65_535]),
        backend in prop::sample::select(&BACKENDS[..]),
        bind in prop::sample::select(vec!["127.0.0.1:0", "0.0.0.0:0", "[::]:0"]),
    ) {
        let running = Server::builder()
            .bind(bind.parse()?)
            .workers(1)
            .max_request(max_request)
            .backend(backend)
            .start(|_| answer_good_requests)?;
        let mut to = running.local_addr();
        to.set_ip("127.0.0.1".parse()?);
        let (other_client, good) = (client("127.0.0.1:0")?, client("127.0.0.1:0")?);
        for (index, datagram) in junk.iter().enumerate() {
            other_client.send_to(datagram, to)?;
            let id = u32::try_from(index)?.to_be_bytes();
            good.send_to(&[b"good".as_slice(), &id].concat(), to)?;
            let mut answer = [0; 8];
            prop_assert_eq!(good.recv(&mut answer)?, 4);
            prop_assert_eq!(&answer[..4], &id);
        }
        let total = running.stop()?.total();
        let long = junk.iter().filter(|datagram| datagram.len() > max_request).count() as u64;
        prop_assert_eq!(total.truncated, long);
        prop_assert_eq!(total.received, 2 * junk.len() as u64);
        prop_assert_eq!(total.received, total.answered + total.dropped + total.truncated);
    }
}
