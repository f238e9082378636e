//! What is exchanged, as the command line says.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use linerate_load::LoadWorkload;
use linerate_load::workload::{EchoedTag, PreparedExchange, dns, ntp, radius, raw};

use crate::output;

/// What is exchanged with the service.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkloadArguments {
    /// Protocol of the requests
    #[arg(long, value_enum, default_value_t = WorkloadKind::Echo)]
    workload: WorkloadKind,
    /// echo: UDP payload of a request, bytes, from 0; 18 make a frame of 64 [default: 100]
    #[arg(long, value_name = "BYTES")]
    payload: Option<usize>,
    /// dns: file of queries in dnsperf's format, NAME TYPE per line
    #[arg(long, value_name = "FILE")]
    queries: Option<String>,
    /// dns: advertise EDNS with this response size, bytes [1232 if none is given]
    #[arg(long, value_name = "BYTES", num_args = 0..=1, require_equals = true, default_missing_value = "1232")]
    edns: Option<u16>,
    /// dns: ask for DNSSEC records
    #[arg(long)]
    dnssec: bool,
    /// dns: do not ask for recursion
    #[arg(long)]
    no_recursion: bool,
    /// radius: the file that holds the secret shared with the server
    #[arg(long, value_name = "FILE", conflicts_with = "secret")]
    secret_file: Option<String>,
    /// radius: the secret itself; every user of this host can see it while the command runs
    #[arg(long, value_name = "SECRET")]
    secret: Option<String>,
    /// radius: user name
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// radius: the file that holds the user's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// radius: CHAP instead of PAP
    #[arg(long)]
    chap: bool,
    /// raw: file of payloads, hexadecimal, one per line, or a capture (pcap, pcapng)
    #[arg(long, value_name = "FILE")]
    template: Option<String>,
    /// raw: offset and length of the tag that the service returns, such as 0:2; without it replies
    /// match in order
    #[arg(long, value_name = "REQUEST_OFFSET[:REPLY_OFFSET]:BYTES")]
    tag: Option<EchoedTag>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorkloadKind {
    /// Our own header, which an echo service returns: replies are matched and checked in full
    Echo,
    /// Queries of a file; responses are counted by code
    Dns,
    /// Client requests
    Ntp,
    /// Access-Requests; the authenticators of replies are checked
    Radius,
    /// Payloads as they are
    Raw,
}

const DEFAULT_PAYLOAD: usize = 100;
const NTP_VERSION: u8 = 4;

impl WorkloadArguments {
    /// Makes what is exchanged, reading the files it takes.
    pub(crate) fn workload(&self) -> Result<LoadWorkload> {
        self.belong_together()?;
        let exchange = match self.workload {
            WorkloadKind::Echo => {
                return Ok(LoadWorkload::echo(self.payload.unwrap_or(DEFAULT_PAYLOAD)));
            }
            WorkloadKind::Dns => self.dns()?,
            WorkloadKind::Ntp => ntp::client(NTP_VERSION)?,
            WorkloadKind::Radius => self.radius()?,
            WorkloadKind::Raw => self.raw()?,
        };
        Ok(LoadWorkload::Exchange(Arc::new(exchange)))
    }

    /// An option that says nothing to the workload chosen is a mistake.
    fn belong_together(&self) -> Result<()> {
        let given = [
            ("payload", WorkloadKind::Echo, self.payload.is_some()),
            ("queries", WorkloadKind::Dns, self.queries.is_some()),
            ("edns", WorkloadKind::Dns, self.edns.is_some()),
            ("dnssec", WorkloadKind::Dns, self.dnssec),
            ("no-recursion", WorkloadKind::Dns, self.no_recursion),
            ("secret-file", WorkloadKind::Radius, self.secret_file.is_some()),
            ("secret", WorkloadKind::Radius, self.secret.is_some()),
            ("user", WorkloadKind::Radius, self.user.is_some()),
            ("password-file", WorkloadKind::Radius, self.password_file.is_some()),
            ("chap", WorkloadKind::Radius, self.chap),
            ("template", WorkloadKind::Raw, self.template.is_some()),
            ("tag", WorkloadKind::Raw, self.tag.is_some()),
        ];
        for (option, kind, given) in given {
            ensure!(
                !given || kind == self.workload,
                "--{option} belongs to --workload {}, not {}",
                name(kind),
                name(self.workload)
            );
        }
        Ok(())
    }

