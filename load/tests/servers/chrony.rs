//! NTP: chronyd, which serves the local clock but does not set it.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use linerate_load::workload::ntp;
use linerate_load::{LoadSlot, PacingMode};
use linerate_testkit::reflector::installed::{self, find};

use crate::scene::{Scene, assert_sound, code};

const PORT: u16 = 1230;

/// The NTP packets that chronyd received and dropped (`chronyc serverstats`).
fn counters(scene: &Scene) -> Option<(u64, u64)> {
    let output = Command::new(find("chronyc")?)
        .arg("-h")
        .arg(scene.path("control"))
        .arg("serverstats")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.rsplit(':').next()?.trim().parse().ok()
    };
    Some((value("NTP packets received")?, value("NTP packets dropped")?))
}

#[test]
fn chronyd_and_generator_counts_agree() {
    let Some(mut scene) = Scene::set("chronyd_and_generator_counts_agree", "chronyd") else { return };
    let config = installed::chrony(scene.directory.path(), None, PORT).unwrap();
    let address = SocketAddr::new(scene.address(), PORT);
    let request = ntp::client().requests.remove(0);
    // -x: chronyd does not set the clock.
    scene.serve("chronyd", &["-x", "-d", "-u", "root", "-f", config.to_str().unwrap()], address, &request);

    scene.load(ntp::client(), address, 5, |generator| {
        for mode in [PacingMode::Rate { per_second: 4_000.0 }, PacingMode::Window { outstanding: 4 }] {
            let before = counters(&scene);
            let outcome = generator.run(&LoadSlot::new(mode, Duration::from_millis(400))).unwrap();
            let after = counters(&scene);
            assert_sound(&outcome);
            assert!(outcome.late == 0 && outcome.lost < outcome.sent / 10, "{outcome:?}");
            assert_eq!(code(&outcome, "secondary"), outcome.answered);
            assert!(outcome.codes.iter().all(|code| code.code == 5), "{:?}", outcome.codes);
            let (before, after) = (before.unwrap(), after.unwrap());
            // On a busy machine, chronyd's socket may drop some requests.
            assert_eq!((after.0 - before.0, after.1 - before.1), (outcome.answered, 0));
        }
    });
}
