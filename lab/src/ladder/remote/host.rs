//! A host that is reached over ssh, as it is named on a command line.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// `ssh://[USER@]HOST[:PORT]`; what is left out is as the user's ssh configuration has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    user: Option<String>,
    host: String,
    port: Option<NonZeroU16>,
}

/// Why a text names no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no host such as ssh://generator1, ssh://root@192.168.0.2:22 or ssh://[fd00::2]: {why}")]
pub struct SshHostError {
    text: String,
    why: &'static str,
}

impl SshHost {
    /// The name or address, as ssh is told.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The user, if one was named.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The words of a command that copies this linerate there, into the home directory.
    pub(super) fn copying(&self) -> String {
        let user = self.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.port {
            None => format!("scp $(command -v linerate) {user}{host}:"),
            Some(port) => format!("scp -P {port} $(command -v linerate) {user}{host}:"),
        }
    }

    /// The port, if one was named.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port.map(NonZeroU16::get)
    }
}

impl FromStr for SshHost {
    type Err = SshHostError;

    fn from_str(text: &str) -> Result<Self, SshHostError> {
        parse(text.trim()).map_err(|why| SshHostError { text: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<SshHost, &'static str> {
    let rest = text.strip_prefix("ssh://").ok_or("it does not begin with ssh://")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (user, address) = match rest.rsplit_once('@') {
        Some((user, address)) => (Some(word(user, "the user")?), address),
        None => (None, rest),
    };
    let (host, port) = if let Some(bracketed) = address.strip_prefix('[') {
        let (host, after) = bracketed.split_once(']').ok_or("a '[' without ']'")?;
        match after {
            "" => (host, None),
            _ => (host, Some(after.strip_prefix(':').ok_or("after ']' comes a port or nothing")?)),
        }
    } else {
        match address.split_once(':') {
            Some((_, after)) if after.contains(':') => {
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
    Ok(SshHost { user, host: word(host, "the host")?, port })
}

/// ssh would take a word with a dash in front for an option, and its configuration may hand user and host to a shell
/// (`ProxyCommand`, `Match exec`).
fn word(text: &str, what: &'static str) -> Result<String, &'static str> {
    let plain = |letter: char| letter.is_alphanumeric() || "._-:%+~".contains(letter);
    match what {
        _ if text.starts_with('-') => Err("a name cannot begin with '-'"),
        "the user" if text.is_empty() => Err("the user before '@' is missing"),
        _ if text.is_empty() => Err("the host is missing"),
        _ if !text.chars().all(plain) => Err("a name holds letters, digits and . _ - : % + ~ only"),
        _ => Ok(text.to_owned()),
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ssh://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_are_read_and_shown_alike() {
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
        assert_eq!((host.user(), host.host(), host.port()), (Some("root"), "fd00::2", Some(2222)));
    }

    #[test]
    fn a_host_is_copied_to_as_it_is_reached() {
        let copying = |text: &str| text.parse::<SshHost>().expect("a host").copying();
        assert_eq!(copying("ssh://a"), "scp $(command -v linerate) a:");
        assert_eq!(copying("ssh://u@[fd00::2]:22"), "scp -P 22 $(command -v linerate) u@[fd00::2]:");
    }

    #[test]
    fn what_ssh_or_a_shell_would_take_for_something_else_is_refused() {
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
            assert!(error.contains("is no host such as ssh://"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_host_that_reads_back_or_an_error(text in "(ssh://)?[a-z@:.\\[\\]0-9/-]{0,24}|\\PC*") {
            if let Ok(host) = text.parse::<SshHost>() {
                prop_assert_eq!(&host.to_string().parse::<SshHost>().expect("its own form"), &host);
                prop_assert!(!host.host().starts_with('-'));
            }
        }
    }
}
