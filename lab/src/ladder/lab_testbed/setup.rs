//! Starts a lab, finds out which settings can be changed in it, and starts the generator.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_host::setting::{NftFamily, Offload, QueueDirection};
use linerate_host::stage::machine::MachineState;
use linerate_host::{Host, Setting, SettingValue};
use linerate_load::generator::{GeneratorOptions, LiveFrames};
use linerate_load::wire::{IpVersion, LinkSpeed};
use linerate_load::{Generator, LoadWorkload};

use super::LabTestbed;
use super::placement::{CpuPlacement, queue_cpus};
use super::stock::{self, ReceiverInterface, SettableParts};
use crate::ladder::config::LadderConfig;
use crate::ladder::error::TestbedError;
use crate::ladder::program_server::ProgramServer;
use crate::ladder::read_count::ReadCountGenerator;
use crate::ladder::sampler::Sampler;
use crate::ladder::server;
use crate::{Lab, LabHost, LabLink};

const PORT: u16 = 7777;
/// Niceness of the generator's threads on shared CPUs, so that the server is the limit.
const GENERATOR_NICE: i32 = -20;
/// Niceness of the server's workers on shared CPUs: behind the generator, before the rest of the machine.
const SERVER_NICE: i32 = -10;
/// Niceness of the server's workers if the generator's priority cannot be raised: behind the
/// generator, but not far behind other processes.
const SERVER_NICE_UNPRIVILEGED: i32 = 5;

/// The link speed that rates are compared with unless another is configured.
const LINK_BITS_PER_SECOND: u64 = 10_000_000_000;

impl<'a> LabTestbed<'a> {
    /// Starts a lab with a generator. The caller must be in the network and user namespace where labs can be made.
    ///
    /// # Errors
    /// When lab or generator cannot start. Nothing is left behind then.
    pub(crate) fn start(
        config: &'a LadderConfig,
        program: Option<ProgramServer>,
        cancel: Arc<AtomicBool>,
    ) -> Result<Self, TestbedError> {
        let speed = config.link.or_else(|| LinkSpeed::from_bits_per_second(LINK_BITS_PER_SECOND));
        let speed = speed.ok_or_else(|| TestbedError::Lab("no link speed".to_owned()))?;
        let wire = config.wire(IpVersion::V4, speed)?;
        let sampler = Sampler { config, cancel };
        let mut builder = Lab::builder();
        if let Some(queues) = config.queues {
            builder = builder.queues(queues);
        }
        let lab = builder.start()?;
        let link = lab.links()[0].clone();
        let port = config.server.as_ref().map_or(PORT, |recipe| recipe.port);
        let receiver =
            ReceiverInterface { interface: link.receiver.interface.clone(), queues: link.queues, port };
        let address = SocketAddr::from((link.receiver.ipv4[0], port));
        let host = Host::live_with_sys(lab.receiver().sys_path()?);
        let settable = lab.receiver().run(|| probe(&host, &receiver, config.host_wide))?;
        let placement = match settable.queue_cpus {
            Ok(()) => CpuPlacement::separate(&config.cpus, &MachineState::observe(&host)),
            Err(_) => CpuPlacement::shared(&config.cpus),
        };
        set_sender(&lab, &link, &placement, settable.offload.is_ok(), settable.queue_cpus.is_ok())?;
        let workload = match &program {
            Some(program) => program.workload(),
            None => LoadWorkload::Echo { payload_bytes: config.payload_bytes as usize },
        };
        let (generator, server_nice) =
            generator(&lab.senders()[0], &sampler, &placement, address, &workload)?;
        let generator: Box<dyn Generator> = if config.server.as_ref().is_some_and(|recipe| recipe.no_reply) {
            let counters = format!("/proc/self/task/{}/net/snmp", lab.receiver().thread_id());
            Box::new(ReadCountGenerator::new(generator, counters))
        } else {
            generator
        };
        // Last, so that a failed start leaves no record of a change that was never made.
        if let Ok(audit_value) = &settable.audit {
            lab.record_host_wide(&audit_key(), serde_json::Value::from(audit_value.as_str()))?;
        }
        Ok(Self {
            server: None,
            program,
            generator,
            host,
            sampler,
            placement,
            receiver,
            address,
            wire,
            settable,
            server_nice,
            applied: BTreeMap::new(),
            lab,
        })
    }
}

impl Drop for LabTestbed<'_> {
    fn drop(&mut self) {
        if let Ok(audit_value) = &self.settable.audit
            && Setting::Audit.write(&Host::live(), audit_value).is_ok()
        {
            // If the value could not be restored, the record stays and the next clean-up tries
            // again.
            let _ = self.lab.forget_host_wide(&audit_key());
        }
    }
}