    fn dns(&self) -> Result<PreparedExchange> {
        let file = needed(self.queries.as_deref(), "dns", "--queries FILE, with NAME TYPE a line")?;
        let options = dns::DnsQueryOptions {
            edns_bytes: self.edns,
            dnssec_ok: self.dnssec,
            recursion_desired: !self.no_recursion,
        };
        Ok(dns::from_text(&text(file)?, file, &options)?)
    }

    fn radius(&self) -> Result<PreparedExchange> {
        let secret = match (&self.secret, &self.secret_file) {
            (Some(secret), _) => secret.clone().into_bytes(),
            (None, file) => first_line(needed(file.as_deref(), "radius", "--secret-file FILE")?)?,
        };
        let user = needed(self.user.as_deref(), "radius", "--user NAME")?;
        let password = first_line(needed(self.password_file.as_deref(), "radius", "--password-file FILE")?)?;
        let authentication =
            if self.chap { radius::PasswordMethod::Chap } else { radius::PasswordMethod::Pap };
        let options = radius::RadiusOptions { authentication, ..radius::RadiusOptions::default() };
        Ok(radius::access_requests(&secret, user, &password, &options)?)
    }

    fn raw(&self) -> Result<PreparedExchange> {
        let file = needed(self.template.as_deref(), "raw", "--template FILE, hexadecimal or a capture")?;
        let bytes = fs::read(file).with_context(|| format!("cannot read {file}"))?;
        if raw::is_capture(&bytes) {
            return Ok(raw::from_pcap(&bytes, file, self.tag)?);
        }
        let text = String::from_utf8(bytes)
            .ok()
            .with_context(|| format!("{file} is neither hexadecimal digits nor a capture (pcap, pcapng)"))?;
        Ok(raw::from_hex(&text, file, self.tag)?)
    }
}

fn name(kind: WorkloadKind) -> String {
    kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn needed<'a>(option: Option<&'a str>, workload: &str, what: &str) -> Result<&'a str> {
    option.with_context(|| format!("--workload {workload} needs {what}"))
}

fn text(file: &str) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {file}"))
}

/// The first line of a file, without its end: an editor leaves one behind a secret.
fn first_line(file: &str) -> Result<Vec<u8>> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {file}"))?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(line.strip_suffix(b"\r").unwrap_or(line).to_vec())
}

/// The argument list for a document: all but a secret.
pub(crate) fn argv() -> Vec<String> {
    without_secret(output::argv())
}

fn without_secret(mut argv: Vec<String>) -> Vec<String> {
    const HIDDEN: &str = "(not recorded)";
    for index in 0..argv.len() {
        if argv[index] == "--secret" && index + 1 < argv.len() {
            HIDDEN.clone_into(&mut argv[index + 1]);
        } else if argv[index].starts_with("--secret=") {
            argv[index] = format!("--secret={HIDDEN}");
        }
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_stays_out_of_documents() {
        let argv = |list: &[&str]| without_secret(list.iter().map(ToString::to_string).collect());
        assert_eq!(argv(&["load", "--secret", "s3"]), ["load", "--secret", "(not recorded)"]);
        assert_eq!(argv(&["--secret=s3", "--secret"]), ["--secret=(not recorded)", "--secret"]);
        assert_eq!(argv(&["--secret-file", "x"]), ["--secret-file", "x"]);
    }

    #[test]
    fn a_secret_ends_where_its_line_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("secret");
        for (held, secret) in [("s3\n", "s3"), ("s3\r\nmore", "s3"), ("s 3", "s 3"), ("", "")] {
            fs::write(&file, held).expect("written");
            assert_eq!(first_line(file.to_str().expect("a name")).expect("read"), secret.as_bytes());
        }
    }
}
