//! Sends and receives Ethernet frames (packet(7)).

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// A packet socket on an interface in the calling thread's network namespace.
pub(crate) fn packet_socket(interface: u32, patience: Duration) -> io::Result<Socket> {
    let all = i32::from((libc::ETH_P_ALL as u16).to_be());
    let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(all)))?;
    // SAFETY: a sockaddr_ll fits the storage, and its length is set.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let address = storage.cast::<libc::sockaddr_ll>();
            (*address).sll_family = libc::AF_PACKET as u16;
            (*address).sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            (*address).sll_ifindex = interface.cast_signed();
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    socket.bind(&address)?;
    socket.set_read_timeout(Some(patience))?;
    Ok(socket)
}

pub(crate) fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
    let length = socket.recv(&mut buffer)?;
    // SAFETY: the kernel has written `length` bytes.
    Ok(buffer[..length].iter().map(|byte| unsafe { byte.assume_init() }).collect())
}
