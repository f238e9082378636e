//! Datagrams for the NTP server: any bytes, or datagrams that pass its first checks, with extension
//! fields and bytes that look like a MAC.
//!
//! The first two bytes choose the kind of datagram and the state of the clock; the rest is the
//! input to build datagrams, one after another.

#![no_main]

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use linerate_services::ntp::{
    ClockStatus, HEADER_BYTES, IgnoreReason, LeapIndicator, NtpRateLimit, NtpService, NtpSettings,
    NtpTimestamp, ServedClock,
};

const CLIENT: u8 = 3;
const SERVER: u8 = 4;
/// Lengths of MACs in RFC 7822, which distinguish them from extension fields.
const MACS: [usize; 2] = [20, 24];

/// A clock that advances by one unit per reading, with the state that the input chooses.
struct Scripted {
    now: u64,
    status: ClockStatus,
}

impl ServedClock for Scripted {
    fn now(&mut self) -> NtpTimestamp {
        self.now = self.now.wrapping_add(1);
        NtpTimestamp::from_bytes(self.now.to_be_bytes())
    }

    fn status(&mut self) -> ClockStatus {
        self.status
    }
}

fn clock(choice: u8) -> Scripted {
    let leap =
        [LeapIndicator::None, LeapIndicator::Insert, LeapIndicator::Delete, LeapIndicator::Unsynchronised]
            [usize::from(choice) % 4];
    let max_error = [Duration::ZERO, Duration::from_millis(3), Duration::MAX][usize::from(choice / 4) % 3];
    let now = if choice & 0x80 == 0 { 1 << 60 } else { u64::MAX - 1 };
    Scripted { now, status: ClockStatus { leap, max_error, at: NtpTimestamp::from_bytes([choice; 8]) } }
}

fn settings(choice: u8, rate_limit: Option<NtpRateLimit>) -> NtpSettings {
    NtpSettings {
        local_stratum: (choice & 0x10 != 0).then_some(5),
        root_dispersion: if choice & 0x20 == 0 { Duration::ZERO } else { Duration::MAX },
        precision: Some(-20),
        rate_limit,
        ..NtpSettings::default()
    }
}

/// Whether the datagram requires a reply; `None` if that depends on the bytes after the header.
fn is_request(datagram: &[u8]) -> Option<bool> {
    let Some(first_byte) = datagram.first().filter(|_| datagram.len() >= HEADER_BYTES) else {
        return Some(false);
    };
    let (version, mode) = (first_byte >> 3 & 7, first_byte & 7);
    if !(1..=4).contains(&version) || mode != CLIENT {
        return Some(false);
    }
    match datagram.len() - HEADER_BYTES {
        0 => Some(true),
        _ if version < 4 => Some(false),
        extra if MACS.contains(&extra) || extra % 4 != 0 => Some(false),
        _ => None,
    }
}

/// A datagram, and whether the bytes after its header are valid, so that it requires a reply.
fn datagram(input: &mut Unstructured<'_>, is_arbitrary: bool) -> Result<(Vec<u8>, bool)> {
    if is_arbitrary {
        let length = input.int_in_range(0..=200)?;
        return Ok((input.bytes(length.min(input.len()))?.to_vec(), false));
    }
    let mut datagram = input.bytes(HEADER_BYTES.min(input.len()))?.to_vec();
    datagram.resize(HEADER_BYTES, 0);
    datagram[0] = datagram[0] & 0xf8 | CLIENT;
    let fields = input.int_in_range(0..=4)?;
    for field in 1..=fields {
        // The last field has 28 bytes or more, because a shorter one could be a MAC.
        let min_length = if field == fields { 28 } else { 16 };
        let length = min_length + 4 * usize::from(input.int_in_range(0..=12_u8)?);
        let mut bytes = vec![input.arbitrary()?, input.arbitrary()?];
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend_from_slice(input.bytes((length - 4).min(input.len()))?);
        bytes.resize(length, 0);
        datagram.extend(bytes);
    }
    let mut is_valid = datagram[0] >> 3 & 7 == 4 || fields == 0;
    if input.ratio(1, 8)? {
        is_valid = false;
        datagram.resize(datagram.len() + input.choose(&[4, 20, 24, 1, 12])?, 1);
    }
    is_valid &= (1..=4).contains(&(datagram[0] >> 3 & 7));
    Ok((datagram, is_valid))
}

/// Checks the rules that hold for every reply.
fn check(request: &[u8], answer: &[u8], received: NtpTimestamp, choice: u8) {
    assert_eq!(answer.len(), HEADER_BYTES, "never more than was asked with: {}", request.len());
    assert!(answer.len() <= request.len());
    assert_eq!((answer[0] & 7, answer[0] >> 3 & 7), (SERVER, request[0] >> 3 & 7), "mode and version");
    assert_eq!(answer[2], request[2], "the client's interval");
    assert_eq!(answer[24..32], request[40..48], "by which the client knows the answer");
    assert_eq!(answer[32..40], received.to_bytes());
    let leap_and_stratum = (answer[0] >> 6, answer[1]);
    if choice % 4 == 3 {
        // Not synchronized, unless a local stratum is set.
        assert_eq!(leap_and_stratum, if choice & 0x10 == 0 { (3, 16) } else { (0, 5) });
    } else {
        assert_eq!(leap_and_stratum, (choice % 4, 10));
    }
}

thread_local! {
    // Shared by all runs, because building its table takes longer than everything else.
    static LIMITED: RefCell<NtpService<Scripted>> =
        NtpService::with_clock(settings(0, Some(NtpRateLimit { per_second: 0.5, burst: 4.0 })), clock(0)).into();
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, choice, rest @ ..] = bytes else { return };
    let mut server = NtpService::with_clock(settings(*choice, None), clock(*choice));
    let mut from = Unstructured::new(rest);
    let sources: [IpAddr; 2] =
        [Ipv4Addr::from([192, 0, 2, *kind]).into(), Ipv6Addr::from([*kind; 16]).into()];
    while let (false, Ok((datagram, sound))) = (from.is_empty(), datagram(&mut from, kind % 2 == 0)) {
        let received = NtpTimestamp::from_bytes([*choice ^ 0x55; 8]);
        let mut reply = [0xee; HEADER_BYTES + 4];
        let answered = server.answer_at(&datagram, sources[0], received, &mut reply);
        match is_request(&datagram) {
            Some(wanted) => assert_eq!(answered.is_ok(), wanted, "{answered:?}"),
            None => assert!(answered.is_ok() || !sound, "{answered:?}"),
        }
        match answered {
            Ok(length) => {
                check(&datagram, &reply[..length], received, *choice);
                assert_eq!(reply[HEADER_BYTES..], [0xee; 4]);
                let again = server.answer_at(&reply.clone()[..length], sources[0], received, &mut reply);
                assert_eq!(again, Err(Some(IgnoreReason::Mode(SERVER))), "an answer is answered");
            }
            Err(why) => assert!(why.is_some() && reply == [0xee; HEADER_BYTES + 4]),
        }
        assert!(server.answer_at(&datagram, sources[0], received, &mut [0; HEADER_BYTES - 1]).is_err());
        LIMITED.with_borrow_mut(|limited| {
            for source in sources {
                match limited.answer_at(&datagram, source, received, &mut reply) {
                    Ok(length) => check(&datagram, &reply[..length], received, 0),
                    Err(why) => assert!(why.is_none() || answered.is_err()),
                }
            }
        });
    }
});
