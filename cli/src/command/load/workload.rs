//! The workload of the command line.

use std::io;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_lab::ladder::remote;
use linerate_load::LoadWorkload;
use linerate_load::workload::{EchoedTag, WorkloadOptions, WorkloadSource, dns, radius};

/// The requests and their options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkloadArguments {
    /// Requests: echo, ntp, dns:FILE, radius:FILE or raw:FILE
    ///
    /// echo: header of linerate, which an echo service returns. dns: queries in dnsperf's format,
    /// NAME TYPE per line. radius: Access-Requests; the file has three lines: secret, user name and
    /// password. raw: payloads, hexadecimal, one per line, or a capture (pcap, pcapng).
    #[arg(long, value_name = "PROTOCOL[:FILE]", default_value_t = WorkloadSource::Echo)]
    workload: WorkloadSource,
    /// echo: UDP payload of a request, bytes, from 0; 18 make a frame of 64 [default: 100]
    #[arg(long, value_name = "BYTES")]
    payload: Option<usize>,
    /// dns: advertise EDNS with this response size, bytes [1232 if none is given]
    #[arg(long, value_name = "BYTES", num_args = 0..=1, require_equals = true, default_missing_value = "1232")]
    edns: Option<u16>,
    /// dns: ask for DNSSEC records
    #[arg(long)]
    dnssec: bool,
    /// dns: do not ask for recursion
    #[arg(long)]
    no_recursion: bool,
    /// radius: CHAP instead of PAP
    #[arg(long)]
    chap: bool,
    /// raw: offset and length of the tag that the service returns, such as 0:2; without it replies
    /// match in order
    #[arg(long, value_name = "REQUEST_OFFSET[:REPLY_OFFSET]:BYTES")]
    tag: Option<EchoedTag>,
}

// Orders follow the workload on standard input, and a buffer would swallow some of them.
struct UnbufferedInput;

impl io::Read for UnbufferedInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut *buffer))?)
    }
}

impl WorkloadArguments {
    /// Builds the workload, and reads the file that it names.
    pub(crate) fn workload(&self) -> Result<LoadWorkload> {
        self.check_protocol()?;
        Ok(self.workload.read(&self.options())?)
    }

    fn options(&self) -> WorkloadOptions {
        WorkloadOptions {
            payload_bytes: self.payload,
            dns: dns::DnsQueryOptions {
                edns_bytes: self.edns,
                dnssec_ok: self.dnssec,
                recursion_desired: !self.no_recursion,
            },
            radius: if self.chap { radius::PasswordMethod::Chap } else { radius::PasswordMethod::Pap },
            tag: self.tag,
        }
    }

    /// The requests that the local side of a ladder sends before its orders.
    pub(super) fn workload_from_stdin(&self) -> Result<LoadWorkload> {
        let contents =
            remote::receive_workload(&mut UnbufferedInput).context("no workload on standard input")?;
        Ok(contents.requests(&self.options())?)
    }

    /// Fails if an option belongs to another protocol than the chosen one.
    fn check_protocol(&self) -> Result<()> {
        let protocol_options = [
            ("payload", "echo", self.payload.is_some()),
            ("edns", "dns", self.edns.is_some()),
            ("dnssec", "dns", self.dnssec),
            ("no-recursion", "dns", self.no_recursion),
            ("chap", "radius", self.chap),
            ("tag", "raw", self.tag.is_some()),
        ];
        let selected = self.workload.protocol();
        for (option, protocol, is_given) in protocol_options {
            ensure!(
                !is_given || protocol == selected,
                "--{option} belongs to --workload {protocol}, not {selected}"
            );
        }
        Ok(())
    }
}
