//! Polling of single queues of a veth. Writes to the files of the interface overwrite it.

use linerate_host::setting::{NapiKnob, Offload};
use linerate_host::{Host, Setting};
use linerate_lab::Lab;
use linerate_testkit::skip;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::transaction::undo;

use crate::fake::{Scratch, begin, tune, value};

#[test]
fn undo_of_interface_polling_restores_polling_of_single_queues() {
    let test = "undo_of_interface_polling_restores_polling_of_single_queues";
    let lab = match Lab::builder().queues(2).start() {
        Ok(lab) => lab,
        Err(error) => return skip(test, error),
    };
    let sys = lab.receiver().sys_path().expect("its sysfs").to_owned();
    let interface = lab.links()[0].receiver.interface.clone();
    let skip_reason = lab.receiver().run(move || on_receiver(&Host::live_with_sys(sys), &interface));
    if let Some(why) = skip_reason.expect("running") {
        skip(test, why);
    }
}

/// Returns the reason if the test cannot run here.
fn on_receiver(host: &Host, interface: &str) -> Option<String> {
    let name = || interface.to_owned();
    let polling = |queue| Setting::QueuePolling { interface: name(), queue };
    let knob = |knob| Setting::Napi { interface: name(), knob };
    let gro = Setting::Offload { interface: name(), offload: Offload::GenericReceive };
    // A veth has NAPI instances while GRO is on.
    if let Err(error) = gro.write(host, &value("on")) {
        return Some(error.to_string());
    }
    match polling(1).read(host) {
        Err(error) if error.is_unsupported() => return Some(error.to_string()),
        read => drop(read.expect("the instance of queue 1")),
    }
    let queue_value = value("defer-hard-irqs 7 gro-flush-timeout 30000 irq-suspend-timeout 9000");
    match polling(1).write(host, &queue_value) {
        // This requires CAP_NET_ADMIN in the initial user namespace.
        Err(error) if error.is_denied() => return Some(error.to_string()),
        written => written.expect("set"),
    }
    let values = || [0, 1].map(|queue| polling(queue).read(host).expect("read").to_string());
    let before = values();
    assert!(
        before[1].starts_with("defer-hard-irqs 7 gro-flush-timeout 30000 irq-suspend-timeout 9000"),
        "{before:?}"
    );

    let scratch = Scratch::new();
    let changes = [(NapiKnob::DeferHardIrqs, "2"), (NapiKnob::GroFlushTimeout, "20000")];
    let changes = changes.map(|(name, to)| (knob(name), value(to)));
    tune(&scratch, host, begin(), &changes).expect("journalled");
    assert!(
        values().iter().all(|polling| polling.starts_with("defer-hard-irqs 2 gro-flush-timeout 20000")),
        "{:?}",
        values()
    );
    let report = undo(&mut scratch.lock(), host, None, Asked).expect("undone");
    assert!(!report.has_failures() && !report.has_skipped(), "{report:#?}");
    assert_eq!(values(), before);
    None
}
