//! An sshd on a host of a lab.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStderr, Command};

use crate::support::{await_line, is_installed, skip};

const SSHD: &str = "/usr/sbin/sshd";

/// Whether sshd can let root in. If not, prints a SKIP line.
pub(crate) fn is_usable() -> bool {
    if !["sshd", "ssh", "ssh-keygen", "unshare"].iter().all(|program| is_installed(program)) {
        return false;
    }
    let shadow = fs::read_to_string("/etc/shadow").unwrap_or_default();
    let is_locked = shadow.lines().any(|line| line.starts_with("root:!"));
    if is_locked {
        skip("root's account is locked, and sshd without PAM refuses locked accounts");
    }
    !is_locked
}

/// Makes the key pairs `host`, `client` and `other`. sshd accepts `client`.
pub(crate) fn make_keys(directory: &Path) {
    for name in ["host", "client", "other"] {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(directory.join(name));
        assert!(command.status().expect("ssh-keygen starts").success());
    }
}

/// Arguments for `unshare`, which runs sshd with the keys of the directory.
pub(crate) fn sshd_arguments(directory: &Path, address: SocketAddr) -> Vec<String> {
    let file = |name: &str| directory.join(name).to_str().expect("a name").to_owned();
    let (config, host_key, authorized) = (file(&format!("sshd-{address}")), file("host"), file("client.pub"));
    let text = format!(
        "ListenAddress {address}\nHostKey {host_key}\nAuthorizedKeysFile {authorized}\nPidFile none\n\
         UsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
    );
    fs::write(&config, text).expect("written");
    // sshd requires an empty /run/sshd, which exists only where sshd runs as a service.
    let script = "mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec \"$@\"";
    ["-m", "sh", "-c", script, "sh", SSHD, "-D", "-e", "-f", &config].map(str::to_owned).into()
}

/// Waits until an sshd listens.
pub(crate) fn await_listening(errors: &mut Option<ChildStderr>) {
    await_line(errors, |line| line.contains("Server listening").then_some(()));
}
