//! Making the lab, finding out what can be set in it, and starting the generator.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::{Lab, LabHost, LabLink};
use linerate_host::setting::{NftFamily, Offload, QueueDirection};
use linerate_host::{Host, Setting, SettingValue};
use linerate_load::generator::{GeneratorBuilder, LiveFrames};
use linerate_load::{Generator, LoadWorkload};

use super::placement::CpuPlacement;
use super::stock::{self, ReceiverInterface, SettableParts};
use super::{LabBench, LabBenchOptions, StepRefusals};
use crate::ladder::bench::{BenchError, server};

/// Port of the lab's server.
const PORT: u16 = 7777;
/// Niceness of the generator's threads on shared CPUs, so that the server is the limit.
const GENERATOR_NICE: i32 = -20;
/// Niceness of the server's workers then: behind the generator, before the rest of the machine.
const SERVER_NICE: i32 = -10;
/// Niceness of the server's workers where the generator's cannot be raised: behind it, and not
/// too far behind others.
const SERVER_NICE_UNPRIVILEGED: i32 = 5;

impl LabBench {
    /// Makes the lab and what it needs to be climbed in. The caller must be in the network and
    /// user namespace where labs can be made.
    ///
    /// # Errors
    /// When lab or generator cannot be made; nothing is left behind then.
    pub fn start(options: LabBenchOptions) -> Result<Self, BenchError> {
        if options.cpus.is_empty() {
            return Err(BenchError::Lab("no CPU is free for server and generator".to_owned()));
        }
        let mut builder = Lab::builder();
        if let Some(queues) = options.queues {
            builder = builder.queues(queues);
        }
        let lab = builder.start().map_err(in_lab)?;
        let link = lab.links()[0].clone();
        let receiver =
            ReceiverInterface { interface: link.receiver.interface.clone(), queues: link.queues, port: PORT };
        let address = SocketAddr::from((link.receiver.ipv4[0], PORT));
        let host = Host::live_with_sys(lab.receiver().sys_path().map_err(in_lab)?);
        let (settable, refusals) = probe(lab.receiver(), &host, &receiver, options.host_wide)?;
        let placement = CpuPlacement::on(&options.cpus, settable.queue_cpus);
        set_sender(&lab, &link, &placement, &settable)?;
        let (generator, server_nice) = generator(&lab.senders()[0], &options, &placement, address)?;
        // Last, so that a start that fails leaves no record of a change that was never made.
        if let Some(found) = &settable.audit {
            record_audit(&lab, found)?;
        }
        Ok(Self {
            server: None,
            generator,
            host,
            options,
            placement,
            receiver,
            address,
            settable,
            refusals,
            server_nice,
            applied: BTreeMap::new(),
            lab,
        })
    }
}

