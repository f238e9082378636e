//! How a reuseport group chooses a socket (`bpf/steer.bpf.c`, SO_ATTACH_REUSEPORT_EBPF; Linux
//! 5.10).

mod group;
mod live;
mod placed;
mod program;
mod steered;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::SettingValue;
use super::knob::{Knob, WriteRefusal};
use crate::stage::socket::SocketProtocol;
use crate::{Host, HostError};

pub use steered::{SteeredSocket, SteeredSockets, steered};

/// The sockets (cookies) for the packets of each CPU. Several sockets of one CPU share its flows by
/// hash. The kernel's hash decides for CPUs that are not in the table, and if their sockets are
/// closed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SteeringTable {
    pub by_cpu: BTreeMap<u32, Vec<u64>>,
    /// Whether a QUIC client stays with its socket when its address changes: packets go by the
    /// connection ID where it is known.
    pub follows_quic_ids: bool,
}

impl SteeringTable {
    /// Sockets of several CPUs are repeated.
    pub fn cookies(&self) -> impl Iterator<Item = u64> {
        self.by_cpu.values().flatten().copied()
    }

    /// With the sockets of each CPU in ascending order.
    fn sorted(mut self) -> Self {
        self.by_cpu.values_mut().for_each(|cookies| cookies.sort_unstable());
        self
    }
}

impl fmt::Display for SteeringTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.follows_quic_ids { "by-quic-id" } else { "by-cpu" })?;
        for (cpu, cookies) in &self.by_cpu {
            let cookies: Vec<String> = cookies.iter().map(u64::to_string).collect();
            write!(f, " {cpu}:{}", cookies.join("+"))?;
        }
        Ok(())
    }
}

impl FromStr for SteeringTable {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str =
            "'by-cpu' and the cookies of each CPU's sockets, such as 'by-cpu 0:41 1:42+43'";
        let item = |word: &str| {
            let (cpu, cookies) = word.split_once(':')?;
            let cookies: Vec<u64> = cookies.split('+').map(str::parse).collect::<Result<_, _>>().ok()?;
            Some((cpu.parse().ok()?, cookies))
        };
        let mut words = text.split_ascii_whitespace();
        let follows_quic_ids = match words.next() {
            Some("by-cpu") => false,
            Some("by-quic-id") => true,
            _ => return Err(EXPECTED),
        };
        let mut by_cpu = BTreeMap::new();
        for word in words {
            let (cpu, cookies) = item(word).ok_or(EXPECTED)?;
            if by_cpu.insert(cpu, cookies).is_some() {
                return Err(EXPECTED);
            }
        }
        if by_cpu.is_empty() { Err(EXPECTED) } else { Ok(Self { by_cpu, follows_quic_ids }) }
    }
}

pub(super) struct ReuseportGroup {
    pub(super) namespace: u64,
    pub(super) protocol: SocketProtocol,
    pub(super) local: SocketAddr,
}

impl ReuseportGroup {
    fn key(&self) -> (u64, SocketProtocol, SocketAddr) {
        (self.namespace, self.protocol, self.local)
    }

    fn address(&self) -> String {
        format!("{} {}", self.protocol.name(), self.local)
    }

    fn call(&self) -> String {
        format!("steering/{}/{}", self.protocol.name(), self.local)
    }
}

