//! Servers over loopback, and between network namespaces.

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod authors;
mod builder;
mod examples;
mod receive_times;
mod serve;
mod steering;
mod stop;

use linerate_engine::{SocketMode, SteeringProgram};

const LAYOUTS: [SocketMode; 3] =
    [SocketMode::Shared, SocketMode::Reuseport, SocketMode::SteeredByCpu(SteeringProgram::Cbpf)];
