//! The generator of live XDP frames between the hosts of a lab.

mod scene;
mod service;

use linerate_measure::{Generator as _, Mode};
use scene::{Scene, assert_balanced, rate, slot};

#[test]
fn an_echo_is_fully_answered() {
    let Some(scene) = Scene::new("an_echo_is_fully_answered") else { return };
    for v4 in [true, false] {
        let service = scene.echo(v4);
        let Some(mut generator) = scene.generator(&service, 5) else { return };
        let mut sent = 0;
        for mode in [rate(20_000.0), Mode::Window { outstanding: 3 }, rate(200.0)] {
            let outcome = generator.run(&slot(mode, 300)).unwrap();
            assert_balanced(&outcome);
            assert_eq!((outcome.lost, outcome.corrupt, outcome.foreign), (0, 0, 0), "{outcome:?}");
            assert!(outcome.sent > 0 && outcome.send_errors.total() == 0);
            if let Some(asked) = outcome.asked_per_second {
                assert_eq!(outcome.sent, (asked * 0.3).round() as u64, "the whole schedule is sent");
            }
            sent += outcome.sent;
        }
        drop(generator);
        assert_eq!(service.stop().received, sent);
    }
}
