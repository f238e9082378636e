//! Arbitrary bytes as a query to the DNS server, over both transports, and after a zero byte as a zone file.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use linerate_services::dns::{Answerer, Served, Transport, UDP_SIZE, Zones};

const ZONE: &str = "\
$TTL 60
@ IN SOA ns hostmaster 1 2 3 4 5
@ IN NS ns
@ IN MX 1 a
ns IN A 192.0.2.1
a IN A 192.0.2.2
a IN AAAA 2001:db8::1
c IN CNAME d
d IN CNAME a
l IN CNAME l
*.w IN CNAME x.w
*.v IN TXT text
_s._u IN SRV 1 2 3 a
e.f.g IN PTR a
z IN NS ns.z
z IN DS 1 13 2 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
ns.z IN A 192.0.2.3
";

thread_local! {
    static ANSWERER: RefCell<Answerer> = RefCell::new(Answerer::new(Served::new(
        Zones::parse("t", ZONE).expect("the zone is sound"),
    )));
}

fuzz_target!(|bytes: &[u8]| {
    ANSWERER.with_borrow_mut(|answerer| {
        let mut reply = vec![0; 65_535];
        for transport in [Transport::Udp { most: UDP_SIZE }, Transport::Tcp] {
            let Some(length) = answerer.answer(bytes, &mut reply, transport) else { continue };
            let answer = &reply[..length];
            assert!(bytes.len() >= 12 && bytes[2] & 0x80 == 0, "an answer to what is no query");
            assert!(answer.len() >= 12 && answer[..2] == bytes[..2] && answer[2] & 0x80 != 0);
            assert!(transport == Transport::Tcp || length <= usize::from(UDP_SIZE));
            // Answers are never answered.
            assert!(answerer.answer(&answer.to_vec(), &mut reply, transport).is_none());
        }
        // However little room there is, and the same again in what there is.
        let mut small = vec![0; bytes.len() % 64];
        let _ = answerer.answer(bytes, &mut small, Transport::Tcp);
    });
    if let Some(text) = bytes.strip_prefix(&[0]).and_then(|text| std::str::from_utf8(text).ok()) {
        let _ = Zones::parse("t", &format!("@ 60 IN SOA a b 1 2 3 4 5\n{text}"));
    }
});