fn audit_key() -> String {
    serde_json::to_string(&Setting::Audit).unwrap_or_default()
}

/// Makes the sender's packets arrive like packets of many clients behind a NIC.
pub(crate) fn set_sender(
    lab: &Lab,
    link: &LabLink,
    placement: &CpuPlacement,
    has_offload: bool,
    has_queue_cpus: bool,
) -> Result<(), TestbedError> {
    let sender = &lab.senders()[0];
    let host = Host::live_with_sys(sender.sys_path()?);
    let interface = &link.sender.interface;
    let mut settings = Vec::new();
    if has_offload {
        // If a sender can segment TCP itself, veth passes UDP around NAPI and GRO, which a NIC
        // never does (veth_skb_is_eligible_for_gro in drivers/net/veth.c, Linux 5.13).
        let setting = Setting::Offload { interface: interface.clone(), offload: Offload::TcpSegmentation };
        settings.push((setting, SettingValue::new("off")));
    }
    if has_queue_cpus {
        // A transmit queue here is a NAPI instance at the receiver: one per CPU.
        for queue in 0..link.queues {
            let direction = QueueDirection::Transmit;
            let setting = Setting::QueueCpus { interface: interface.clone(), direction, queue };
            let cpus = queue_cpus(&placement.generator, queue, link.queues);
            settings.push((setting, SettingValue::new(cpus.to_mask())));
        }
    }
    sender.run(|| settings.iter().try_for_each(|(setting, value)| setting.write(&host, value)))??;
    Ok(())
}

/// Tries each setting of the receiver with its baseline value.
fn probe(host: &Host, receiver: &ReceiverInterface, host_wide: bool) -> SettableParts {
    let interface = &receiver.interface;
    let write = |setting: &Setting, value: SettingValue| {
        setting.write(host, &value).map_err(|error| error.to_string())
    };
    let unset_cpus = |direction| {
        let setting = Setting::QueueCpus { interface: interface.clone(), direction, queue: 0 };
        write(&setting, SettingValue::new("0"))
            .map_err(|why| format!("RPS and XPS masks require root, a user namespace is not enough: {why}"))
    };
    let gro = Setting::Offload { interface: interface.clone(), offload: Offload::GenericReceive };
    let table = Setting::NftTable { family: NftFamily::Inet, table: stock::TABLE.to_owned() };
    SettableParts {
        queue_cpus: unset_cpus(QueueDirection::Receive).and_then(|()| unset_cpus(QueueDirection::Transmit)),
        offload: write(&gro, SettingValue::new("on")),
        netfilter: write(&table, stock::ruleset(receiver.port)),
        audit: audit(host, host_wide),
        busy_poll: server::busy_poll_refusal().map_or(Ok(()), Err),
    }
}

/// The current value, if it may be changed.
fn audit(host: &Host, host_wide: bool) -> Result<SettingValue, String> {
    if !host_wide {
        return Err("auditing is a setting of the whole machine; --host-wide allows to change it".to_owned());
    }
    let value = Setting::Audit.read(host).map_err(|error| error.to_string())?;
    match value.as_str() {
        "0" => Err("auditing is off on this machine already".to_owned()),
        "2" => Err("auditing is locked until the next boot".to_owned()),
        _ => Ok(value),
    }
}

/// The generator, and the niceness of the server's workers.
pub(crate) fn generator(
    sender: &LabHost,
    sampler: &Sampler<'_>,
    placement: &CpuPlacement,
    target: SocketAddr,
    workload: &LoadWorkload,
) -> Result<(Box<dyn Generator>, Option<i32>), TestbedError> {
    let config = sampler.config;
    // Each thread has a flow of its own.
    let threads = placement.generator.len().min(config.flows.max(1) as usize);
    let start = |nice| {
        let options = GeneratorOptions {
            threads,
            cpus: Some(placement.generator.clone()),
            flows: config.flows as usize,
            workload: workload.clone(),
            no_fragment: config.no_fragment,
            backend: config.backend,
            // A step switches GRO off, and then the receiver's veth does not accept live frames.
            live_frames: LiveFrames::Never,
            nice,
            cancel: sampler.cancel.clone(),
            ..GeneratorOptions::new(vec![target])
        };
        sender.run(|| options.start())
    };
    if !placement.shared {
        return Ok((start(None)??, None));
    }
    match start(Some(GENERATOR_NICE))? {
        Ok(generator) => Ok((generator, Some(SERVER_NICE))),
        // A higher priority requires root; without it the server gets a lower one.
        Err(_) => Ok((start(None)??, Some(SERVER_NICE_UNPRIVILEGED))),
    }
}
