//! Why load cannot be generated on other hosts.

use std::io;

use super::host::SshHost;
use super::line::SCHEMA;

/// Why generators cannot be started. One line each: what, where, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// No host was named.
    #[error("no host to generate load: name at least one as ssh://HOST")]
    NoHosts,
    /// A host was named twice.
    #[error("{0} is named twice: it would run two generators, for more of them there ask for more threads")]
    Twice(SshHost),
    /// A word that cannot be handed to a shell.
    #[error("a word for the generator on another host holds a NUL byte: {0:?}")]
    Word(String),
    /// ssh itself cannot be run here.
    #[error("cannot run '{program}' here: {source}; install OpenSSH's client, or name it")]
    NoSsh {
        /// The program that was to be run.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// No connection, in ssh's words.
    #[error("{host}: ssh: {words}")]
    Ssh {
        host: SshHost,
        /// The last thing ssh said.
        words: String,
    },
    /// linerate is not there.
    #[error(
        "{host}: no program '{program}' there: copy it, {copying}, and tell where it is (./linerate)",
        copying = .host.copying()
    )]
    NoProgram {
        host: SshHost,
        /// What was looked for.
        program: String,
    },
    /// Another linerate, which does not speak this one's language.
    #[error(
        "{host}: '{program}' there is {its}, this is linerate {ours} ({SCHEMA}): copy this one there, {copying}",
        ours = env!("CARGO_PKG_VERSION"), copying = .host.copying()
    )]
    Version {
        host: SshHost,
        program: String,
        /// What it says to be.
        its: String,
    },
    /// The generator there does not start, in its own words.
    #[error("{host}: {words}")]
    Refused { host: SshHost, words: String },
    /// Nothing came back in time.
    #[error("{host}: no answer within {seconds} s: is it up, and does 'ssh {host} true' return?")]
    Silent {
        host: SshHost,
        /// How long was waited.
        seconds: u64,
    },
    /// Several hosts, each with its reason.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<RemoteError>),
}
