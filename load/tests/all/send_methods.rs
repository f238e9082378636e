//! Live frames and clones: when the generator uses each send method, and that its counters are
//! exact with both.

use linerate_host::setting::Offload;
use linerate_host::{Host, Setting, SettingValue};
use linerate_load::generator::{GeneratorOptions, LiveFrames};
use linerate_load::{PacingMode, SendMethod, SlotOutcome};
use linerate_testkit::reflector::XdpService;
use linerate_testkit::skip;

use crate::scene::Scene;
use crate::service::{assert_balanced, rate, slot};

const PORT: u16 = 7777;

const HIGH: f64 = 300_000.0;

/// Checks that every request was answered unless the link refused it, and that the generator sent
/// the requested rate.
fn assert_accounted(outcome: &SlotOutcome) {
    assert_balanced(outcome);
    assert_eq!(outcome.lost, outcome.self_watch.refused_by_link, "{outcome:?}");
    assert_eq!((outcome.corrupt, outcome.unsolicited, outcome.late, outcome.duplicate), (0, 0, 0, 0));
    if let (Some(per_second), false) = (outcome.requested_per_second, outcome.generator_bound) {
        assert_eq!(outcome.sent, (per_second * outcome.duration.as_secs_f64()).round() as u64);
    }
    assert!(outcome.bursts.median_requests > 0 && outcome.bursts.max_requests > 0, "{outcome:?}");
}

#[test]
fn send_method_depends_on_live_frames_and_mode_not_on_rate() {
    let Some(scene) = Scene::new("send_method_depends_on_live_frames_and_mode_not_on_rate") else { return };
    let interface = scene.link().receiver.interface.clone();
    let mut target = scene.receiver(true);
    target.set_port(PORT);
    let reflector =
        scene.lab().receiver().run(|| XdpService::reflector().port(PORT).attach(&interface)).unwrap();
    let mut answered_total = 0;
    for live_frames in [LiveFrames::Always, LiveFrames::Floods, LiveFrames::Never] {
        let options = GeneratorOptions { live_frames, ..scene.options(target, 8) };
        let Some(mut generator) = scene.generator_of(options) else { return };
        let method_for = |frames| if frames { SendMethod::LiveFrames } else { SendMethod::Clones };
        let paced = method_for(live_frames == LiveFrames::Always);
        let modes = [
            (rate(HIGH), paced),
            (rate(5_000.0), paced),
            (PacingMode::Window { outstanding: 4 }, SendMethod::Clones),
            (PacingMode::Flood, method_for(live_frames != LiveFrames::Never)),
        ];
        for (mode, send_method) in modes {
            let outcome = generator.run(&slot(mode, 200)).unwrap();
            assert_accounted(&outcome);
            assert_eq!(outcome.self_watch.send_method, send_method, "{mode:?}");
            answered_total += outcome.answered;
        }
    }
    assert_eq!(reflector.unwrap().account().unwrap().answered, answered_total);
}

#[test]
fn clones_are_used_if_the_receiver_accepts_no_live_frames() {
    let test = "clones_are_used_if_the_receiver_accepts_no_live_frames";
    let Some(scene) = Scene::new(test) else { return };
    let interface = scene.link().receiver.interface.clone();
    let gro = Setting::Offload { interface, offload: Offload::GenericReceive };
    let host = Host::live();
    if let Err(error) = scene.lab().receiver().run(|| gro.write(&host, &SettingValue::new("off"))).unwrap() {
        return skip(test, error.to_string());
    }
    let service = scene.echo(true);
    let Some(mut generator) = scene.generator(&service, 4) else { return };
    let fallbacks = generator.describe().fallbacks;
    assert!(fallbacks[0].contains("clones") && fallbacks[0].contains("switch GRO on"), "{fallbacks:?}");
    for mode in [rate(2_000.0), PacingMode::Flood] {
        let outcome = generator.run(&slot(mode, 100)).unwrap();
        assert_balanced(&outcome);
        assert_eq!(outcome.self_watch.send_method, SendMethod::Clones);
        assert!(outcome.answered > 0, "{outcome:?}");
    }
}

#[test]
fn clones_that_a_qdisc_of_this_host_drops_did_not_leave() {
    const TBF: &str = "qdisc add dev eth0 root tbf rate 1mbit burst 3kb limit 6kb";
    let test = "clones_that_a_qdisc_of_this_host_drops_did_not_leave";
    let Some(scene) = Scene::new(test) else { return };
    let arguments: Vec<&str> = TBF.split(' ').collect();
    let result = scene.lab().senders()[0].run(|| Host::live().program("tc", &arguments, ""));
    if let Err(why) = result.unwrap() {
        return skip(test, why);
    }
    let service = scene.echo(true);
    let Some(mut generator) = scene.generator(&service, 4) else { return };
    let outcome = generator.run(&slot(rate(10_000.0), 100)).unwrap();
    assert_balanced(&outcome);
    assert_eq!(outcome.self_watch.refused_by_link, 0, "{outcome:?}");
    assert!(outcome.send_errors.no_buffers > 0, "{outcome:?}");
}
