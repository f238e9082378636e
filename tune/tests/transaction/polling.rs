//! Polling of single queues of a veth. Writes to the files of the interface overwrite it.

use linerate_host::setting::{NapiKnob, Offload};
use linerate_host::{Host, Setting, SettingValue};
use linerate_lab::Lab;
use linerate_testkit::skip;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::transaction::{TuneTransaction, undo};

use crate::fake::{Scratch, begin};

#[test]
fn polling_of_single_queues_comes_back_with_that_of_their_interface() {
    let test = "polling_of_single_queues_comes_back_with_that_of_their_interface";
    let lab = match Lab::builder().queues(2).start() {
        Ok(lab) => lab,
        Err(error) => return skip(test, error),
    };
    let sys = lab.receiver().sys_path().expect("its sysfs").to_owned();
    let interface = lab.links()[0].receiver.interface.clone();
    let skipped = lab.receiver().run(move || on_receiver(&Host::live_with_sys(sys), &interface));
    if let Some(why) = skipped.expect("it runs") {
        skip(test, why);
    }
}

/// Returns the reason if the test cannot run here.
fn on_receiver(host: &Host, interface: &str) -> Option<String> {
    let name = || interface.to_owned();
    let polling = |queue| Setting::QueuePolling { interface: name(), queue };
    let knob = |knob| Setting::Napi { interface: name(), knob };
    let gro = Setting::Offload { interface: name(), offload: Offload::GenericReceive };
    let value = |text: &str| SettingValue::new(text);
    // A veth has NAPI instances while GRO is on.
    if let Err(error) = gro.write(host, &value("on")) {
        return Some(error.to_string());
    }
    match polling(1).read(host) {
        Err(error) if error.is_unsupported() => return Some(error.to_string()),
        read => drop(read.expect("the instance of queue 1")),
    }
    let own = value("defer-hard-irqs 7 gro-flush-timeout 30000 irq-suspend-timeout 9000");
    match polling(1).write(host, &own) {
        // This requires CAP_NET_ADMIN in the initial user namespace.
        Err(error) if error.is_denied() => return Some(error.to_string()),
        written => written.expect("set"),
    }
    let now = || [0, 1].map(|queue| polling(queue).read(host).expect("read").to_string());
    let before = now();
    assert!(
        before[1].starts_with("defer-hard-irqs 7 gro-flush-timeout 30000 irq-suspend-timeout 9000"),
        "{before:?}"
    );

    let scratch = Scratch::new();
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::begin(&mut writer, host, begin()).expect("begun");
    for (setting, to) in [(knob(NapiKnob::DeferHardIrqs), "2"), (knob(NapiKnob::GroFlushTimeout), "20000")] {
        transaction.change(host, &setting, &value(to)).expect("journalled");
    }
    transaction.end(None).expect("ended");
    assert!(
        now().iter().all(|polling| polling.starts_with("defer-hard-irqs 2 gro-flush-timeout 20000")),
        "{:?}",
        now()
    );
    let undone = undo(&mut writer, host, None, Asked).expect("undone");
    assert!(!undone.has_failures() && !undone.has_skipped(), "{undone:#?}");
    assert_eq!(now(), before);
    None
}
