//! An NTP server (RFC 5905).
//!
//! It answers clients (mode 3) of versions 1 to 4 with the system's clock, and nothing else: no peers, no control or private
//! packets, no answers. An answer has 48 bytes, never more than its request, so that nothing is gained by forging a source.
//!
//! Extension fields are left unread, which is what RFC 7822 has a server do that knows none. Requests with a MAC are ignored,
//! as chronyd ignores those of keys it lacks: their sender would not believe an answer without one.
//!
//! **Timestamps.** The receive timestamp is the one [`answer_at`](NtpService::answer_at) is given. As a [`Service`] that is
//! [`Request::receive_time`], where the clock served is the system's: set
//! [`Builder::receive_times`](linerate_engine::Builder::receive_times), so that it is when the kernel received the request, and what
//! that then waited is no offset to clients. Without, it is the time at which the engine hands the request over. The transmit timestamp is written last,
//! before the batch is sent, and so a few microseconds early; in a full batch, by what the answers after it take.
//!
//! **Not synchronised.** Where the kernel says that nobody keeps its clock right, answers say so (leap 3, stratum 16), and clients
//! do not use them, unless [`NtpSettings::local_stratum`] is given.
//!
//! ```
//! use linerate_engine::Server;
//! use linerate_services::ntp::{NtpService, NtpSettings};
//!
//! let running = Server::builder()
//!     .bind("127.0.0.1:0".parse()?)
//!     .workers(1)
//!     .receive_times(true)
//!     .start(|_worker| NtpService::new(NtpSettings::default()))?;
//!
//! let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! let mut request = [0; 48];
//! request[0] = 0x23; // version 4, from a client
//! request[40..].copy_from_slice(b"whatever");
//! client.send_to(&request, running.local_addr())?;
//! let mut answer = [0; 64];
//! let (length, _) = client.recv_from(&mut answer)?;
//! assert_eq!((length, &answer[24..32]), (48, &b"whatever"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clock;
mod packet;
mod rate;
mod timestamp;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use linerate_engine::{Action, Request, Service};

pub use clock::{ClockStatus, ServedClock, SystemClock, measure_precision};
pub use packet::{
    HEADER_BYTES, IgnoreReason, LeapIndicator, NtpQuery, ServerStanding, answer, set_transmit_time,
};
pub use rate::NtpRateLimit;
use rate::{NtpLimiter, RateVerdict};
pub use timestamp::{NtpTimestamp, to_short_format};

/// The stratum of a clock that is not synchronised (RFC 5905, figure 11).
pub const UNSYNCHRONISED: u8 = 16;

/// What the server says of its clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NtpSettings {
    /// 1 to 15, while the kernel's clock is synchronised. Default: 10, which any better source outdoes.
    pub stratum: u8,
    /// 1 to 15, while it is not. Default: none, answers say that the clock is not synchronised.
    pub local_stratum: Option<u8>,
    /// What the clock follows. Default: `LOCL`.
    pub reference_id: [u8; 4],
    /// Round trip to the reference clock. Default: 0.
    pub root_delay: Duration,
    /// How far off the reference clock may be, to which the kernel's own estimate for the local clock is added. Default: 0.
    pub root_dispersion: Duration,
    /// Log2 of the clock's precision in seconds. Default: none, it is measured.
    pub precision: Option<i8>,
    /// How often a client is answered. Default: as often as it asks.
    pub rate_limit: Option<NtpRateLimit>,
}

impl Default for NtpSettings {
    fn default() -> Self {
        Self {
            stratum: 10,
            local_stratum: None,
            reference_id: *b"LOCL",
            root_delay: Duration::ZERO,
            root_dispersion: Duration::ZERO,
            precision: None,
            rate_limit: None,
        }
    }
}

/// The server of one worker.
#[derive(Debug)]
pub struct NtpService<C = SystemClock> {
    clock: C,
    settings: NtpSettings,
    precision: i8,
    limiter: Option<NtpLimiter>,
}

impl NtpService {
    /// A server of the system's clock.
    #[must_use]
    pub fn new(settings: NtpSettings) -> Self {
        Self::with_clock(settings, SystemClock::default())
    }
}

impl<C: ServedClock> NtpService<C> {
    /// A server of `clock`.
    #[must_use]
    pub fn with_clock(settings: NtpSettings, mut clock: C) -> Self {
        let precision = settings.precision.unwrap_or_else(|| measure_precision(&mut clock));
        let limiter = settings.rate_limit.map(NtpLimiter::new);
        Self { clock, settings, precision, limiter }
    }

    /// Answers a datagram that came from `source` at `received`: writes the answer to the start of `reply` and returns its
    /// length, or why there is none. `None` as the reason is a client over its rate, or a buffer too small.
    ///
    /// # Errors
    /// Why it is not answered.
    pub fn answer_at(
        &mut self,
        datagram: &[u8],
        source: IpAddr,
        received: NtpTimestamp,
        reply: &mut [u8],
    ) -> Result<usize, Option<IgnoreReason>> {
        let query = NtpQuery::parse(datagram)?;
        let mut standing = self.server_state();
        let verdict = self.limiter.as_mut().map(|limiter| limiter.check_client_rate(source, Instant::now()));
        match verdict {
            None | Some(RateVerdict::Answer) => {}
            Some(RateVerdict::Tell) => {
                standing.leap = LeapIndicator::Unsynchronised;
                standing.stratum = 0;
                standing.reference_id = *b"RATE";
            }
            Some(RateVerdict::Ignore) => return Err(None),
        }
        let space = reply.first_chunk_mut::<HEADER_BYTES>().ok_or(None)?;
        *space = answer(query, &standing, received);
        set_transmit_time(space, self.clock.now());
        Ok(HEADER_BYTES)
    }