impl Knob for ReuseportGroup {
    fn name(&self) -> String {
        format!("steering of {}", self.address())
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let what = format!("reading what steers {}", self.address());
        host.call(&self.call(), &what, || live::read(self)).map(|text: String| SettingValue::new(text))
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        if value.as_str() == "none" { Ok(()) } else { value.as_str().parse::<SteeringTable>().map(|_| ()) }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        if !host.is_live() {
            let now = self.read(host)?;
            if now.as_str() != "none" && now.as_str().parse::<SteeringTable>().is_err() {
                return Err(WriteRefusal::Reason(live::foreign(now.as_str())));
            }
        }
        let what = format!("steering {}", self.address());
        let mut reason = None;
        let act = || {
            let done = match value.as_str().parse::<SteeringTable>() {
                Ok(table) => live::steer(self, &table),
                Err(_) => live::release(self),
            };
            done.map_err(|failure| match failure {
                live::SteeringFailure::Io(error) => error,
                live::SteeringFailure::Reason(why) => {
                    reason = Some(why);
                    std::io::ErrorKind::Other.into()
                }
            })
        };
        let written = host.act_to(&self.call(), &what, act, &value.as_str());
        match reason {
            Some(why) => Err(WriteRefusal::Reason(why)),
            None => Ok(written?),
        }
    }

    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        let table = |value: &SettingValue| value.as_str().parse().map(SteeringTable::sorted).ok();
        one == other || table(one).is_some_and(|table_of_one| Some(table_of_one) == table(other))
    }

    fn command(&self, _value: &SettingValue) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Setting, SettingError};
    use proptest::prelude::*;

    fn setting() -> Setting {
        let local = SocketAddr::from(([127, 0, 0, 1], 53));
        Setting::Steering { namespace: 1, protocol: SocketProtocol::Udp, local }
    }

    #[test]
    fn a_table_is_set_and_taken_away_on_a_fake_host() {
        let host = Host::scripted([("/calls/steering/udp/127.0.0.1:53.json", "\"none\"")]);
        let table = SettingValue::new("by-cpu 0:41 1:42+43");
        setting().write(&host, &table).expect("written");
        assert_eq!(setting().read(&host).expect("read"), table);
        assert!(setting().same(&table, &SettingValue::new("by-cpu 1:43+42 0:41")));
        assert!(!setting().same(&table, &SettingValue::new("by-cpu 0:41 1:42")));
        setting().write(&host, &SettingValue::new("none")).expect("written");
        assert_eq!(setting().read(&host).expect("read").as_str(), "none");
    }

    #[test]
    fn what_is_not_ours_is_not_replaced() {
        for there in ["classic", "classic-by-cpu", "program choose (id 9)"] {
            let host = Host::scripted([("/calls/steering/udp/127.0.0.1:53.json", format!("{there:?}"))]);
            for value in ["none", "by-cpu 0:41"] {
                let error = setting().write(&host, &SettingValue::new(value)).expect_err(there);
                assert!(matches!(error, SettingError::Refused { .. }), "{error}");
            }
            assert_eq!(setting().read(&host).expect("read").as_str(), there);
        }
    }

    #[test]
    fn a_value_of_unknown_words_is_none() {
        let bad = [
            "",
            "classic",
            "hash",
            "by-cpu",
            "by-cpu 0",
            "by-cpu 0:",
            "by-cpu x:1",
            "by-cpu 0:1+",
            "by-cpu 0:1 0:2",
        ];
        for bad in bad.into_iter().chain(["by-cpu 0:1 please", "program choose (id 9)", "by-cpu 0:-1"]) {
            let error = setting().check(&SettingValue::new(bad)).expect_err(bad);
            assert!(matches!(error, SettingError::BadValue { .. }), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_table_survives_its_text(
            by_cpu in proptest::collection::btree_map(
                any::<u32>(), proptest::collection::vec(any::<u64>(), 1..4), 1..6),
            follows_quic_ids in any::<bool>(),
        ) {
            let table = SteeringTable { by_cpu, follows_quic_ids };
            prop_assert_eq!(table.to_string().parse::<SteeringTable>(), Ok(table));
        }

        #[test]
        fn any_text_is_a_table_or_none(text in "(by-(cpu|quic-id) )?[0-9:+ x-]{0,30}") {
            if let Ok(table) = text.parse::<SteeringTable>() {
                prop_assert_eq!(table.to_string().parse::<SteeringTable>(), Ok(table));
            }
        }
    }
}
