//! Real servers in network namespaces of their own, observed from outside.

mod scene;
mod servers;
mod threads;
