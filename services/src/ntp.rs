//! An NTP server (RFC 5905).
//!
//! It answers clients (mode 3) of versions 1 to 4 with the system's clock. Packets of peers, control and private packets, and
//! replies get no reply. A reply has 48 bytes, never more than its request, so it amplifies nothing.
//!
//! Extension fields are ignored, as RFC 7822 requires of a server that knows none. Requests with a MAC get no reply, because
//! the server has no keys and the client would not accept a reply without a MAC.
//!
//! **Timestamps.** As a [`Service`], the receive timestamp is [`Request::receive_time`] if the clock served is the system's.
//! Set [`Builder::receive_times`](linerate_engine::Builder::receive_times), so that this is when the kernel received the
//! request; otherwise it is when the engine passes the request on, and the time in the socket's queue adds an offset. The
//! transmit timestamp is written last, a few microseconds before the batch leaves.
//!
//! **Unsynchronized clock.** While the kernel reports that its clock is not synchronized, replies
//! report it (leap 3, stratum 16) and clients ignore them, unless [`NtpSettings::local_stratum`] is
//! set.
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

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_engine::{Action, Request, Service};

use crate::refusals::{RefusalCounters, RefusalReason};

pub use clock::{ClockStatus, ServedClock, SystemClock, measure_precision};
pub use packet::{
    HEADER_BYTES, IgnoreReason, LeapIndicator, NtpQuery, NtpTimestamp, ServerStanding, answer,
    set_transmit_time, to_short_format,
};
use rate::NtpLimiter;
pub use rate::NtpRateLimit;

