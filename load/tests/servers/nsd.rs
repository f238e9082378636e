//! DNS: NSD with one zone.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use linerate_load::workload::dns;
use linerate_load::{LoadSlot, PacingMode, SlotOutcome};
use linerate_testkit::reflector::installed::{InstalledNsd, find};

use crate::scene::{Scene, assert_sound, code};

const PORT: u16 = 5300;

/// Four queries: the third name does not exist, and the fourth belongs to no zone of the server.
const QUERIES: &str = "\
www.example.test A
www.example.test AAAA
nothing.example.test A
www.elsewhere.test A
";

fn counters(scene: &Scene) -> HashMap<String, u64> {
    let output = Command::new(find("nsd-control").unwrap())
        .arg("-c")
        .arg(scene.path("nsd.conf"))
        .arg("stats_noreset")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

#[test]
fn nsd_and_generator_counts_agree() {
    let Some(mut scene) = Scene::set("nsd_and_generator_counts_agree", "nsd") else { return };
    let address = SocketAddr::new(scene.address(), PORT);
    let nsd = InstalledNsd {
        directory: scene.directory.path(),
        addresses: &[address],
        servers: 1,
        reuseport: false,
        zones: &[],
        options: &[],
    };
    let config = nsd.write().unwrap();
    let queries = || dns::from_text(QUERIES, "queries", &dns::DnsQueryOptions::default()).unwrap();
    let first = queries().requests.remove(0);
    scene.serve("nsd", &["-d", "-c", config.to_str().unwrap()], address, &first);

    scene.load(queries(), address, 4, |generator| {
        for mode in [
            PacingMode::Rate { per_second: 4_000.0 },
            PacingMode::Window { outstanding: 4 },
            PacingMode::Flood,
        ] {
            let before = counters(&scene);
            let outcome = generator.run(&LoadSlot::new(mode, Duration::from_millis(500))).unwrap();
            let after = counters(&scene);
            assert_sound(&outcome);
            assert_same(&outcome, |name| after[name] - before[name], mode);
        }
    });
}

/// Compares an outcome with the increase of NSD's counters.
fn assert_same(outcome: &SlotOutcome, rise: impl Fn(&str) -> u64, mode: PacingMode) {
    let reply_counts = ["NOERROR", "NXDOMAIN", "REFUSED"].map(|name| code(outcome, name));
    let answers = rise("num.rcode.NOERROR") + rise("num.rcode.NXDOMAIN") + rise("num.rcode.REFUSED");
    if mode == PacingMode::Flood {
        // A flood loses requests before NSD and replies after NSD.
        assert!(outcome.answered <= answers && answers <= outcome.sent, "{answers}: {outcome:?}");
        return;
    }
    // On a busy machine, NSD's socket may drop requests. NSD answers every request that it
    // receives, and the generator receives every reply.
    assert_eq!(rise("num.queries"), outcome.sent - outcome.lost, "{outcome:?}");
    assert_eq!(
        reply_counts,
        [rise("num.rcode.NOERROR"), rise("num.rcode.NXDOMAIN"), rise("num.rcode.REFUSED")]
    );
    assert_eq!(answers, outcome.answered);
    assert!(outcome.lost < outcome.sent / 10, "{outcome:?}");
    // The queries are sent in turn: of every four, two are answered, one name does not exist, and
    // one is refused. A slot continues at the query after the last one of the previous slot.
    let quarter = outcome.sent / 4;
    for (count, quarters) in reply_counts.iter().zip([2, 1, 1]) {
        let difference = count.abs_diff(quarter * quarters);
        assert!(difference <= quarters + outcome.lost, "{reply_counts:?} of {}", outcome.sent);
    }
}
