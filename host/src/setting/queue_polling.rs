//! How the NAPI instance of a receive queue polls (netdev netlink, `napi-set`, Linux 6.13).
//!
//! A value consists of pairs for the parameters that the kernel has: `defer-hard-irqs 2
//! gro-flush-timeout 20000 irq-suspend-timeout 0 threaded 0`. The files of the interface set all
//! its instances (`netdev_set_defer_hard_irqs` of net/core/dev.h, Linux 6.18).

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::known::number;
use crate::netlink::napi;
use crate::stage::softirq::{NapiInstance, NapiPolling};
use crate::{Host, HostError};

const EXPECTED: &str = "pairs such as defer-hard-irqs 2 gro-flush-timeout 20000";

pub(super) struct QueuePolling<'a> {
    pub(super) interface: &'a str,
    pub(super) queue: u32,
}

impl QueuePolling<'_> {
    fn find_instance(&self, host: &Host) -> Result<NapiInstance, HostError> {
        let path = format!("/sys/class/net/{}/ifindex", self.interface);
        let index = host.read_parsed(&path, number::<u32>)?;
        let mut instances: Vec<NapiInstance> =
            host.call("netdev/napi", &self.operation("reading"), napi::instances)?;
        instances.retain(|napi| napi.interface_index == index);
        // veth and other drivers do not report which queue an instance polls, but create instances
        // in the order of the queues.
        let position = if instances.iter().all(|napi| napi.receive_queues.is_empty()) {
            usize::try_from(self.queue).ok().filter(|position| *position < instances.len())
        } else {
            instances.iter().position(|napi| napi.receive_queues.contains(&self.queue))
        };
        let call_error = |errno| HostError::Call {
            what: self.operation("reading"),
            source: std::io::Error::from_raw_os_error(errno),
        };
        let instance = instances.swap_remove(position.ok_or_else(|| call_error(libc::ENOENT))?);
        if instance.polling == NapiPolling::default() {
            Err(call_error(libc::EOPNOTSUPP))
        } else {
            Ok(instance)
        }
    }

    fn operation(&self, verb: &str) -> String {
        format!("{verb} the {}", self.name())
    }
}

// Without a command: the number of an instance is known only while it exists.
impl Knob for QueuePolling<'_> {
    fn name(&self) -> String {
        format!("polling of {} rx-{}", self.interface, self.queue)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        self.find_instance(host).map(|instance| SettingValue::from(instance.polling))
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        parse(value).map(|_| value.to_string()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let polling = parse(value).ok_or(EXPECTED)?;
        let id = self.find_instance(host)?.id;
        let rehearse = |instances: &mut Vec<NapiInstance>| {
            instances.iter_mut().filter(|napi| napi.id == id).for_each(|napi| napi.polling = polling);
        };
        let change = || napi::set_polling(id, &polling);
        Ok(host.apply_change("netdev/napi", &self.operation("setting"), change, rehearse)?)
    }

    // Compares the parameters that both values have.
    fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        let (Some(left), Some(right)) = (parse(left), parse(right)) else { return false };
        pairs(left)
            .iter()
            .zip(pairs(right))
            .all(|((_, left), (_, right))| left.is_none() || right.is_none() || *left == right)
    }
}

fn pairs(polling: NapiPolling) -> [(&'static str, Option<u64>); 4] {
    [
        ("defer-hard-irqs", polling.defer_hard_irqs.map(u64::from)),
        ("gro-flush-timeout", polling.gro_flush_timeout_ns),
        ("irq-suspend-timeout", polling.irq_suspend_timeout_ns),
        ("threaded", polling.threaded.map(u64::from)),
    ]
}

impl From<NapiPolling> for SettingValue {
    fn from(polling: NapiPolling) -> Self {
        let named_values =
            pairs(polling).into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        SettingValue::new(named_values.collect::<Vec<_>>().join(" "))
    }
}

fn parse(value: &SettingValue) -> Option<NapiPolling> {
    let mut polling = NapiPolling::default();
    let mut words = value.as_str().split_whitespace();
    while let Some(name) = words.next() {
        let number = words.next()?;
        match name {
            "defer-hard-irqs" => polling.defer_hard_irqs = Some(number.parse().ok()?),
            "gro-flush-timeout" => polling.gro_flush_timeout_ns = Some(number.parse().ok()?),
            "irq-suspend-timeout" => polling.irq_suspend_timeout_ns = Some(number.parse().ok()?),
            "threaded" => polling.threaded = Some(number.parse().ok()?),
            _ => return None,
        }
    }
    (polling != NapiPolling::default()).then_some(polling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    #[test]
    fn polling_of_a_queue_is_set_on_its_napi_instance() {
        let napi = |id, queue, more: &str| {
            format!(r#"{{"interface_index": 4, "id": {id}, "receive_queues": [{queue}]{more}}}"#)
        };
        let polling = r#", "defer_hard_irqs": 0, "gro_flush_timeout_ns": 0"#;
        let list = format!("[{}, {}]", napi(8193, 0, polling), napi(8194, 1, ""));
        let host = Host::scripted([
            ("/sys/class/net/eth0/ifindex", "4\n".to_owned()),
            ("/calls/netdev/napi.json", list),
        ]);
        let setting = |queue| Setting::QueuePolling { interface: "eth0".into(), queue };
        let value = SettingValue::new("defer-hard-irqs 2 gro-flush-timeout 20000");
        assert_eq!(setting(0).read(&host).expect("read").as_str(), "defer-hard-irqs 0 gro-flush-timeout 0");
        setting(0).write(&host, &value).expect("written");
        assert_eq!(setting(0).read(&host).expect("read"), value);
        assert!(setting(1).read(&host).expect_err("an old kernel").is_unsupported());
        assert!(setting(7).read(&host).is_err());
        for bad in ["", "defer-hard-irqs", "defer-hard-irqs many", "weight 64", "threaded -1"] {
            assert!(setting(0).check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
    }
}
