//! A lab with a service on its receiver and a generator on its sender.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use linerate_lab::{Lab, LabLink};
use linerate_load::generator::GeneratorBuilder;
use linerate_load::{GeneratorError, LoadSlot, LoadWorkload, PacingMode, SlotOutcome, XdpGenerator};
pub(crate) use linerate_testkit::skip;

use crate::service::{Account, Service};

/// Bytes of an echo request.
pub(crate) const PAYLOAD: usize = 100;

/// A lab, and the name of the test it is for.
pub(crate) struct Scene {
    pub(crate) lab: Lab,
    test: &'static str,
}

impl Scene {
    /// None if there can be no lab here; that is said.
    pub(crate) fn new(test: &'static str) -> Option<Self> {
        match Lab::builder().start() {
            Ok(lab) => Some(Scene { lab, test }),
            Err(error) => {
                skip(test, error.to_string());
                None
            }
        }
    }

    pub(crate) fn link(&self) -> &LabLink {
        &self.lab.links()[0]
    }

    /// The receiver's address of a family; port 0.
    pub(crate) fn receiver(&self, v4: bool) -> SocketAddr {
        let end = &self.link().receiver;
        if v4 { (end.ipv4[0], 0).into() } else { (end.ipv6[0], 0).into() }
    }

    /// Starts an echo service on the receiver.
    pub(crate) fn echo(&self, v4: bool) -> Service {
        let at = self.receiver(v4);
        self.lab.receiver().run(move || Service::echo(at)).unwrap()
    }

    /// Starts a service on the receiver.
    pub(crate) fn serve(
        &self,
        v4: bool,
        serve: impl FnMut(&UdpSocket, &mut [u8], SocketAddr, &mut Account) + Send + 'static,
    ) -> Service {
        let at = self.receiver(v4);
        self.lab.receiver().run(move || Service::start(at, serve)).unwrap()
    }

    /// Starts a service that drops every 10th request, answers every 100th twice and every 1000th with a changed byte.
    pub(crate) fn faulty(&self) -> Service {
        self.serve(true, |socket, request, source, account| {
            let number = account.received;
            if number % 1_000 == 1 {
                account.corrupted += 1;
                let at = number as usize % request.len();
                request[at] ^= 0x20;
                socket.send_to(request, source).unwrap();
            } else if number % 10 == 2 {
                account.dropped += 1;
            } else {
                account.answered += 1;
                socket.send_to(request, source).unwrap();
                if number % 100 == 3 {
                    account.duplicated += 1;
                    socket.send_to(request, source).unwrap();
                }
            }
        })
    }

    /// A builder for echo requests to `target`.
    pub(crate) fn builder(&self, target: SocketAddr, flows: usize) -> GeneratorBuilder {
        GeneratorBuilder::default()
            .targets(vec![target])
            .flows(flows)
            .workload(LoadWorkload::Echo { payload_bytes: PAYLOAD })
    }

    /// Starts a generator on the sender.
    pub(crate) fn start(&self, builder: GeneratorBuilder) -> Result<XdpGenerator, GeneratorError> {
        self.lab.senders()[0].run(move || builder.start_xdp()).unwrap()
    }

    /// One for a service; none where that cannot be, which is said.
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

pub(crate) fn slot(mode: PacingMode, milliseconds: u64) -> LoadSlot {
    LoadSlot { drain: Duration::from_secs(3), ..LoadSlot::new(mode, Duration::from_millis(milliseconds)) }
}

pub(crate) fn rate(per_second: f64) -> PacingMode {
    PacingMode::Rate { per_second }
}

pub(crate) fn assert_balanced(outcome: &SlotOutcome) {
    assert_eq!(outcome.sent, outcome.answered + outcome.lost, "{outcome:?}");
    assert_eq!(outcome.latency_ns.count(), outcome.answered);
}