    fn server_state(&mut self) -> ServerStanding {
        let status = self.clock.status();
        let settings = &self.settings;
        let (leap, stratum, reference) = match (status.leap, settings.local_stratum) {
            (LeapIndicator::Unsynchronised, None) => {
                (LeapIndicator::Unsynchronised, UNSYNCHRONISED, NtpTimestamp::UNKNOWN)
            }
            // By its own word right, and only by that: what the kernel makes of it does not count.
            (LeapIndicator::Unsynchronised, Some(stratum)) => (LeapIndicator::None, stratum, status.at),
            (leap, _) => (leap, settings.stratum, status.at),
        };
        let own_error =
            if status.leap == LeapIndicator::Unsynchronised { Duration::ZERO } else { status.max_error };
        ServerStanding {
            leap,
            stratum,
            precision: self.precision,
            root_delay: to_short_format(settings.root_delay),
            root_dispersion: to_short_format(settings.root_dispersion.saturating_add(own_error)),
            reference_id: settings.reference_id,
            reference,
        }
    }
}

impl<C: ServedClock> Service for NtpService<C> {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        let received = request.receive_time().and_then(|time| self.clock.at(time));
        let received = received.unwrap_or_else(|| self.clock.now());
        match self.answer_at(request.payload(), request.source().ip(), received, reply) {
            Ok(length) => Action::Reply(length),
            Err(_) => Action::Drop,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// A second goes by with each look at it.
    struct ScriptedClock {
        seconds: u32,
        status: ClockStatus,
    }

    impl ServedClock for ScriptedClock {
        fn now(&mut self) -> NtpTimestamp {
            self.seconds += 1;
            seconds(self.seconds)
        }

        fn status(&mut self) -> ClockStatus {
            self.status
        }
    }

    fn seconds(seconds: u32) -> NtpTimestamp {
        NtpTimestamp::from_bytes((u64::from(seconds) << 32).to_be_bytes())
    }

    fn clock(leap: LeapIndicator) -> ScriptedClock {
        let status = ClockStatus { leap, max_error: Duration::from_millis(250), at: seconds(90) };
        ScriptedClock { seconds: 100, status }
    }

    const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn ask(server: &mut NtpService<ScriptedClock>) -> Result<[u8; 48], Option<IgnoreReason>> {
        let mut request = [0; 48];
        request[0] = 0x23;
        request[40] = 7;
        let mut reply = [0xee; 100];
        let length = server.answer_at(&request, SOURCE, seconds(99), &mut reply)?;
        assert_eq!(length, 48);
        Ok(*reply.first_chunk().unwrap())
    }

    fn server(leap: LeapIndicator, settings: NtpSettings) -> NtpService<ScriptedClock> {
        NtpService::with_clock(NtpSettings { precision: Some(-20), ..settings }, clock(leap))
    }

    #[test]
    fn a_synchronised_clock_is_served_with_its_error() {
        let settings = NtpSettings { root_dispersion: Duration::from_millis(250), ..NtpSettings::default() };
        let reply = ask(&mut server(LeapIndicator::Insert, settings)).unwrap();
        assert_eq!(reply[..4], [0x64, 10, 0, 0xec]);
        assert_eq!((&reply[8..12], &reply[12..16]), (&[0, 0, 0x80, 0][..], &b"LOCL"[..]));
        let at = |offset: usize| u32::from_be_bytes(*reply[offset..].first_chunk().unwrap());
        // Last corrected, received, and sent, which is looked at last.
        assert_eq!((at(16), at(32), at(40)), (90, 99, 101));
        assert_eq!(reply[24..32], [7, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn one_that_is_not_says_so_unless_told() {
        let reply = ask(&mut server(LeapIndicator::Unsynchronised, NtpSettings::default())).unwrap();
        assert_eq!((reply[0] >> 6, reply[1]), (3, UNSYNCHRONISED));
        assert_eq!(reply[16..24], [0; 8]);
        let settings = NtpSettings { local_stratum: Some(5), ..NtpSettings::default() };
        let reply = ask(&mut server(LeapIndicator::Unsynchronised, settings)).unwrap();
        assert_eq!((reply[0] >> 6, reply[1], &reply[8..12]), (0, 5, &[0; 4][..]));
    }

    #[test]
    fn who_asks_too_often_is_told_the_rate() {
        let rate_limit = Some(NtpRateLimit { per_second: 0.001, burst: 1.0 });
        let mut server = server(LeapIndicator::None, NtpSettings { rate_limit, ..NtpSettings::default() });
        assert_eq!(ask(&mut server).unwrap()[1], 10);
        let kiss = ask(&mut server).unwrap();
        assert_eq!((kiss[0] >> 6, kiss[1], &kiss[12..16], kiss[24]), (3, 0, &b"RATE"[..], 7));
        assert_eq!(ask(&mut server), Err(None));
    }

    #[test]
    fn a_reply_buffer_that_is_too_small_is_no_panic() {
        let mut server = server(LeapIndicator::None, NtpSettings::default());
        let request = [[0x23].as_slice(), &[0; 47]].concat();
        assert_eq!(server.answer_at(&request, SOURCE, NtpTimestamp::UNKNOWN, &mut [0; 47]), Err(None));
    }
}
