//! NTP timestamps and packets (RFC 5905, section 6 and 7.3): requests, and the replies to them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Length of a packet without extension fields and MAC, and of every reply.
pub const HEADER_BYTES: usize = 48;

const CLIENT: u8 = 3;
const SERVER: u8 = 4;

// Bytes of a MAC: a key number and a digest, MD5 or SHA-1 (RFC 7822, section 3).
const MACS: [usize; 2] = [20, 24];
// The shortest extension field (RFC 7822, section 3).
const EXTENSION_BYTES: usize = 16;

// Seconds from 1900-01-01, where NTP's era 0 begins, to 1970-01-01.
const UNIX_EPOCH_SECONDS: u64 = 2_208_988_800;

/// 32 bits of seconds and 32 bits of fractions of about 233 ps. Seconds count from 1900 and restart at 0 in 2036; the reader
/// decides which era is meant. 0 is an unknown time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NtpTimestamp(u64);

impl NtpTimestamp {
    pub const UNKNOWN: Self = Self(0);

    #[must_use]
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Seconds from `earlier` to this time, also across the end of an era, if both are less than 68 years apart.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.wrapping_sub(earlier.0).cast_signed() as f64 / 4_294_967_296.0
    }
}

impl From<SystemTime> for NtpTimestamp {
    /// Times before 1970 become 1970.
    fn from(time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = since_epoch.as_secs().wrapping_add(UNIX_EPOCH_SECONDS);
        let fraction = (u64::from(since_epoch.subsec_nanos()) << 32) / 1_000_000_000;
        Self(seconds << 32 | fraction)
    }
}

/// NTP's short format: 16 bits of seconds and 16 bits of fractions of 15 us. Longer spans become the longest.
#[must_use]
pub fn to_short_format(span: Duration) -> [u8; 4] {
    let units = (span.as_nanos() << 16).div_ceil(1_000_000_000);
    u32::try_from(units).unwrap_or(u32::MAX).to_be_bytes()
}

/// Why a datagram gets no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoreReason {
    /// Shorter than a header.
    Short,
    /// Not 1 to 4.
    Version(u8),
    /// Not from a client: a peer's packet, a reply, a broadcast, control or private, and version 1 without a mode, because a
    /// reply of that version looks the same. Replies to replies would keep two servers busy forever, and replies to control
    /// and private packets amplify.
    Mode(u8),
    /// It has a message authentication code, for which the server has no key.
    Authenticated,
    /// Neither extension fields nor a MAC follow the header.
    Garbled,
}

/// The fields of a request on which the reply depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NtpQuery {
    /// 1 to 4.
    pub version: u8,
    /// Log2 of the client's interval in seconds.
    pub poll: u8,
    /// The client recognizes the reply by it; may be any 8 bytes.
    pub transmit: NtpTimestamp,
}

impl NtpQuery {
    /// # Errors
    /// The reason why the datagram gets no reply.
    pub fn parse(datagram: &[u8]) -> Result<Self, IgnoreReason> {
        let (header, extensions) = datagram.split_first_chunk::<HEADER_BYTES>().ok_or(IgnoreReason::Short)?;
        let (version, mode) = (header[0] >> 3 & 0b111, header[0] & 0b111);
        match (version, mode) {
            (1..=4, CLIENT) => {}
            (1..=4, _) => return Err(IgnoreReason::Mode(mode)),
            _ => return Err(IgnoreReason::Version(version)),
        }
        check_extensions(version, extensions)?;
        let mut transmit = [0; 8];
        transmit.copy_from_slice(&header[40..48]);
        Ok(Self { version, poll: header[2], transmit: NtpTimestamp::from_bytes(transmit) })
    }
}

// Checks the bytes after the header. Version 4 allows extension fields, which are ignored, since the server knows none (RFC
// 7822). Older versions have a MAC or nothing. In version 4 the length shows a MAC: the last field without a MAC behind it
// has 28 bytes or more.
fn check_extensions(version: u8, mut remaining: &[u8]) -> Result<(), IgnoreReason> {
    if remaining.is_empty() {
        return Ok(());
    }
    if version < 4 {
        return Err(IgnoreReason::Authenticated);
    }
    while !remaining.is_empty() {
        if MACS.contains(&remaining.len()) {
            return Err(IgnoreReason::Authenticated);
        }
        let length =
            remaining.get(2..4).map_or(0, |bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])));
        if length < EXTENSION_BYTES || length % 4 != 0 {
            return Err(IgnoreReason::Garbled);
        }
        remaining = remaining.get(length..).ok_or(IgnoreReason::Garbled)?;
    }
    Ok(())
}

