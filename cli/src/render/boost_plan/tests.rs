use linerate_host::Known;

use super::sample::nsd;
use super::*;

const WIDE: TextStyle = TextStyle { width: 100, colour: false };

#[test]
fn the_first_line_is_the_verdict() {
    let sample = nsd();
    let text = plan(&sample.planned(), false, WIDE);
    assert!(
        text.starts_with(
            "nsd on port 53: 54 % of 1,000 datagrams were read on the CPU they arrived on. This plan would steer\n\
             1 group of sockets by CPU and pin 2 threads.\n"
        ),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn sockets_have_their_readers_and_where_their_packets_landed() {
    let text = plan(&nsd().planned(), false, WIDE);
    for line in [
        "  udp 0.0.0.0:53: 2 sockets, chosen by the kernel's hash of the flow",
        "    0      41         208     0        500        60 %  813 nsd (seen to read)",
        "    -      45         208     0          -           -  813 nsd (seen to read)",
        "      812  nsd   -       only holds sockets; 1 thread",
        "      813  nsd   812     reads, 1 thread, not pinned (CPUs 0-3)",
    ] {
        assert!(text.lines().any(|told| told == line), "no '{line}' in\n{text}");
    }
}

#[test]
fn places_tell_who_reads_what_arrives_where() {
    let text = plan(&nsd().planned(), false, WIDE);
    assert!(text.contains("    0  560 (56 %)  813             41 45\n"), "{text}");
    assert!(text.contains("packets come by CPUs 2-3 too, they are read by the thread nearest"), "{text}");
    let full = plan(&nsd().planned(), true, WIDE);
    assert!(full.contains("    2     0 (0 %)  on CPU 0        41 45\n"), "{full}");
}

#[test]
fn what_is_refused_and_advised_is_told_with_its_reason() {
    let text = plan(&nsd().planned(), false, WIDE);
    for line in [
        "  tcp 0.0.0.0:53",
        "    is steered already by a classic program: left as it is",
        "    option  server-count: 4",
        "    source  https://nsd.docs.nlnetlabs.nl/",
    ] {
        assert!(text.lines().any(|told| told == line), "no '{line}' in\n{text}");
    }
}

#[test]
fn a_server_that_cannot_be_helped_is_told_why_at_once() {
    let mut sample = nsd();
    sample.boost.plan.changes.clear();
    sample.boost.refusals.truncate(1);
    sample.agreement = Known::unknown("no BTF");
    let text = plan(&sample.planned(), false, WIDE).replace('\n', " ");
    assert!(
        text.starts_with(
            "nsd on port 53: where its packets land is not known (no BTF). Nothing can be done from outside: tcp \
             0.0.0.0:53: is steered already"
        ),
        "{text}"
    );
    sample.boost.refusals.clear();
    let text = plan(&sample.planned(), false, WIDE);
    assert!(text.starts_with("nsd on port 53: nothing to change; where "), "{text}");
}
