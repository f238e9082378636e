//! How other hosts are reached for `ladder` and for measured changes.

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
        let load = RemoteLoad { allow: self.allow.clone(), ..load };
        let (hosts, program) = (hosts.to_vec(), self.remote_program.clone());
        Ok(RemoteOptions { hosts, ssh, program, load, ..RemoteOptions::default() })
    }
}
