//! NTP packets (RFC 5905, section 7.3): requests that are to be answered, and the answers.

use super::timestamp::NtpTimestamp;

/// Bytes of a packet without extension fields and MAC, and of every answer.
pub const HEADER_BYTES: usize = 48;

/// Mode 3 asks, mode 4 answers.
const CLIENT: u8 = 3;
const SERVER: u8 = 4;

/// Bytes of a MAC: a key number and a digest by MD5 or by SHA-1 (RFC 7822, section 3).
const MACS: [usize; 2] = [20, 24];
/// The shortest extension field (RFC 7822, section 3).
const EXTENSION_BYTES: usize = 16;

/// Why a datagram gets no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreReason {
    /// Shorter than a header.
    Short,
    /// A version that is neither 1, 2, 3 nor 4.
    Version(u8),
    /// Nothing a client of a server sends: version 1 without a mode (an answer of that time looks the same), a peer's packet, an answer, a broadcast, control or private. To answer an answer
    /// would have two servers answer one another for ever, and to answer control and private packets is what made
    /// servers amplify.
    Mode(u8),
    /// It has a message authentication code, and there are no keys here. Its sender would not believe an answer without.
    Authenticated,
    /// What follows the header is neither extension fields nor a MAC.
    Garbled,
}

/// A client's request, as far as its answer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NtpQuery {
    /// 1 to 4; the answer's is the same.
    pub version: u8,
    /// Log2 of the client's interval in seconds, which the answer repeats.
    pub poll: u8,
    /// Any 8 bytes by which the client knows the answer for that of this request.
    pub transmit: NtpTimestamp,
}

impl NtpQuery {
    /// Reads a datagram.
    ///
    /// # Errors
    /// Why it is not to be answered.
    pub fn parse(datagram: &[u8]) -> Result<Self, IgnoreReason> {
        let (header, rest) = datagram.split_first_chunk::<HEADER_BYTES>().ok_or(IgnoreReason::Short)?;
        let (version, mode) = (header[0] >> 3 & 0b111, header[0] & 0b111);
        match (version, mode) {
            (1..=4, CLIENT) => {}
            (1..=4, _) => return Err(IgnoreReason::Mode(mode)),
            _ => return Err(IgnoreReason::Version(version)),
        }
        check_rest(version, rest)?;
        let mut transmit = [0; 8];
        transmit.copy_from_slice(&header[40..48]);
        Ok(Self { version, poll: header[2], transmit: NtpTimestamp::from_bytes(transmit) })
    }
}

/// Extension fields are allowed in version 4, and none is known here, which means to leave them alone (RFC 7822). Older
/// versions have a MAC there or nothing. In version 4 a MAC is told by its length: the last field, where no MAC follows, has 28
/// bytes or more.
fn check_rest(version: u8, mut rest: &[u8]) -> Result<(), IgnoreReason> {
    if rest.is_empty() {
        return Ok(());
    }
    if version < 4 {
        return Err(IgnoreReason::Authenticated);
    }
    while !rest.is_empty() {
        if MACS.contains(&rest.len()) {
            return Err(IgnoreReason::Authenticated);
        }
        let length = rest.get(2..4).map_or(0, |bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])));
        if length < EXTENSION_BYTES || length % 4 != 0 {
            return Err(IgnoreReason::Garbled);
        }
        rest = rest.get(length..).ok_or(IgnoreReason::Garbled)?;
    }
    Ok(())
}

/// Whether a second is to be added or left out at the end of the month (RFC 5905, figure 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum LeapIndicator {
    #[default]
    None = 0,
    /// The last minute has 61 seconds.
    Insert = 1,
    /// The last minute has 59 seconds.
    Delete = 2,
    /// The clock is not synchronised.
    Unsynchronised = 3,
}

/// What a server says of itself in every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerStanding {
    pub leap: LeapIndicator,
    /// 0 is a kiss of death, 1 has a reference clock, 2 to 15 have a server above, 16 is not synchronised.
    pub stratum: u8,
    /// Log2 of the clock's precision in seconds.
    pub precision: i8,
    /// Round trip to the reference clock, in the short format.
    pub root_delay: [u8; 4],
    /// How far off the clock may be, in the short format.
    pub root_dispersion: [u8; 4],
    /// What the clock follows: four letters, an address, or a kiss code.
    pub reference_id: [u8; 4],
    /// When the clock was last set or corrected.
    pub reference: NtpTimestamp,
}

