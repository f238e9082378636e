//! The sources of a workload's requests, and the errors of reading them.

use std::fmt;
use std::fs;
use std::str::FromStr;
use std::sync::Arc;

use super::error::SourceError;
use super::{EchoedTag, LoadWorkload, dns, ntp, radius, raw};

/// A workload as users write it: `echo`, `ntp`, `dns:FILE`, `radius:FILE` or `raw:FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadSource {
    /// The header of `load`, which an echo service returns: replies are matched and checked in full.
    Echo,
    /// Client requests of NTP version 4.
    Ntp,
    /// Queries in dnsperf's format, NAME TYPE per line.
    Dns(String),
    /// Access-Requests; the file has three lines: secret, user name, password.
    Radius(String),
    /// Payloads: hexadecimal digits, one payload per line, or a capture (pcap, pcapng).
    Raw(String),
}

/// Options of all workloads. Each workload uses its own part.
#[derive(Debug, Clone, Default)]
pub struct WorkloadOptions {
    /// UDP payload of an echo request, bytes; 100 by default.
    pub payload_bytes: Option<usize>,
    pub dns: dns::DnsQueryOptions,
    /// How the password of an Access-Request is sent.
    pub radius: radius::PasswordMethod,
    /// The tag of raw payloads; without one replies match in order.
    pub tag: Option<EchoedTag>,
}

impl WorkloadSource {
    /// The protocol: `echo`, `ntp`, `dns`, `radius` or `raw`.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Ntp => "ntp",
            Self::Dns(_) => "dns",
            Self::Radius(_) => "radius",
            Self::Raw(_) => "raw",
        }
    }

    /// Reads the file and makes the requests.
    ///
    /// # Errors
    /// [`SourceError`] with the file and line of a mistake.
    pub fn read(&self, options: &WorkloadOptions) -> Result<LoadWorkload, SourceError> {
        self.contents()?.requests(options)
    }

    /// Reads the file. Its requests may still be wrong.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn contents(&self) -> Result<WorkloadContents, SourceError> {
        let bytes = match self {
            Self::Echo | Self::Ntp => Vec::new(),
            Self::Dns(file) | Self::Radius(file) | Self::Raw(file) => read_bytes(file)?,
        };
        Ok(WorkloadContents { source: self.clone(), bytes })
    }
}

/// A workload with the bytes of its file, from which another host can make requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadContents {
    pub source: WorkloadSource,
    /// Empty without a file.
    pub bytes: Vec<u8>,
}

impl WorkloadContents {
    /// Makes the requests.
    ///
    /// # Errors
    /// [`SourceError`] with the file and line of a mistake.
    pub fn requests(&self, options: &WorkloadOptions) -> Result<LoadWorkload, SourceError> {
        const ECHO_PAYLOAD: usize = 100;
        let text = |file: &str, problem: &str| {
            std::str::from_utf8(&self.bytes).map_err(|_| SourceError::file(file, problem))
        };
        let exchange = match &self.source {
            WorkloadSource::Echo => {
                return Ok(LoadWorkload::echo(options.payload_bytes.unwrap_or(ECHO_PAYLOAD)));
            }
            WorkloadSource::Ntp => ntp::client(),
            WorkloadSource::Dns(file) => dns::from_text(text(file, "is not text")?, file, &options.dns)?,
            WorkloadSource::Radius(file) => {
                let mut lines = text(file, "is not text")?.lines();
                let (Some(secret), Some(user), Some(password)) = (lines.next(), lines.next(), lines.next())
                else {
                    let problem = "requires three lines: secret, user name, password";
                    return Err(SourceError::file(file, problem));
                };
                radius::access_requests(secret.as_bytes(), user, password.as_bytes(), options.radius)?
            }
            WorkloadSource::Raw(file) if raw::is_capture(&self.bytes) => {
                raw::from_pcap(&self.bytes, file, options.tag)?
            }
            WorkloadSource::Raw(file) => {
                let text = text(file, "neither hexadecimal digits nor a capture (pcap, pcapng)")?;
                raw::from_hex(text, file, options.tag)?
            }
        };
        Ok(LoadWorkload::Exchange(Arc::new(exchange)))
    }
}

fn read_bytes(file: &str) -> Result<Vec<u8>, SourceError> {
    fs::read(file).map_err(|error| SourceError::file(file, format!("cannot be read: {error}")))
}

impl FromStr for WorkloadSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, file) = text.split_once(':').unwrap_or((text, ""));
        match (protocol, file) {
            ("echo", "") => Ok(Self::Echo),
            ("ntp", "") => Ok(Self::Ntp),
            ("dns", file) if !file.is_empty() => Ok(Self::Dns(file.to_owned())),
            ("radius", file) if !file.is_empty() => Ok(Self::Radius(file.to_owned())),
            ("raw", file) if !file.is_empty() => Ok(Self::Raw(file.to_owned())),
            _ => Err("give dns:FILE, ntp, radius:FILE, raw:FILE or echo".to_owned()),
        }
    }
}

impl fmt::Display for WorkloadSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.protocol())?;
        match self {
            Self::Echo | Self::Ntp => Ok(()),
            Self::Dns(file) | Self::Radius(file) | Self::Raw(file) => write!(formatter, ":{file}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workload_sources_round_trip_and_other_text_is_refused() {
        for text in ["echo", "ntp", "dns:queries.txt", "radius:a:b", "raw:/tmp/x.pcap"] {
            assert_eq!(text.parse::<WorkloadSource>().expect(text).to_string(), text);
        }
        for text in ["", "dns", "dns:", "echo:x", "ntp:4", "dnsx:q", "raw"] {
            assert!(text.parse::<WorkloadSource>().is_err(), "{text}");
        }
    }

    #[test]
    fn errors_name_unusable_files_and_crlf_lines_are_accepted() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).expect("written");
            path.to_string_lossy().into_owned()
        };
        let error = |source: WorkloadSource| {
            source.read(&WorkloadOptions::default()).expect_err("a mistake").to_string()
        };
        let short = error(WorkloadSource::Radius(file("short", b"secret\nuser\n")));
        assert!(short.ends_with("short: requires three lines: secret, user name, password"), "{short}");
        assert!(error(WorkloadSource::Dns(file("bytes", b"\xff"))).ends_with("bytes: is not text"));
        assert!(
            error(WorkloadSource::Raw("/nonexistent".into())).starts_with("/nonexistent: cannot be read")
        );
        // An editor may end the lines as on Windows.
        let radius = WorkloadSource::Radius(file("radius", b"s3\r\nalice\r\npw\r\n"));
        assert_eq!(radius.read(&WorkloadOptions::default()).expect("requests").name(), "radius");
    }
}
