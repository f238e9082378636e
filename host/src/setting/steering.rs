//! How a reuseport group chooses a socket (`bpf/steer.bpf.c`, SO_ATTACH_REUSEPORT_EBPF; Linux
//! 5.10).

mod group;
mod live;
mod program;
mod table;
mod table_rows;

use std::net::SocketAddr;

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::netlink::sock_diag::SocketProtocol;
use crate::{Host, HostError};
use live::SteeringFailure;

pub(super) use table::ReuseportGroup;
pub use table::{SteeredSocket, SteeredSockets, SteeringTable};

/// Counts of linerate's program since it was attached, and per socket since it was added; `None` if
/// it is not attached.
///
/// # Errors
/// As for reading [`crate::Setting::Steering`]: [`HostError::is_gone`] if no socket is bound to the
/// address, and another error if the calling thread is in another network namespace.
pub fn steering_counts(
    host: &Host,
    namespace: u64,
    protocol: SocketProtocol,
    local: SocketAddr,
) -> Result<Option<SteeredSockets>, HostError> {
    let group = ReuseportGroup { namespace, protocol, local };
    let operation = format!("reading what the steering program of {} did", group.address());
    host.call(&format!("steered/{}/{local}", protocol.name()), &operation, || {
        live::steering_counts(&group).map_err(live::explain_error)
    })
}

impl Knob for ReuseportGroup {
    fn name(&self) -> String {
        format!("steering of {}", self.address())
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let operation = format!("reading what steers {}", self.address());
        let read = || live::read(self).map_err(live::explain_error);
        host.call::<String>(&self.call_key(), &operation, read).map(SettingValue::new)
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        match value.as_str() {
            "none" => Ok("none".to_owned()),
            table => table.parse::<SteeringTable>().map(|table| table.sorted().to_string()),
        }
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let what = format!("steering {}", self.address());
        if !host.is_live() {
            let current = self.read(host)?;
            if self.canonical(&current).is_err() {
                return Err(WriteRefusal::Reason(live::foreign_program_reason(current.as_str())));
            }
            return Ok(host.apply_change_to(&self.call_key(), &what, || Ok(()), &value.as_str())?);
        }
        let result = match value.as_str().parse::<SteeringTable>() {
            Ok(table) => live::steer(self, &table),
            Err(_) => live::release(self),
        };
        result.map_err(|failure| match failure {
            SteeringFailure::Io(error) => HostError::Call { what, source: live::explain_error(error) }.into(),
            SteeringFailure::Reason(why) => WriteRefusal::Reason(why),
        })
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
    fn steering_table_is_set_and_removed_on_a_scripted_host() {
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
    fn steering_of_other_programs_is_not_replaced() {
        for current_value in ["classic", "classic-by-cpu", "program choose (id 9)"] {
            let host =
                Host::scripted([("/calls/steering/udp/127.0.0.1:53.json", format!("{current_value:?}"))]);
            for value in ["none", "by-cpu 0:41"] {
                let error = setting().write(&host, &SettingValue::new(value)).expect_err(current_value);
                assert!(matches!(error, SettingError::Refused { .. }), "{error}");
            }
            assert_eq!(setting().read(&host).expect("read").as_str(), current_value);
        }
    }

    #[test]
    fn invalid_steering_values_are_refused() {
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
        fn steering_tables_round_trip_through_text(
            by_cpu in proptest::collection::btree_map(
                any::<u32>(), proptest::collection::vec(any::<u64>(), 1..4), 1..6),
            follows_quic_ids in any::<bool>(),
        ) {
            let table = SteeringTable { by_cpu, follows_quic_ids };
            prop_assert_eq!(table.to_string().parse::<SteeringTable>(), Ok(table));
        }
    }
}