/// A leap second at the end of the month (RFC 5905, figure 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum LeapIndicator {
    #[default]
    None = 0,
    /// The last minute has 61 seconds.
    Insert = 1,
    /// The last minute has 59 seconds.
    Delete = 2,
    Unsynchronised = 3,
}

/// The server's state in each reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerStanding {
    pub leap: LeapIndicator,
    /// 1 with a reference clock, 2 to 15 below another server, 16 if not synchronized.
    pub stratum: u8,
    /// Log2 of the clock's precision in seconds.
    pub precision: i8,
    /// Round trip to the reference clock, in the short format.
    pub root_delay: [u8; 4],
    /// Largest error of the clock, in the short format.
    pub root_dispersion: [u8; 4],
    /// The source of the clock: four letters or an IPv4 address.
    pub reference_id: [u8; 4],
    /// When the clock was last set or corrected.
    pub reference: NtpTimestamp,
}

/// The reply to `query` without its transmit timestamp; [`set_transmit_time`] writes it last.
#[must_use]
pub fn answer(query: NtpQuery, standing: &ServerStanding, receive_time: NtpTimestamp) -> [u8; HEADER_BYTES] {
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
    packet[32..40].copy_from_slice(&receive_time.to_bytes());
    packet
}

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
    fn client_packets_of_versions_1_to_4_parse() {
        for version in 1..=4 {
            let query = NtpQuery::parse(&request(first(version, CLIENT))).unwrap();
            assert_eq!((query.version, query.poll), (version, 6));
            assert_eq!(query.transmit.to_bytes(), *b"anything");
        }
    }

    #[test]
    fn other_modes_versions_and_short_packets_are_ignored() {
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
    fn packets_with_a_mac_are_refused_and_extension_fields_accepted() {
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
        // A crypto-NAK, a field without a length, one beyond the end, and one of odd length.
        for garbled in [&[0; 4][..], &[0; 28], &[1, 1, 0, 64, 0, 0, 0, 0], &[1, 1, 0, 17], &[9]] {
            assert_eq!(with(4, garbled), Err(IgnoreReason::Garbled));
        }
    }

    #[test]
    fn timestamps_match_rfc_5905_in_eras_0_and_1() {
        // RFC 5905, figure 4: 1 January 1970 is 2,208,988,800 in era 0; era 1 begins on 8 February 2036 at 06:28:16.
        assert_eq!(NtpTimestamp::from(UNIX_EPOCH).0 >> 32, 2_208_988_800);
        let era_1 = UNIX_EPOCH + Duration::from_secs(2_085_978_496);
        assert_eq!(NtpTimestamp::from(era_1).0, 0);
        let half = UNIX_EPOCH + Duration::from_millis(500);
        assert_eq!(NtpTimestamp::from(half).0 as u32, 1 << 31);
        let before = NtpTimestamp::from(era_1 - Duration::from_secs(2));
        assert_eq!(NtpTimestamp::from(era_1 + Duration::from_secs(1)).seconds_since(before), 3.0);
    }

    #[test]
    fn short_format_rounds_up_and_saturates() {
        assert_eq!(to_short_format(Duration::from_secs(1)), [0, 1, 0, 0]);
        assert_eq!(to_short_format(Duration::from_nanos(1)), [0, 0, 0, 1]);
        assert_eq!(to_short_format(Duration::from_secs(1 << 20)), [0xff; 4]);
        assert_eq!(to_short_format(Duration::MAX), [0xff; 4]);
    }

    proptest! {
        #[test]
        fn timestamp_differences_equal_the_elapsed_time(
            at in 0_u64..4_000_000_000, by in 0_u64..1_000_000_000_000,
        ) {
            let start = UNIX_EPOCH + Duration::from_secs(at);
            let end = start + Duration::from_nanos(by);
            let seconds = NtpTimestamp::from(end).seconds_since(NtpTimestamp::from(start));
            prop_assert!((seconds - by as f64 / 1e9).abs() < 1e-6, "{} {}", seconds, by);
        }
    }
}
