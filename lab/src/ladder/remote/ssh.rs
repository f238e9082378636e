//! Hosts reached over ssh: their names, the command lines, and why a generator on a host cannot
//! start.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::process::{Command, Stdio};
use std::str::FromStr;

use linerate_load::generator::GeneratorBackend;
use linerate_load::workload::WorkloadContents;
use linerate_networks::Net;

use super::protocol::SCHEMA;

/// `ssh://[USER@]HOST[:PORT]`. Defaults come from the user's ssh configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    user: Option<String>,
    host: String,
    port: Option<NonZeroU16>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a host such as ssh://generator1, ssh://root@192.168.0.2:22 or ssh://[fd00::2]: {why}"
)]
pub struct SshHostError {
    text: String,
    why: &'static str,
}

impl SshHost {
    /// A command that copies this linerate into the home directory on the host.
    fn copy_command(&self) -> String {
        let port = self.port.map_or_else(String::new, |port| format!("-P {port} "));
        format!("scp {port}$(command -v linerate) {}:", self.destination())
    }

    /// `[USER@]HOST`, with an IPv6 address in brackets.
    fn destination(&self) -> String {
        let user = self.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        if self.host.contains(':') {
            format!("{user}[{}]", self.host)
        } else {
            format!("{user}{}", self.host)
        }
    }
}

impl FromStr for SshHost {
    type Err = SshHostError;