/// RFC 5905, figure 11.
pub const UNSYNCHRONISED: u8 = 16;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NtpSettings {
    /// 1 to 15, while the kernel's clock is synchronized. Default: 10, so that clients prefer better sources.
    pub stratum: u8,
    /// 1 to 15, while the clock is not synchronized. Default: `None`, replies report it.
    pub local_stratum: Option<u8>,
    /// Default: `LOCL`.
    pub reference_id: [u8; 4],
    /// Round trip to the reference clock. Default: 0.
    pub root_delay: Duration,
    /// Largest error of the reference clock, to which the kernel's estimate for the local clock is added. Default: 0.
    pub root_dispersion: Duration,
    /// Log2 of the clock's precision in seconds. Default: `None`, it is measured.
    pub precision: Option<i8>,
    /// Default: `None`, no limit.
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

#[derive(Debug)]
pub struct NtpService<C = SystemClock> {
    clock: C,
    settings: NtpSettings,
    precision: i8,
    limiter: Option<NtpLimiter>,
    refusals: Arc<RefusalCounters>,
}

impl NtpService {
    /// Serves the system's clock.
    #[must_use]
    pub fn new(settings: NtpSettings) -> Self {
        Self::with_clock(settings, SystemClock::default())
    }
}

impl<C: ServedClock> NtpService<C> {
    #[must_use]
    pub fn with_clock(settings: NtpSettings, mut clock: C) -> Self {
        let precision = settings.precision.unwrap_or_else(|| measure_precision(&mut clock));
        let limiter = settings.rate_limit.map(NtpLimiter::new);
        Self { clock, settings, precision, limiter, refusals: Arc::default() }
    }

    /// Counts refused requests in `refusals`.
    #[must_use]
    pub fn with_refusals(mut self, refusals: Arc<RefusalCounters>) -> Self {
        self.refusals = refusals;
        self
    }

    /// Writes the reply to a datagram from `source`, received at `receive_time`, to the start of
    /// `reply` and returns its length.
    ///
    /// # Errors
    /// The reason why there is no reply; `None` for a client above its rate, or a buffer that is too small.
    pub fn answer_at(
        &mut self,
        datagram: &[u8],
        source: IpAddr,
        receive_time: NtpTimestamp,
        reply: &mut [u8],
    ) -> Result<usize, Option<IgnoreReason>> {
        let query = NtpQuery::parse(datagram)?;
        if let Some(limiter) = &mut self.limiter
            && !limiter.admit(source, Instant::now())
        {
            return Err(None);
        }
        let standing = self.server_state();
        let reply_header = reply.first_chunk_mut::<HEADER_BYTES>().ok_or(None)?;
        *reply_header = answer(query, &standing, receive_time);
        set_transmit_time(reply_header, self.clock.now());
        Ok(HEADER_BYTES)
    }

    fn server_state(&mut self) -> ServerStanding {
        let status = self.clock.status();
        let settings = &self.settings;
        let (leap, stratum, reference) = match (status.leap, settings.local_stratum) {
            (LeapIndicator::Unsynchronised, None) => {
                (LeapIndicator::Unsynchronised, UNSYNCHRONISED, NtpTimestamp::UNKNOWN)
            }
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
        let receive_time = request.receive_time().and_then(|time| self.clock.at(time));
        let receive_time = receive_time.unwrap_or_else(|| self.clock.now());
        match self.answer_at(request.payload(), request.source().ip(), receive_time, reply) {
            Ok(length) => Action::Reply(length),
            Err(reason) => {
                self.refusals.add(match reason {
                    None => RefusalReason::RateLimited,
                    Some(IgnoreReason::Authenticated) => RefusalReason::Authenticated,
                    Some(_) => RefusalReason::NotClientRequest,
                });
                Action::Drop
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// Advances by one second per reading.
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

    fn query_reply(server: &mut NtpService<ScriptedClock>) -> Result<[u8; 48], Option<IgnoreReason>> {
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
    fn replies_have_timestamps_and_error_of_a_synchronized_clock() {
        let settings = NtpSettings { root_dispersion: Duration::from_millis(250), ..NtpSettings::default() };
        let reply = query_reply(&mut server(LeapIndicator::Insert, settings)).unwrap();
        assert_eq!(reply[..4], [0x64, 10, 0, 0xec]);
        assert_eq!((&reply[8..12], &reply[12..16]), (&[0, 0, 0x80, 0][..], &b"LOCL"[..]));
        let at = |offset: usize| u32::from_be_bytes(*reply[offset..].first_chunk().unwrap());
        // Reference, receive and transmit timestamp; the clock is read for the last one only.
        assert_eq!((at(16), at(32), at(40)), (90, 99, 101));
        assert_eq!(reply[24..32], [7, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn replies_are_unsynchronized_unless_a_local_stratum_is_set() {
        let reply = query_reply(&mut server(LeapIndicator::Unsynchronised, NtpSettings::default())).unwrap();
        assert_eq!((reply[0] >> 6, reply[1]), (3, UNSYNCHRONISED));
        assert_eq!(reply[16..24], [0; 8]);
        let settings = NtpSettings { local_stratum: Some(5), ..NtpSettings::default() };
        let reply = query_reply(&mut server(LeapIndicator::Unsynchronised, settings)).unwrap();
        assert_eq!((reply[0] >> 6, reply[1], &reply[8..12]), (0, 5, &[0; 4][..]));
    }

    #[test]
    fn requests_above_the_rate_get_no_reply() {
        let rate_limit = Some(NtpRateLimit { per_second: 0.001, burst: 1.0 });
        let mut server = server(LeapIndicator::None, NtpSettings { rate_limit, ..NtpSettings::default() });
        assert_eq!(query_reply(&mut server).unwrap()[1], 10);
        assert_eq!(query_reply(&mut server), Err(None));
    }

    #[test]
    fn a_too_small_reply_buffer_gets_no_reply() {
        let mut server = server(LeapIndicator::None, NtpSettings::default());
        let request = [[0x23].as_slice(), &[0; 47]].concat();
        assert_eq!(server.answer_at(&request, SOURCE, NtpTimestamp::UNKNOWN, &mut [0; 47]), Err(None));
    }

    #[test]
    fn refused_requests_are_counted_by_reason() -> Result<(), Box<dyn std::error::Error>> {
        let settings = NtpSettings {
            rate_limit: Some(NtpRateLimit { per_second: 0.001, burst: 1.0 }),
            ..NtpSettings::default()
        };
        let refusals = Arc::<RefusalCounters>::default();
        let counters = Arc::clone(&refusals);
        let running = linerate_engine::Server::builder()
            .bind("127.0.0.1:0".parse()?)
            .workers(1)
            .start(move |_| NtpService::new(settings).with_refusals(Arc::clone(&counters)))?;
        let client = std::net::UdpSocket::bind("127.0.0.1:0")?;
        // Twice a client's request, one with a MAC, and one of mode 6.
        for (first, length) in [(0x23, 48), (0x23, 48), (0x23, 68), (0x26, 48)] {
            let mut request = vec![0; length];
            request[0] = first;
            client.send_to(&request, running.local_addr())?;
        }
        // It answers what is queued.
        running.stop()?;
        let counts: Vec<_> = refusals.counts().iter().collect();
        let expected =
            [RefusalReason::NotClientRequest, RefusalReason::Authenticated, RefusalReason::RateLimited];
        assert_eq!(counts, expected.map(|reason| (reason, 1)));
        Ok(())
    }
}
