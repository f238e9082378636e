//! Starts servers. A packet loop is compiled for each service, and here for all of them, because the release profile optimizes
//! this crate for speed and the crates that start servers for build time.

use linerate_engine::{Echo, RunningServer, Server, ServerError, Service};

use crate::dns::DnsService;
use crate::echo::RequestEcho;
use crate::guarded_service::GuardedService;
use crate::ntp::NtpService;
use crate::radius::RadiusServer;
use crate::sink::SinkService;

/// A service whose packet loop is compiled in this crate.
pub trait StartService: Service + Sized {
    /// As [`Server::start`].
    ///
    /// # Errors
    /// Those of [`Server::start`].
    fn start_server(
        server: Server,
        service: Box<dyn FnMut(usize) -> Self + Send>,
    ) -> Result<RunningServer, ServerError>;
}

macro_rules! start_services {
    ($($service:ty),+) => {
        $(impl StartService for $service {
            #[inline(never)]
            fn start_server(
                server: Server,
                service: Box<dyn FnMut(usize) -> Self + Send>,
            ) -> Result<RunningServer, ServerError> {
                server.start(service)
            }
        })+
    };
}

start_services!(
    Echo,
    SinkService,
    GuardedService<Echo>,
    GuardedService<RequestEcho>,
    GuardedService<SinkService>,
    GuardedService<DnsService>,
    GuardedService<NtpService>,
    GuardedService<RadiusServer>
);
