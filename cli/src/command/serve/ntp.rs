//! `linerate serve ntp`: the time of this host's clock.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_services::ntp::{NtpRateLimit, NtpService, NtpSettings, SystemClock, measure_precision};

use super::arguments::{AdmissionArgs, ServerArguments};

#[derive(Debug, Args)]
pub(crate) struct NtpServeArgs {
    #[command(flatten)]
    server: ServerArguments,
    /// Stratum while the kernel reports a synchronized clock, 1 to 15
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=15))]
    stratum: u8,
    /// Stratum while the clock is not synchronized, 1 to 15 [default: replies are marked unsynchronized, and clients
    /// ignore them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=15))]
    local_stratum: Option<u8>,
    /// Reference ID: up to four letters, or an IPv4 address
    #[arg(long, value_name = "ID", default_value = "LOCL", value_parser = reference_id)]
    refid: [u8; 4],
    /// Round trip to the reference clock, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    root_delay: f64,
    /// Largest error of the reference clock, milliseconds; the kernel's estimate for the local clock is added
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    root_dispersion: f64,
    /// Replies per second to one address (IPv6: a /64), per worker; further requests get none
    #[arg(long, value_name = "N")]
    rate_limit: Option<f64>,
    /// Replies in a row to one address before its rate counts
    #[arg(long, value_name = "N", default_value_t = 16.0, requires = "rate_limit")]
    rate_burst: f64,
}

impl NtpServeArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let settings = NtpSettings {
            stratum: self.stratum,
            local_stratum: self.local_stratum,
            reference_id: self.refid,
            root_delay: milliseconds("--root-delay", self.root_delay)?,
            root_dispersion: milliseconds("--root-dispersion", self.root_dispersion)?,
            precision: Some(measure_precision(&mut SystemClock::default())),
            rate_limit: self.rate_limit()?,
        };
        // Answering servers' ports cannot loop: only mode 3 is answered, and only with mode 4.
        let admission = AdmissionArgs { servers: true, receive_times: true, ..AdmissionArgs::default() };
        let refusals = Arc::clone(&admission.refusals);
        let service = move |_| NtpService::new(settings).with_refusals(Arc::clone(&refusals));
        self.server.serve("ntp", &admission, |_| Ok(()), service)
    }

    fn rate_limit(&self) -> Result<Option<NtpRateLimit>> {
        let Some(per_second) = self.rate_limit else {
            return Ok(None);
        };
        ensure!(per_second.is_finite() && per_second > 0.0, "--rate-limit {per_second}: must be above 0");
        let burst = self.rate_burst;
        ensure!(burst.is_finite() && burst >= 1.0, "--rate-burst {burst}: must be 1 or more");
        Ok(Some(NtpRateLimit { per_second, burst }))
    }
}

fn milliseconds(argument: &'static str, value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value / 1e3).with_context(|| format!("{argument} {value}"))
}

// An address for strata above 1, else letters.
fn reference_id(text: &str) -> Result<[u8; 4], String> {
    if let Ok(address) = text.parse::<std::net::Ipv4Addr>() {
        return Ok(address.octets());
    }
    if text.is_empty() || text.len() > 4 || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("neither an IPv4 address nor one to four ASCII letters".to_owned());
    }
    let mut id = [0; 4];
    id[..text.len()].copy_from_slice(text.as_bytes());
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::reference_id;

    #[test]
    fn reference_ids_parse_as_letters_or_an_ipv4_address() {
        assert_eq!(reference_id("GPS"), Ok(*b"GPS\0"));
        assert_eq!(reference_id("192.0.2.1"), Ok([192, 0, 2, 1]));
        assert!(reference_id("").is_err() && reference_id("LOCAL").is_err() && reference_id("ü").is_err());
    }
}