impl Drop for LabBench {
    fn drop(&mut self) {
        let Some(found) = self.settable.audit.take() else {
            return;
        };
        // Where it cannot be put back, the record stays and the next clean-up tries again.
        if Setting::Audit.write(&Host::live(), &found).is_ok() {
            let _ = self.lab.forget_host_wide(&audit_key());
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn in_lab(error: crate::LabError) -> BenchError {
    BenchError::Lab(error.to_string())
}

fn audit_key() -> String {
    serde_json::to_string(&Setting::Audit).unwrap_or_default()
}

fn record_audit(lab: &Lab, found: &SettingValue) -> Result<(), BenchError> {
    lab.record_host_wide(&audit_key(), serde_json::Value::from(found.as_str())).map_err(in_lab)
}

/// Makes the sender look to the receiver like many clients behind a NIC.
fn set_sender(
    lab: &Lab,
    link: &LabLink,
    placement: &CpuPlacement,
    settable: &SettableParts,
) -> Result<(), BenchError> {
    let sender = &lab.senders()[0];
    let host = Host::live_with_sys(sender.sys_path().map_err(in_lab)?);
    let interface = &link.sender.interface;
    let mut settings = Vec::new();
    if settable.offload {
        // Where a sender could segment TCP itself, veth takes UDP past NAPI and GRO, which a NIC
        // never does (veth_skb_is_eligible_for_gro in drivers/net/veth.c, Linux 5.13).
        let setting = Setting::Offload { interface: interface.clone(), offload: Offload::TcpSegmentation };
        settings.push((setting, SettingValue::new("off")));
    }
    if settable.queue_cpus {
        // A transmit queue here is a NAPI instance there: each CPU has its own.
        for queue in 0..link.queues {
            let direction = QueueDirection::Transmit;
            let setting = Setting::QueueCpus { interface: interface.clone(), direction, queue };
            settings.push((setting, SettingValue::new(placement.generate(queue, link.queues).to_mask())));
        }
    }
    sender
        .run(|| settings.iter().try_for_each(|(setting, value)| setting.write(&host, value)))
        .map_err(in_lab)??;
    Ok(())
}

/// Tries each knob with the value it should have at the start.
fn probe(
    lab_host: &LabHost,
    host: &Host,
    receiver: &ReceiverInterface,
    host_wide: bool,
) -> Result<(SettableParts, StepRefusals), BenchError> {
    let interface = &receiver.interface;
    let queue = |direction| Setting::QueueCpus { interface: interface.clone(), direction, queue: 0 };
    lab_host
        .run(|| {
            let failure = |setting: &Setting, value: SettingValue| {
                setting.write(host, &value).err().map(|e| e.to_string())
            };
            let queue_cpus = failure(&queue(QueueDirection::Receive), SettingValue::new("0"))
                .or_else(|| failure(&queue(QueueDirection::Transmit), SettingValue::new("0")))
                .map(|why| format!("RPS and XPS masks take root, not a user namespace: {why}"));
            let gro = Setting::Offload { interface: interface.clone(), offload: Offload::GenericReceive };
            let offload = failure(&gro, SettingValue::new("on"));
            let table = Setting::NftTable { family: NftFamily::Inet, table: stock::TABLE.to_owned() };
            let netfilter = failure(&table, stock::ruleset(receiver.port));
            let busy_poll = server::busy_poll_refusal();
            let (audit, audit_refusal) = audit(host, host_wide);
            let settable = SettableParts {
                queue_cpus: queue_cpus.is_none(),
                offload: offload.is_none(),
                netfilter: netfilter.is_none(),
                audit,
            };
            (settable, StepRefusals { queue_cpus, offload, netfilter, audit: audit_refusal, busy_poll })
        })
        .map_err(in_lab)
}

fn audit(host: &Host, host_wide: bool) -> (Option<SettingValue>, Option<String>) {
    if !host_wide {
        return (
            None,
            Some("auditing belongs to the whole machine; --host-wide allows it to be switched".to_owned()),
        );
    }
    match Setting::Audit.read(host) {
        Ok(found) if found.as_str() == "0" => {
            (None, Some("auditing is off on this machine already".to_owned()))
        }
        Ok(found) if found.as_str() == "2" => {
            (None, Some("auditing is locked until the next boot".to_owned()))
        }
        Ok(found) => (Some(found), None),
        Err(error) => (None, Some(error.to_string())),
    }
}

/// The generator, and the niceness that puts the server behind it.
fn generator(
    sender: &LabHost,
    options: &LabBenchOptions,
    placement: &CpuPlacement,
    target: SocketAddr,
) -> Result<(Box<dyn Generator>, Option<i32>), BenchError> {
    let start = |nice| {
        sender
            .run(|| {
                GeneratorBuilder::default()
                    .targets(vec![target])
                    .threads(placement.generator.len())
                    .cpus(Some(placement.generator.clone()))
                    .flows(options.flows as usize)
                    .workload(LoadWorkload::Echo { payload_bytes: options.payload as usize })
                    .no_fragment(options.no_fragment)
                    .backend(options.backend)
                    // A step switches GRO off, and with it what takes live frames at the far end.
                    .live_frames(LiveFrames::Never)
                    .nice(nice)
                    .cancel(options.measuring.cancel.clone())
                    .start()
            })
            .map_err(in_lab)
    };
    if !placement.shared {
        return Ok((start(None)?.map_err(in_generator)?, None));
    }
    match start(Some(GENERATOR_NICE))? {
        Ok(generator) => Ok((generator, Some(SERVER_NICE))),
        // Not permitted without root; the server is made to give way instead.
        Err(_) => Ok((start(None)?.map_err(in_generator)?, Some(SERVER_NICE_UNPRIVILEGED))),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn in_generator(error: linerate_load::GeneratorError) -> BenchError {
    BenchError::Generator(error.to_string())
}
