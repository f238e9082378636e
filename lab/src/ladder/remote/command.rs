//! The command lines: ssh's here, and linerate's on the other host.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use linerate_load::generator::GeneratorBackend;
use linerate_networks::Net;

use super::error::RemoteError;
use super::host::SshHost;

/// How a connection is to behave. One that is shared with other uses (`ControlMaster`) would not end when our process does,
/// and would have its own idea of when a link is dead. What stands in front on the command line has precedence.
const SSH_OPTIONS: [&str; 11] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=2",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
    "ControlPath=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    "EscapeChar=none",
];

/// What a generator on another host is to be; each host has one.
#[derive(Debug, Clone)]
pub struct RemoteLoad {
    /// Where requests go, as seen from the other hosts.
    pub targets: Vec<SocketAddr>,
    /// UDP payload of a request, bytes, for an echo; none where `more` says what is exchanged.
    pub payload_bytes: Option<usize>,
    /// Threads a host; as `linerate load` has it if none.
    pub threads: Option<usize>,
    /// Source ports a host; as `linerate load` has it if none.
    pub flows: Option<usize>,
    /// The way into the other hosts' kernels.
    pub backend: GeneratorBackend,
    /// Whether to refuse what would be fragmented.
    pub no_fragment: bool,
    /// Networks that may be loaded although they are neither loopback, lab nor private, as the user named them.
    pub allow: Vec<Net>,
    /// Further words of `linerate load`, such as `--cpus 2-5`.
    pub more: Vec<String>,
}

impl Default for RemoteLoad {
    fn default() -> Self {
        RemoteLoad {
            targets: Vec::new(),
            payload_bytes: None,
            threads: None,
            flows: None,
            backend: GeneratorBackend::Auto,
            no_fragment: false,
            allow: Vec::new(),
            more: Vec::new(),
        }
    }
}

impl RemoteLoad {
    /// The words after the program's name.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["load".to_owned(), "--on-demand".to_owned()];
        let mut add = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([option.to_owned(), value]);
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
        if self.no_fragment {
            words.push("--no-fragment".to_owned());
        }
        words.extend(self.more.iter().cloned());
        words.push("--".to_owned());
        words.extend(self.targets.iter().map(ToString::to_string));
        words
    }
}

/// The line for the other host's shell that runs a generator there.
pub(super) fn load_line(program: &str, load: &RemoteLoad) -> Result<String, RemoteError> {
    let words = load.words();
    shell_line(std::iter::once(program).chain(words.iter().map(String::as_str)))
}

/// The line that asks for the version.
pub(super) fn version_line(program: &str) -> Result<String, RemoteError> {
    shell_line([program, "--version"].into_iter())
}

/// ssh joins its words with spaces and has the other host's shell take them apart: each is quoted for that.
fn shell_line<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Result<String, RemoteError> {
    shlex::try_join(words.clone()).map_err(|_| {
        let odd = words.filter(|word| word.contains('\0')).collect::<Vec<_>>().join(" ");
        RemoteError::Word(odd)
    })
}

/// ssh to `host`, to have its shell run `line`; `ssh` is the program with words of its own.
pub(super) fn ssh(ssh: &[String], host: &SshHost, line: &str) -> Command {
    let (program, own) = ssh.split_first().map_or(("ssh", &[][..]), |(program, own)| (program.as_str(), own));
    let mut command = Command::new(program);
    command.args(own).arg("-T");
    for option in SSH_OPTIONS {
        command.args(["-o", option]);
    }
    if let Some(port) = host.port() {
        command.args(["-p", &port.to_string()]);
    }
    if let Some(user) = host.user() {
        command.args(["-l", user]);
    }
    command.args(["--", host.host(), line]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // An interrupt at the terminal is for us: slots end with an account before connections do.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_generator_is_asked_for_with_what_was_set() {
        let load = RemoteLoad {
            targets: vec!["10.0.0.1:7".parse().expect("v4"), "[fd00::1]:7".parse().expect("v6")],
            payload_bytes: Some(64),
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

    #[test]
    fn a_host_is_no_option_and_what_the_user_says_comes_first() {
        let host = "ssh://root@[fd00::2]:2222".parse().expect("a host");
        let words = ["ssh", "-i", "key"].map(str::to_owned);
        let command = ssh(&words, &host, "x");
        let args: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(args[..3], ["-i", "key", "-T"]);
        assert_eq!(args[args.len() - 7..], ["-p", "2222", "-l", "root", "--", "fd00::2", "x"]);
    }

    proptest! {
        /// The shell itself takes the line apart, into the very words.
        #[test]
        fn any_words_reach_the_far_program_as_they_are(words in proptest::collection::vec("[^\0]{0,12}", 1..4)) {
            let line = shell_line(["printf", "%s\\0"].into_iter().chain(words.iter().map(String::as_str)));
            let output = Command::new("sh").args(["-c", &line.expect("no NUL")]).output().expect("a shell");
            let expected: String = words.iter().map(|word| format!("{word}\0")).collect();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        }
    }
}