/// Writes the answer to `query` without its transmit timestamp, which [`set_transmit_time`] puts in last.
#[must_use]
pub fn answer(query: NtpQuery, standing: &ServerStanding, received: NtpTimestamp) -> [u8; HEADER_BYTES] {
    let mut packet = [0; HEADER_BYTES];
    packet[0] = (standing.leap as u8) << 6 | query.version << 3 | SERVER;
    packet[1] = standing.stratum;
    packet[2] = query.poll;
    packet[3] = standing.precision.cast_unsigned();
    packet[4..8].copy_from_slice(&standing.root_delay);
    packet[8..12].copy_from_slice(&standing.root_dispersion);
    packet[12..16].copy_from_slice(&standing.reference_id);
    packet[16..24].copy_from_slice(&standing.reference.to_bytes());
    packet[24..32].copy_from_slice(&query.transmit.to_bytes());
    packet[32..40].copy_from_slice(&received.to_bytes());
    packet
}

/// Puts the transmit timestamp into an answer.
pub fn set_transmit_time(packet: &mut [u8; HEADER_BYTES], now: NtpTimestamp) {
    packet[40..48].copy_from_slice(&now.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(first: u8) -> Vec<u8> {
        let mut packet = vec![0; HEADER_BYTES];
        packet[0] = first;
        packet[2] = 6;
        packet[40..].copy_from_slice(b"anything");
        packet
    }

    fn first(version: u8, mode: u8) -> u8 {
        version << 3 | mode
    }

    #[test]
    fn clients_of_all_versions_are_heard() {
        for version in 1..=4 {
            let query = NtpQuery::parse(&request(first(version, CLIENT))).unwrap();
            assert_eq!((query.version, query.poll), (version, 6));
            assert_eq!(query.transmit.to_bytes(), *b"anything");
        }
    }

    #[test]
    fn nothing_else_is() {
        for version in 1..=4 {
            for mode in (0..8).filter(|mode| *mode != CLIENT) {
                assert_eq!(NtpQuery::parse(&request(first(version, mode))), Err(IgnoreReason::Mode(mode)));
            }
        }
        for version in [0, 5, 6, 7] {
            assert_eq!(
                NtpQuery::parse(&request(first(version, CLIENT))),
                Err(IgnoreReason::Version(version))
            );
        }
        assert_eq!(NtpQuery::parse(&request(0x23)[..47]), Err(IgnoreReason::Short));
    }

    #[test]
    fn an_answer_is_never_answered() {
        for version in 1..=4 {
            let query = NtpQuery::parse(&request(first(version, CLIENT))).unwrap();
            let answer = answer(query, &standing(), NtpTimestamp::UNKNOWN);
            assert_eq!(NtpQuery::parse(&answer), Err(IgnoreReason::Mode(SERVER)));
        }
    }

    #[test]
    fn extension_fields_are_left_alone_and_macs_are_not() {
        let with = |version: u8, rest: &[u8]| NtpQuery::parse(&[&request(first(version, 3)), rest].concat());
        let mut field = vec![0xf3, 0x23, 0, 28];
        field.resize(28, 0);
        assert!(with(4, &field).is_ok());
        assert!(with(4, &[field.clone(), field.clone()].concat()).is_ok());
        for mac in MACS {
            assert_eq!(with(4, &vec![0; mac]), Err(IgnoreReason::Authenticated));
            assert_eq!(with(3, &vec![0; mac]), Err(IgnoreReason::Authenticated));
            assert_eq!(with(4, &[field.clone(), vec![0; mac]].concat()), Err(IgnoreReason::Authenticated));
        }
        // A crypto-NAK, a field without a length, one that goes on past the end, and one of odd length.
        for garbled in [&[0; 4][..], &[0; 28], &[1, 1, 0, 64, 0, 0, 0, 0], &[1, 1, 0, 17], &[9]] {
            assert_eq!(with(4, garbled), Err(IgnoreReason::Garbled));
        }
    }

    fn standing() -> ServerStanding {
        ServerStanding {
            leap: LeapIndicator::Insert,
            stratum: 3,
            precision: -20,
            root_delay: [0, 0, 0, 1],
            root_dispersion: [0, 0, 0, 2],
            reference_id: *b"LOCL",
            reference: NtpTimestamp::from_bytes([1; 8]),
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(mut datagram in proptest::collection::vec(any::<u8>(), 0..200), client: bool) {
            if client && !datagram.is_empty() {
                datagram[0] = 0x23;
            }
            if let Ok(query) = NtpQuery::parse(&datagram) {
                let mut packet = answer(query, &standing(), NtpTimestamp::from_bytes([2; 8]));
                set_transmit_time(&mut packet, NtpTimestamp::from_bytes([3; 8]));
                prop_assert!(packet.len() <= datagram.len());
                prop_assert_eq!(&packet[24..32], &datagram[40..48]);
                prop_assert_eq!(packet[2], datagram[2]);
                prop_assert_eq!((&packet[32..40], &packet[40..]), (&[2; 8][..], &[3; 8][..]));
                prop_assert_eq!(packet[0], 1 << 6 | (datagram[0] & 0b0011_1000) | SERVER);
            }
        }
    }
}
