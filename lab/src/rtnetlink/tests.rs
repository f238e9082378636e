use std::net::Ipv4Addr;

use super::*;

fn bytes_of(message: &RouteNetlinkMessage) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[test]
fn neighbour_entries_are_permanent() {
    let mac = [2, 0x4c, 0x52, 0, 0, 1];
    let bytes = bytes_of(&neighbour(9, Ipv4Addr::new(198, 18, 0, 100).into(), mac));
    let mut expected = vec![2, 0, 0, 0];
    expected.extend(9u32.to_ne_bytes());
    expected.extend(0x80u16.to_ne_bytes());
    assert_eq!(bytes[..10], expected);
    let tail = &bytes[12..];
    assert_eq!(tail[4..8], [198, 18, 0, 100]);
    assert_eq!(tail[12..18], mac);
}
