//! Larger receive buffers while a port is handed over: processes that start take the CPU from the
//! servers, and at 30,000 datagrams per second the usual buffer is full after 10 ms.

use linerate_host::setting::{SettingValue, SocketAt, SocketKnob};
use linerate_host::{Host, Setting};

/// As the kernel counts it, with the memory overhead of datagrams. Enough for some 10,000 small
/// datagrams.
const BYTES: u64 = 8 << 20;

/// The original sizes.
#[derive(Default)]
pub(super) struct HandoverBuffers(Vec<(Setting, SettingValue)>);

impl HandoverBuffers {
    /// Leaves a buffer that is larger, or that cannot be set, unchanged.
    pub(super) fn enlarge(&mut self, host: &Host, socket: SocketAt) {
        let setting = Setting::Socket { socket, knob: SocketKnob::ReceiveBuffer };
        let Ok(original) = setting.read(host) else { return };
        let bytes = original.as_str().split(' ').next().and_then(|word| word.parse::<u64>().ok());
        if bytes.is_none_or(|bytes| bytes < BYTES)
            && setting.write(host, &SettingValue::new(BYTES.to_string())).is_ok()
        {
            self.0.push((setting, original));
        }
    }

    pub(super) fn restore(&self, host: &Host) {
        for (setting, original) in &self.0 {
            // The socket may be closed.
            let _ = setting.write(host, original);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd as _;

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn handover_buffers_enlarge_and_restore_the_receive_buffer() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let at = SocketAt {
            cookie: sockopt::socket_cookie(&socket).expect("a cookie"),
            inode: rustix::fs::fstat(&socket).expect("an inode").st_ino,
            pid: std::process::id(),
            descriptor: socket.as_raw_fd().unsigned_abs(),
        };
        let bytes = || sockopt::socket_recv_buffer_size(&socket).expect("a size");
        let (original, mut buffers) = (bytes(), HandoverBuffers::default());
        buffers.enlarge(&Host::live(), at);
        // Others than root get what net.core.rmem_max permits.
        assert!(bytes() as u64 >= BYTES || !rustix::process::geteuid().is_root());
        buffers.restore(&Host::live());
        assert_eq!(bytes(), original);
    }
}
