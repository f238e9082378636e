//! Generators against services of known behaviour: sockets on loopback, XDP between the hosts of a
//! lab.

mod backends;
mod exchange;
mod manners;
mod path;
mod scene;
mod send_methods;
mod service;
mod socket;
mod windows;
