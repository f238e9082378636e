//! A socket address in the kernel's own form, so that a reply is sent without decoding its
//! destination.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Address family of a socket, which determines the length of every name from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressFamily {
    V4,
    V6,
}

impl AddressFamily {
    /// `sizeof` of the family's `sockaddr`, in bytes.
    pub(crate) const fn name_length(self) -> u32 {
        match self {
            Self::V4 => size_of::<libc::sockaddr_in>() as u32,
            Self::V6 => size_of::<libc::sockaddr_in6>() as u32,
        }
    }
}

impl From<SocketAddr> for AddressFamily {
    fn from(address: SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// The bytes of a `sockaddr_in` or `sockaddr_in6`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct SocketName {
    bytes: [u8; 28],
}

impl SocketName {
    pub(crate) const ZERO: Self = Self { bytes: [0; 28] };

    fn family(&self) -> u16 {
        u16::from_ne_bytes(self.take(0))
    }

    #[inline]
    fn take<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[offset..offset + N]);
        bytes
    }

    fn put<const N: usize>(&mut self, offset: usize, bytes: [u8; N]) {
        self.bytes[offset..offset + N].copy_from_slice(&bytes);
    }

    /// The address as a `SocketAddr`, IPv4-mapped IPv6 as IPv4.
    pub(crate) fn decode(&self) -> SocketAddr {
        let port = u16::from_be_bytes(self.take(2));
        if i32::from(self.family()) != libc::AF_INET6 {
            return SocketAddrV4::new(Ipv4Addr::from(self.take::<4>(4)), port).into();
        }
        let address = Ipv6Addr::from(self.take::<16>(8));
        match address.to_ipv4_mapped() {
            Some(mapped) => SocketAddrV4::new(mapped, port).into(),
            None => {
                // The flow label is in network order in the kernel's struct, the scope in the host's.
                let flow = u32::from_be_bytes(self.take(4));
                let scope = u32::from_ne_bytes(self.take(24));
                SocketAddrV6::new(address, port, flow, scope).into()
            }
        }
    }

    // The name for `address` on a socket of `family`. `None` if that socket cannot send there.
    pub(crate) fn encode(address: SocketAddr, family: AddressFamily) -> Option<Self> {
        let mut name = Self::ZERO;
        let family_bytes = |af: i32| u16::try_from(af).unwrap_or(0).to_ne_bytes();
        match (address, family) {
            (SocketAddr::V4(v4), AddressFamily::V4) => {
                name.put(0, family_bytes(libc::AF_INET));
                name.put(4, v4.ip().octets());
            }
            (SocketAddr::V4(v4), AddressFamily::V6) => {
                name.put(0, family_bytes(libc::AF_INET6));
                name.put(8, v4.ip().to_ipv6_mapped().octets());
            }
            (SocketAddr::V6(v6), AddressFamily::V6) => {
                name.put(0, family_bytes(libc::AF_INET6));
                name.put(4, v6.flowinfo().to_be_bytes());
                name.put(8, v6.ip().octets());
                name.put(24, v6.scope_id().to_ne_bytes());
            }
            (SocketAddr::V6(_), AddressFamily::V4) => return None,
        }
        name.put(2, address.port().to_be_bytes());
        Some(name)
    }

    /// Whether this is IPv4, native or mapped.
    pub(crate) fn is_ipv4(&self) -> bool {
        self.decode().is_ipv4()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        self.bytes.as_mut_ptr().cast()
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        self.bytes.as_ptr().cast()
    }
}

impl std::fmt::Debug for SocketName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.decode().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ipv4_addresses_round_trip_in_both_families(ip: [u8; 4], port: u16) {
            let address = SocketAddr::from((ip, port));
            for family in [AddressFamily::V4, AddressFamily::V6] {
                prop_assert_eq!(SocketName::encode(address, family).map(|name| name.decode()), Some(address));
            }
        }

        #[test]
        fn ipv6_addresses_round_trip_and_do_not_fit_ipv4_names(ip: [u8; 16], port: u16, flow: u32, scope: u32) {
            let v6 = SocketAddrV6::new(ip.into(), port, flow, scope);
            prop_assume!(v6.ip().to_ipv4_mapped().is_none());
            let address = SocketAddr::from(v6);
            prop_assert_eq!(SocketName::encode(address, AddressFamily::V6).map(|name| name.decode()), Some(address));
            prop_assert!(SocketName::encode(address, AddressFamily::V4).is_none());
        }

        #[test]
        fn decoding_arbitrary_bytes_never_panics(bytes: [u8; 28]) {
            let _ = SocketName { bytes }.decode();
        }
    }
}
