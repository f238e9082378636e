//! Larger receive buffers while a port is handed over: processes that start take the CPU from the
//! servers, and at 30,000 datagrams per second the usual buffer is full after 10 ms.

use linerate_host::setting::{SettingValue, SocketAt, SocketKnob};
use linerate_host::{Host, Setting};

/// As the kernel counts them, of a datagram's memory. Some 10,000 small datagrams.
const BYTES: u64 = 8 << 20;

/// The original sizes.
#[derive(Default)]
pub(super) struct HandoverBuffers(Vec<(Setting, SettingValue)>);

impl HandoverBuffers {
    /// Leaves a buffer that is larger, or cannot be set, as it is.
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
