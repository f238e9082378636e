//! The BPF program that redirects requests to AF_XDP sockets.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use aya::maps::{MapData, XskMap};
use aya::{Ebpf, EbpfLoader};

use crate::sys::bpf;
use crate::sys::bpf::XdpMode;
use crate::sys::xsk::XskSocket;

/// The program; a copy that is aligned for the ELF reader.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/xsk.bpf.o"));

/// Number of addresses that the program can hold: `TARGETS` of bpf/xsk.bpf.c.
pub(super) const TARGETS: usize = 64;

/// Bytes of `struct target` of bpf/xsk.bpf.c.
const TARGET_BYTES: usize = 20;

// The packets that a program redirects.
#[derive(Debug)]
pub(super) struct RedirectRule<'a> {
    pub(super) targets: &'a [SocketAddr],
    /// Hardware address of the interface.
    pub(super) mac: [u8; 6],
    // Bytes of the longest packet that fits a frame.
    pub(super) longest_frame: u32,
    pub(super) queues: u32,
}

/// A program that is attached until this is dropped or the process ends. Nothing is pinned.
#[derive(Debug)]
pub(super) struct XskProgram {
    _link: OwnedFd,
    ebpf: Ebpf,
}

impl XskProgram {
    /// Loads and attaches the program. Without sockets it passes everything to the stack. The error is a message for the
    /// operator.
    pub(super) fn attach(
        rule: &RedirectRule<'_>,
        interface: &str,
        index: u32,
        mode: XdpMode,
    ) -> Result<Self, String> {
        let targets = encode_targets(rule.targets);
        let count = u32::try_from(rule.targets.len().min(TARGETS)).unwrap_or(0);
        let mut ebpf = EbpfLoader::new()
            .btf(None)
            .override_global("targets", targets.as_slice(), true)
            .override_global("target_count", &count, true)
            .override_global("longest_frame", &rule.longest_frame, true)
            .override_global("own_mac", &rule.mac, true)
            .map_max_entries("sockets", rule.queues)
            .load(OBJECT)
            .map_err(|error| bpf::load_error(&error))?;
        let program: &mut aya::programs::Xdp = bpf::program(&mut ebpf, "redirect")?;
        program.load().map_err(|error| bpf::load_error(&error))?;
        let descriptor = program.fd().map_err(|error| bpf::load_error(&error))?;
        let link = bpf::attach_xdp(descriptor.as_fd(), index, mode)
            .map_err(|error| bpf::attach_error(interface, mode, &error))?;
        Ok(Self { _link: link, ebpf })
    }

    // Redirects a queue's requests to a socket until the socket is closed.
    pub(super) fn serve(&mut self, queue: u32, socket: &XskSocket) -> Result<(), String> {
        let mut map: XskMap<&mut MapData> = bpf::map(&mut self.ebpf, "sockets")?;
        map.set(queue, socket.as_fd().as_raw_fd(), 0).map_err(|error| bpf::load_error(&error))
    }
}

fn encode_targets(targets: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = vec![0; TARGETS * TARGET_BYTES];
    for (target, entry) in targets.iter().zip(bytes.chunks_exact_mut(TARGET_BYTES)) {
        match target.ip().to_canonical() {
            IpAddr::V4(v4) => entry[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => {
                entry[..16].copy_from_slice(&v6.octets());
                entry[18..20].copy_from_slice(&1u16.to_ne_bytes());
            }
        }
        entry[16..18].copy_from_slice(&target.port().to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_targets_match_the_bpf_program_layout() {
        let targets = ["192.0.2.1:53", "[2001:db8::1]:258", "[::ffff:192.0.2.7]:53"];
        let targets: Vec<SocketAddr> = targets.iter().map(|text| text.parse().unwrap()).collect();
        let bytes = encode_targets(&targets);
        assert_eq!(bytes.len(), 1280);
        assert_eq!(&bytes[..20], &[192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 53, 0, 0]);
        assert_eq!(&bytes[20..24], &[0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(&bytes[35..38], &[1, 1, 2]);
        assert_eq!(u16::from_ne_bytes([bytes[38], bytes[39]]), 1);
        assert_eq!(&bytes[40..44], &[192, 0, 2, 7]);
        assert!(bytes[60..].iter().all(|byte| *byte == 0));
    }
}
