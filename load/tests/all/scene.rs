//! A service and a generator: on loopback with sockets, or on the hosts of a lab with XDP.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use linerate_lab::{Lab, LabLink};
use linerate_load::generator::{GeneratorBackend, GeneratorOptions};
use linerate_load::{Generator, GeneratorError, LoadWorkload};
use linerate_testkit::skip;

use crate::service::{Account, PAYLOAD, Service, echo};

pub(crate) struct Scene {
    test: &'static str,
    /// `None` on loopback.
    lab: Option<Lab>,
}

impl Scene {
    /// A lab. `None`, after a SKIP message, if no lab can start here.
    pub(crate) fn new(test: &'static str) -> Option<Self> {
        let lab = Lab::builder().start().map_err(|why| skip(test, why)).ok()?;
        Some(Scene { test, lab: Some(lab) })
    }

    pub(crate) fn loopback(test: &'static str) -> Self {
        Scene { test, lab: None }
    }

    /// Runs a test with sockets on loopback, and with XDP in a lab.
    pub(crate) fn with_each_backend(test: &'static str, check: impl Fn(&Scene)) {
        check(&Scene::loopback(test));
        if let Some(scene) = Scene::new(test) {
            check(&scene);
        }
    }

    pub(crate) fn is_lab(&self) -> bool {
        self.lab.is_some()
    }

    /// Whether tests may use IPv6: in a lab, unless the machine has none.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.lab.as_ref().is_some_and(|lab| lab.no_ipv6().is_none())
    }

    /// Whether IPv4, for each family of addresses here.
    pub(crate) fn families(&self) -> &'static [bool] {
        if self.has_ipv6() { &[true, false] } else { &[true] }
    }

    pub(crate) fn lab(&self) -> &Lab {
        self.lab.as_ref().expect("this test has a lab")
    }

    pub(crate) fn link(&self) -> &LabLink {
        &self.lab().links()[0]
    }

    /// The IPv4 or IPv6 address of the service's host, with port 0; on loopback the IPv4 address.
    pub(crate) fn receiver(&self, v4: bool) -> SocketAddr {
        let Some(lab) = &self.lab else { return (Ipv4Addr::LOCALHOST, 0).into() };
        let end = &lab.links()[0].receiver;
        if v4 { (end.ipv4[0], 0).into() } else { (end.ipv6[0], 0).into() }
    }

    pub(crate) fn echo(&self, v4: bool) -> Service {
        self.serve(v4, echo)
    }

    /// Starts a service.
    pub(crate) fn serve(
        &self,
        v4: bool,
        serve: impl FnMut(&UdpSocket, &mut [u8], SocketAddr, &mut Account) + Send + 'static,
    ) -> Service {
        let at = self.receiver(v4);
        match &self.lab {
            Some(lab) => lab.receiver().run(move || Service::start_at(at, serve)).unwrap(),
            None => Service::start_at(at, serve),
        }
    }

    pub(crate) fn options(&self, target: SocketAddr, flows: usize) -> GeneratorOptions {
        let workload = LoadWorkload::Echo { payload_bytes: PAYLOAD };
        GeneratorOptions { flows, workload, ..GeneratorOptions::new(vec![target]) }
    }

    pub(crate) fn start(&self, options: GeneratorOptions) -> Result<Box<dyn Generator>, GeneratorError> {
        match &self.lab {
            Some(lab) => {
                let options = GeneratorOptions { backend: GeneratorBackend::Xdp, ..options };
                lab.senders()[0].run(move || options.start()).unwrap()
            }
            None => options.start_socket(),
        }
    }

    /// Starts a generator for a service. `None`, after a SKIP message, if the process lacks the
    /// privilege.
    pub(crate) fn generator(&self, service: &Service, flows: usize) -> Option<Box<dyn Generator>> {
        self.generator_of(self.options(service.address, flows))
    }

    pub(crate) fn generator_of(&self, options: GeneratorOptions) -> Option<Box<dyn Generator>> {
        match self.start(options) {
            Ok(generator) => Some(generator),
            Err(GeneratorError::Xdp { why }) if !rustix::process::geteuid().is_root() => {
                skip(self.test, why);
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}
