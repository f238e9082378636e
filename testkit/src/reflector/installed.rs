//! Servers that are installed on the machine, with configurations for tests.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A zone of a few names.
const ZONE: &str = "\
$ORIGIN example.test.
$TTL 60
@ IN SOA ns hostmaster 1 3600 600 86400 60
@ IN NS ns
ns IN A 198.18.0.1
www IN A 192.0.2.1
www IN AAAA 2001:db8::1
";

/// Finds a program in the search path, or in the directories in which Debian installs servers. Only
/// root's search path contains them.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let server_directories = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(server_directories)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// NSD. Started as `nsd -d -c FILE`.
#[derive(Debug, Clone, Copy)]
pub struct InstalledNsd<'a> {
    /// Directory for its files.
    pub directory: &'a Path,
    /// Addresses on which it listens.
    pub addresses: &'a [SocketAddr],
    /// Number of processes that answer.
    pub servers: u32,
    /// Whether each process has its own socket per address.
    pub reuseport: bool,
    /// Name and file of each zone; empty: `example.test` with a few names.
    pub zones: &'a [(&'a str, PathBuf)],
    /// More lines for its section `server`.
    pub options: &'a [String],
}

impl InstalledNsd<'_> {
    /// Writes its files and returns the path of its configuration file. nsd-control uses the socket
    /// `control` in the directory.
    ///
    /// # Errors
    ///
    /// If a file cannot be written.
    pub fn write(&self) -> io::Result<PathBuf> {
        let directory = self.directory.display();
        let addresses: String = self
            .addresses
            .iter()
            .map(|address| format!("  ip-address: {}@{}\n", address.ip(), address.port()))
            .collect();
        let (servers, reuseport) = (self.servers, if self.reuseport { "yes" } else { "no" });
        let options: String = self.options.iter().map(|option| format!("  {option}\n")).collect();
        let example = [("example.test", self.directory.join("zone"))];
        let zones = if self.zones.is_empty() {
            std::fs::write(&example[0].1, ZONE)?;
            &example
        } else {
            self.zones
        };
        let zones: String = zones
            .iter()
            .map(|(name, file)| format!("zone:\n  name: {name}\n  zonefile: \"{}\"\n", file.display()))
            .collect();
        // By default, response rate limiting would limit the answers to 200 per second.
        let text = format!(
            "server:
{addresses}{options}  server-count: {servers}
  reuseport: {reuseport}
  username: \"\"
  chroot: \"\"
  database: \"\"
  zonesdir: \"{directory}\"
  pidfile: \"\"
  xfrdfile: \"{directory}/xfrd\"
  xfrdir: \"{directory}\"
  zonelistfile: \"{directory}/zones\"
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
remote-control:
  control-enable: yes
  control-interface: \"{directory}/control\"
{zones}"
        );
        write_file(self.directory, "nsd.conf", &text)
    }
}

fn write_file(directory: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    let file = directory.join(name);
    std::fs::write(&file, text)?;
    Ok(file)
}