    fn from_str(text: &str) -> Result<Self, SshHostError> {
        parse(text.trim()).map_err(|why| SshHostError { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<SshHost, &'static str> {
    let target = text.strip_prefix("ssh://").ok_or("it does not begin with ssh://")?;
    let target = target.strip_suffix('/').unwrap_or(target);
    let (user, address) = match target.rsplit_once('@') {
        Some((user, address)) => (Some(check_name(user, "the user")?), address),
        None => (None, target),
    };
    let (host, port) = if let Some(ipv6_part) = address.strip_prefix('[') {
        let (host, remainder) = ipv6_part.split_once(']').ok_or("a '[' without ']'")?;
        match remainder {
            "" => (host, None),
            _ => (host, Some(remainder.strip_prefix(':').ok_or("after ']' comes a port or nothing")?)),
        }
    } else {
        match address.split_once(':') {
            Some((_, remainder)) if remainder.contains(':') => {
                return Err("an IPv6 address stands in brackets");
            }
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        }
    };
    let port = port
        .map(str::parse::<NonZeroU16>)
        .transpose()
        .map_err(|_| "the port is no number from 1 to 65535")?;
    Ok(SshHost { user, host: check_name(host, "the host")?, port })
}

/// ssh treats a word that begins with a dash as an option, and its configuration can pass user and
/// host to a shell (`ProxyCommand`, `Match exec`).
fn check_name(text: &str, part: &'static str) -> Result<String, &'static str> {
    let is_plain = |letter: char| letter.is_alphanumeric() || "._-:%+~".contains(letter);
    match part {
        _ if text.starts_with('-') => Err("a name cannot begin with '-'"),
        "the user" if text.is_empty() => Err("the user before '@' is missing"),
        _ if text.is_empty() => Err("the host is missing"),
        _ if !text.chars().all(is_plain) => Err("a name holds letters, digits and . _ - : % + ~ only"),
        _ => Ok(text.to_owned()),
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ssh://{}", self.destination())?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// A connection that is shared with other uses (`ControlMaster`) would not end with this process, and would have its own
/// timeouts. An XDP generator can take its link down for seconds when it starts, so ssh waits for 14 s.
/// Options before these on the command line have precedence.
const SSH_OPTIONS: [&str; 11] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=2",
    "ServerAliveCountMax=6",
    "ControlMaster=no",
    "ControlPath=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "EscapeChar=none",
];

/// The generator on each host.
#[derive(Debug, Clone, Default)]
pub struct RemoteLoad {
    /// Targets as seen from the other hosts.
    pub targets: Vec<SocketAddr>,
    /// UDP payload of an echo request; `None` with another workload.
    pub payload_bytes: Option<usize>,
    /// Requests other than echo, sent to each host when its generator starts.
    pub workload: Option<WorkloadContents>,
    /// Per host; `None`: the default of `linerate load`.
    pub threads: Option<usize>,
    /// Source ports per host; `None`: the default of `linerate load`.
    pub flows: Option<usize>,
    pub backend: GeneratorBackend,
    pub no_fragment: bool,
    /// Networks that the user allowed as destinations in addition to loopback, lab and private networks.
    pub allow: Vec<Net>,
    /// Further arguments of `linerate load`, such as `--cpus 2-5`.
    pub more: Vec<String>,
}

impl RemoteLoad {
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["load".to_owned(), "--on-demand".to_owned()];
        let mut add = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                arguments.extend([option.to_owned(), value]);
            }
        };
        add("--payload", self.payload_bytes.map(|bytes| bytes.to_string()));
        add("--threads", self.threads.map(|threads| threads.to_string()));
        add("--flows", self.flows.map(|flows| flows.to_string()));
        add(
            "--backend",
            match self.backend {
                GeneratorBackend::Auto => None,
                GeneratorBackend::Xdp => Some("xdp".to_owned()),
                GeneratorBackend::Socket => Some("socket".to_owned()),
            },
        );
        for net in &self.allow {
            add("--allow-destination", Some(net.to_string()));
        }
        if self.workload.is_some() {
            arguments.push("--workload-from-stdin".to_owned());
        }
        if self.no_fragment {
            arguments.push("--no-fragment".to_owned());
        }
        arguments.extend(self.more.iter().cloned());
        arguments.push("--".to_owned());
        arguments.extend(self.targets.iter().map(ToString::to_string));
        arguments
    }
}

/// The shell command that runs a generator on a host.
pub(super) fn load_line(program: &str, load: &RemoteLoad) -> Result<String, RemoteError> {
    let arguments = load.arguments();
    shell_line(std::iter::once(program).chain(arguments.iter().map(String::as_str)))
}

pub(super) fn version_line(program: &str) -> Result<String, RemoteError> {
    shell_line([program, "--version"].into_iter())
}

/// ssh joins its arguments with spaces and the remote shell splits them again, so each is quoted.
fn shell_line<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Result<String, RemoteError> {
    shlex::try_join(words.clone()).map_err(|_| {
        let invalid_words = words.filter(|word| word.contains('\0')).collect::<Vec<_>>().join(" ");
        RemoteError::Word(invalid_words)
    })
}

/// `ssh` to `host`, whose shell runs `line`.
pub(super) fn ssh_command(ssh: &[String], host: &SshHost, line: &str) -> Command {
    let (program, ssh_arguments) = ssh
        .split_first()
        .map_or(("ssh", &[][..]), |(program, ssh_arguments)| (program.as_str(), ssh_arguments));
    let mut command = Command::new(program);
    command.args(ssh_arguments).arg("-T");
    for option in SSH_OPTIONS {
        command.args(["-o", option]);
    }
    if let Some(port) = host.port {
        command.args(["-p", &port.to_string()]);
    }
    if let Some(user) = &host.user {
        command.args(["-l", user]);
    }
    command.args(["--", &host.host, line]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // An interrupt at the terminal goes to this process only, so that slots end with a result before connections end.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

/// Why generators cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    #[error("no host to generate load: name at least one as ssh://HOST")]
    NoHosts,
    #[error("{0} is named twice: name it once; more threads there have the same effect")]
    Twice(SshHost),
    #[error("an argument for the generator on another host has a NUL byte: {0:?}")]
    Word(String),
    #[error("cannot run '{program}' here: {source}; install OpenSSH's client, or name it")]
    NoSsh { program: String, source: io::Error },
    #[error("{host}: ssh: {words}")]
    Ssh {
        host: SshHost,
        /// ssh's last message.
        words: String,
    },
    #[error(
        "{host}: no program '{program}' there: copy it with {copying}, and name its path (./linerate)",
        copying = .host.copy_command()
    )]
    NoProgram { host: SshHost, program: String },
    /// A linerate with another protocol.
    #[error(
        "{host}: '{program}' there is {its}, this is linerate {ours} ({SCHEMA}): copy this one there with {copying}",
        ours = env!("CARGO_PKG_VERSION"), copying = .host.copy_command()
    )]
    Version { host: SshHost, program: String, its: String },
    /// The message of a generator that does not start.
    #[error("{host}: {words}")]
    Refused { host: SshHost, words: String },
    #[error("{host}: no answer within {seconds} s: is it up, and does 'ssh {host} true' return?")]
    Silent { host: SshHost, seconds: u64 },
    #[error("interrupted before the generators were ready")]
    Cancelled,
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<RemoteError>),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parsed_ssh_hosts_display_the_same_text() {
        for text in [
            "ssh://a",
            "ssh://root@a",
            "ssh://a.example:2222",
            "ssh://u.x@[fd00::2]:22",
            "ssh://[fe80::1%eth0]",
        ] {
            let host: SshHost = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(host.to_string(), text);
        }
        let host: SshHost = "ssh://root@[fd00::2]:2222/".parse().expect("a host");
        assert_eq!((host.user.as_deref(), host.host.as_str()), (Some("root"), "fd00::2"));
        assert_eq!(host.port, NonZeroU16::new(2222));
    }

    #[test]
    fn the_scp_command_has_the_user_and_port_of_the_host() {
        let scp_command = |text: &str| text.parse::<SshHost>().expect("a host").copy_command();
        assert_eq!(scp_command("ssh://a"), "scp $(command -v linerate) a:");
        assert_eq!(scp_command("ssh://u@[fd00::2]:22"), "scp -P 22 $(command -v linerate) u@[fd00::2]:");
    }

    #[test]
    fn invalid_and_unsafe_ssh_hosts_are_refused() {
        for text in [
            "",
            "a",
            "http://a",
            "ssh://",
            "ssh://-oProxyCommand=x",
            "ssh://-l@a",
            "ssh://@a",
            "ssh://a:0",
            "ssh://a:70000",
            "ssh://a:x",
            "ssh://fd00::1",
            "ssh://[fd00::1",
            "ssh://[fd00::1]22",
            "ssh://a b",
            "ssh://a;reboot",
            "ssh://$(x)@a",
            "ssh://a/b",
            "ssh://a'",
        ] {
            let error = text.parse::<SshHost>().expect_err(text).to_string();
            assert!(error.contains("is not a host such as ssh://"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn parsed_arbitrary_hosts_round_trip_without_leading_dash(text in "(ssh://)?[a-z@:.\\[\\]0-9/-]{0,24}|\\PC*") {
            if let Ok(host) = text.parse::<SshHost>() {
                prop_assert_eq!(&host.to_string().parse::<SshHost>().expect("the displayed host"), &host);
                prop_assert!(!host.host.starts_with('-'));
            }
        }
    }

    #[test]
    fn the_remote_load_command_has_every_option() {
        let load = RemoteLoad {
            targets: vec!["10.0.0.1:7".parse().expect("v4"), "[fd00::1]:7".parse().expect("v6")],
            payload_bytes: Some(64),
            workload: None,
            threads: Some(2),
            flows: Some(32),
            backend: GeneratorBackend::Socket,
            no_fragment: true,
            allow: vec!["192.0.2.0/24".parse().expect("a network")],
            more: vec!["--cpus".to_owned(), "0 1".to_owned()],
        };
        assert_eq!(
            load_line("./a b", &load).expect("a line"),
            "'./a b' load --on-demand --payload 64 --threads 2 --flows 32 --backend socket \
             --allow-destination 192.0.2.0/24 --no-fragment --cpus '0 1' -- 10.0.0.1:7 '[fd00::1]:7'"
        );
    }

    proptest! {
        #[test]
        fn shell_lines_pass_arbitrary_arguments_unchanged(words in proptest::collection::vec("[^\0]{0,12}", 1..4)) {
            let line = shell_line(["printf", "%s\\0"].into_iter().chain(words.iter().map(String::as_str)));
            let output = Command::new("sh").args(["-c", &line.expect("no NUL")]).output().expect("a shell");
            let expected: String = words.iter().map(|word| format!("{word}\0")).collect();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        }
    }
}
