//! How other hosts are reached for `ladder` and for measured changes.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use clap::Args;
use linerate_lab::ladder::remote::{RemoteLoad, RemoteOptions, SshHost};
use linerate_networks::Net;

#[derive(Debug, Clone, Args)]
pub(crate) struct RemoteArgs {
    /// ssh with its arguments, as in "ssh -F FILE -i KEY"
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    ssh: String,
    /// Path of linerate on the other hosts
    #[arg(long, value_name = "PATH", default_value = "linerate")]
    remote_program: String,
    /// Allow this network, which is neither private nor link-local; repeatable
    #[arg(long, value_name = "NET")]
    pub(crate) allow: Vec<Net>,
}

impl RemoteArgs {
    pub(crate) fn options(&self, hosts: &[SshHost], load: RemoteLoad) -> Result<RemoteOptions> {
        let ssh = shlex::split(&self.ssh).unwrap_or_default();
        ensure!(!ssh.is_empty(), "--ssh: '{}' is not a command, or a quote in it is not closed", self.ssh);
        for address in load.targets.iter().map(SocketAddr::ip) {
            let is_allowed = self.allow.iter().any(|net| net.contains(address));
            ensure!(
                is_allowed || linerate_networks::is_near(address),
                "destination {address} is neither loopback, lab nor private: if that host is yours to load, \
                 add --allow {address}"
            );
        }
        let load = RemoteLoad { allow: self.allow.clone(), ..load };
        let (hosts, program) = (hosts.to_vec(), self.remote_program.clone());
        Ok(RemoteOptions { hosts, ssh, program, load, ..RemoteOptions::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_destinations_are_refused_until_allowed() {
        let options = |allow: &[&str]| {
            let allow = allow.iter().map(|net| net.parse().expect("a network")).collect();
            let arguments = RemoteArgs { ssh: "ssh".to_owned(), remote_program: String::new(), allow };
            let targets = vec![SocketAddr::from(([203, 0, 113, 7], 53))];
            arguments.options(&[], RemoteLoad { targets, ..RemoteLoad::default() })
        };
        let error = options(&[]).expect_err("refused").to_string();
        assert!(error.ends_with("add --allow 203.0.113.7"), "{error}");
        assert!(options(&["203.0.113.0/24"]).is_ok());
    }
}
