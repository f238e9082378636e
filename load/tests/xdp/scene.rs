//! A lab with a service on its receiver and a generator on its sender.

use std::net::{SocketAddr, UdpSocket};

use linerate_lab::{Lab, LabLink};
use linerate_load::generator::GeneratorBuilder;
use linerate_load::{GeneratorError, LoadWorkload, XdpGenerator};

use crate::service::{Account, PAYLOAD, Service, echo, skip};

/// A lab, and the name of its test.
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    test: &'static str,
}

impl Scene {
    /// `None`, after a SKIP message, if no lab can start here.
    pub(crate) fn new(test: &'static str) -> Option<Self> {
        let lab = Lab::builder().start().map_err(|why| skip(test, why)).ok()?;
        Some(Scene { lab, test })
    }

    pub(crate) fn link(&self) -> &LabLink {
        &self.lab.links()[0]
    }

    /// The receiver's IPv4 or IPv6 address, with port 0.
    pub(crate) fn receiver(&self, v4: bool) -> SocketAddr {
        let end = &self.link().receiver;
        if v4 { (end.ipv4[0], 0).into() } else { (end.ipv6[0], 0).into() }
    }

    pub(crate) fn echo(&self, v4: bool) -> Service {
        self.serve(v4, echo)
    }

    /// Starts a service on the receiver.
    pub(crate) fn serve(
        &self,
        v4: bool,
        serve: impl FnMut(&UdpSocket, &mut [u8], SocketAddr, &mut Account) + Send + 'static,
    ) -> Service {
        let at = self.receiver(v4);
        self.lab.receiver().run(move || Service::start_at(at, serve)).unwrap()
    }

    pub(crate) fn builder(&self, target: SocketAddr, flows: usize) -> GeneratorBuilder {
        GeneratorBuilder::default()
            .targets(vec![target])
            .flows(flows)
            .workload(LoadWorkload::Echo { payload_bytes: PAYLOAD })
    }

    pub(crate) fn start(&self, builder: GeneratorBuilder) -> Result<XdpGenerator, GeneratorError> {
        self.lab.senders()[0].run(move || builder.start_xdp()).unwrap()
    }

    /// Starts a generator for a service. `None`, after a SKIP message, if the process lacks the
    /// privilege.
    pub(crate) fn generator(&self, service: &Service, flows: usize) -> Option<XdpGenerator> {
        self.generator_of(self.builder(service.address, flows))
    }

    pub(crate) fn generator_of(&self, builder: GeneratorBuilder) -> Option<XdpGenerator> {
        match self.start(builder) {
            Ok(generator) => Some(generator),
            Err(GeneratorError::Xdp { why }) if !rustix::process::geteuid().is_root() => {
                skip(self.test, why);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}
