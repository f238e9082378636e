//! An accounting request as a line of JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::dictionary::{self, AttributeValue};
use super::packet::{RadiusPacket, attribute};

/// What is between two hops, and no record of what a user did.
const HOP: [u8; 3] = [attribute::PROXY_STATE, attribute::MESSAGE_AUTHENTICATOR, attribute::USER_PASSWORD];

/// Schema `linerate.accounting/1`.
#[derive(Debug, Serialize)]
struct AccountingRecord {
    schema: &'static str,
    /// By the real-time clock.
    received_realtime_ns: u64,
    /// The NAS, or the proxy before it.
    source: SocketAddr,
    /// By name, or as `Attr-N`.
    attributes: BTreeMap<String, RecordedValue>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum RecordedValue {
    One(AttributeValue),
    /// It came several times; in the request's order.
    Several(Vec<AttributeValue>),
}

impl RecordedValue {
    fn with_value(self, value: AttributeValue) -> Self {
        let mut values = match self {
            Self::One(first) => vec![first],
            Self::Several(values) => values,
        };
        values.push(value);
        Self::Several(values)
    }
}

/// The line, with its newline.
pub(crate) fn line(packet: RadiusPacket<'_>, source: SocketAddr, received: SystemTime) -> Vec<u8> {
    let since = received.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut attributes: BTreeMap<String, RecordedValue> = BTreeMap::new();
    for found in packet.attributes().filter(|found| !HOP.contains(&found.kind)) {
        let (name, value) = dictionary::decode(found.kind, found.value);
        let told = match attributes.remove(&name) {
            Some(before) => before.with_value(value),
            None => RecordedValue::One(value),
        };
        attributes.insert(name, told);
    }
    let received_realtime_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let record =
        AccountingRecord { schema: "linerate.accounting/1", received_realtime_ns, source, attributes };
    // Text, numbers and names: nothing of it can fail, and nothing of it has a newline of its own.
    let mut line = serde_json::to_vec(&record).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn packet(attributes: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![4, 9, 0, 0];
        bytes.resize(20, 0);
        for (kind, value) in attributes {
            bytes.extend([*kind, value.len() as u8 + 2]);
            bytes.extend(*value);
        }
        let length = (bytes.len() as u16).to_be_bytes();
        bytes[2..4].copy_from_slice(&length);
        bytes
    }

    fn told(bytes: &[u8]) -> serde_json::Value {
        let source = SocketAddr::from(([192, 0, 2, 1], 2000));
        let received = UNIX_EPOCH + Duration::new(7, 9);
        let line = line(RadiusPacket::parse(bytes).expect("a packet"), source, received);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        serde_json::from_slice(&line).expect("JSON")
    }

    #[test]
    fn names_and_values_are_the_dictionarys() {
        let bytes = packet(&[
            (1, b"alice"),
            (40, &[0, 0, 0, 2]),
            (4, &[192, 0, 2, 9]),
            (44, b"0x7"),
            (46, &[0, 0, 14, 16]),
            (49, &[0, 0, 0, 1]),
            (26, &[0, 0, 0, 9, 1, 2]),
            (25, b"one"),
            (25, &[0xff]),
            (33, b"hop"),
            (80, &[0; 16]),
        ]);
        let expected = serde_json::json!({
            "schema": "linerate.accounting/1",
            "received_realtime_ns": 7_000_000_009u64,
            "source": "192.0.2.1:2000",
            "attributes": {
                "User-Name": "alice",
                "Acct-Status-Type": "Stop",
                "NAS-IP-Address": "192.0.2.9",
                "Acct-Session-Id": "0x307837",
                "Acct-Session-Time": 3600,
                "Acct-Terminate-Cause": "User-Request",
                "Attr-26": "0x000000090102",
                "Class": ["one", "0xff"],
            },
        });
        assert_eq!(told(&bytes), expected);
    }

    proptest! {
        #[test]
        fn any_attributes_make_one_line(attributes in proptest::collection::vec(
            (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..20,
        )) {
            let attributes: Vec<(u8, &[u8])> =
                attributes.iter().map(|(kind, value)| (*kind, value.as_slice())).collect();
            let told = told(&packet(&attributes));
            prop_assert!(told["attributes"].is_object());
        }
    }
}
