//! Real servers as they are seen from outside, in network namespaces of their own.

mod scene;
mod servers;
mod threads;
