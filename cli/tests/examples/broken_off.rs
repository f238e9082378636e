//! A tune that broke off on the lab's server: the kernel refused its second change.

use anyhow::Result;
use serde_json::json;

use crate::mark::ExampleHost;
use crate::stage::ExampleTestbed;

/// Whether the kernel would refuse the change again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalState {
    /// The kernel would accept the change, because the cause is gone.
    Over,
    Stays,
}

/// Name, old value and new value. The kernel refuses a local port range that begins below the
/// unprivileged ports.
const CHANGES: [[&str; 3]; 2] = [
    ["net.ipv4.ip_default_ttl", "64", "63"],
    ["net.ipv4.ip_local_port_range", "32768\t60999", "1500\t60999"],
];

/// Undoes all tunes in effect, and starts a tune that breaks off.
pub(crate) fn make(stage: &mut ExampleTestbed, refusal: RefusalState) -> Result<()> {
    let changes = CHANGES.map(|[name, from, to]| {
        json!({"setting": {"sysctl": name}, "from": from, "to": to, "why": "an example", "findings": [],
               "effect": null, "source": null, "risk": null, "interrupts": "nothing", "claims": []})
    });
    let plan = json!({"schema": "linerate.plan/2", "version": env!("CARGO_PKG_VERSION"), "goal": "an example",
                      "devices": [], "cpus": [], "layouts": [], "exclusions": [], "skipped": [], "changes": changes});
    stage.raise_lab()?;
    stage.write("refused.json", &plan.to_string())?;
    stage.run_or_fail("while linerate tune undo >/dev/null 2>&1; do :; done", ExampleHost::Server)?;
    stage.run_or_fail("sysctl -qw net.ipv4.ip_unprivileged_port_start=2000", ExampleHost::Server)?;
    stage.run_or_fail("linerate tune apply --plan refused.json --yes; [ $? = 2 ]", ExampleHost::Server)?;
    match refusal {
        RefusalState::Over => {
            stage.run_or_fail("sysctl -qw net.ipv4.ip_unprivileged_port_start=1024", ExampleHost::Server)
        }
        RefusalState::Stays => Ok(()),
    }
}
