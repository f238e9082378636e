use linerate_trace::flame::result::FlameResult;

use super::*;
use crate::origin::HostSummary;
use crate::render::style::TextStyle;
use crate::render::{html, text};

const WIDE: TextStyle = TextStyle { width: 100, colour: false };
const NARROW: TextStyle = TextStyle { width: 80, colour: false };

fn flame(envelope: &Envelope<FlameResult>, full: bool, style: TextStyle) -> String {
    text::text(&Document { full, ..envelope.document() }, style)
}

/// A run on a server with one socket and many threads, made up.
pub(crate) fn envelope() -> Envelope<FlameResult> {
    let result = serde_json::from_str(include_str!("tests/result.json")).expect("a result");
    let host = HostSummary {
        name: Some("ns1".to_owned()),
        kernel: Some("6.18.0".to_owned()),
        cpu_model: Some("A CPU".to_owned()),
        ..HostSummary::default()
    };
    let argv = ["linerate", "flame", "--duration", "5"].map(str::to_owned).to_vec();
    Envelope { argv, ..Envelope::new(host, Some(1_772_355_900), result) }
}

#[test]
fn a_run_prints_in_100_columns() {
    insta::assert_snapshot!(flame(&envelope(), false, WIDE));
    let coloured = flame(&envelope(), false, TextStyle { colour: true, ..WIDE });
    assert!(coloured.contains("\u{1b}[31m41 %"), "{coloured}");
}

#[test]
fn a_full_run_prints_in_80_columns() {
    insta::assert_snapshot!(flame(&envelope(), true, NARROW));
}

#[test]
fn the_verdict_falls_back_from_hot_spots_to_lock_waits() {
    let mut document = envelope();
    let first =
        |document: &Envelope<FlameResult>| flame(document, false, WIDE).lines().next().map(str::to_owned);
    assert_eq!(
        first(&document).as_deref(),
        Some(
            "41 % of packet processing: CPUs wait for the lock of one socket's queue (socket.shared-by-threads)."
        )
    );
    document.result.spots.clear();
    let waits = "CPUs spend 35 % of their busy time waiting for locks; most of it because CPUs";
    assert!(first(&document).is_some_and(|line| line.starts_with(waits)), "{:?}", first(&document));
    document.result.contention = None;
    assert_eq!(
        first(&document).as_deref(),
        Some("No known hot spot; 53 % of the busy time is in interrupt context.")
    );
    document.result.profile = None;
    assert_eq!(first(&document).as_deref(), Some("Nothing was measured."));
}

#[test]
fn verdict_requires_enough_samples_and_an_alarm_enough_busy_time() {
    for (path_samples, share_of_busy, sentence, is_alarm) in [
        (5_942, 0.391, "41 % of packet processing", true),
        (100, 0.391, "41 % of packet processing", true),
        (99, 0.391, "Too few samples of packet processing for a verdict: 99.", false),
        (5_942, 0.001, "41 % of packet processing", false),
    ] {
        let mut document = envelope();
        document.result.contention = None;
        document.result.path_samples = path_samples;
        document.result.spots[0].share_of_busy = share_of_busy;
        let text = flame(&document, false, WIDE);
        assert!(text.starts_with(sentence), "{text}");
        assert_eq!(document.document().mark.is_some(), is_alarm, "{text}");
    }
}

#[test]
fn lock_waits_come_first_only_if_they_take_much_time() {
    let mut document = envelope();
    // Samples show the work of waking up. Other CPUs wait for its lock meanwhile.
    document.result.spots[0].id = "wake-ups".to_owned();
    let order = |document: &Envelope<FlameResult>| {
        let text = flame(document, false, WIDE);
        let at = |heading: &str| text.find(heading).unwrap_or_else(|| panic!("no {heading}: {text}"));
        (text.contains("busy time waiting for locks"), at("\nLock waits") < at("\nHot spots"))
    };
    assert_eq!(order(&document), (true, true));
    let contention = document.result.contention.as_mut().expect("made up");
    contention.locks[0].spot = None;
    let text = flame(&document, false, WIDE);
    assert!(text.starts_with("CPUs spend 35 % of their busy time waiting for locks; the callers are below."));
    document.result.contention.as_mut().expect("made up").spinning_ns /= 100;
    assert_eq!(order(&document), (false, false));
}

#[test]
fn idle_cpus_and_missing_samples_are_reported() {
    let mut document = envelope();
    document.result.spots.clear();
    document.result.functions.clear();
    let profile = document.result.profile.as_mut().expect("made up");
    profile.stacks.retain(|stack| stack.context == linerate_trace::flame::CpuContext::Idle);
    profile.cpus.iter_mut().for_each(|cpu| cpu.samples = cpu.idle);
    assert!(flame(&document, false, WIDE).starts_with("All samples are idle: the CPUs had nothing to do."));
    let profile = document.result.profile.as_mut().expect("made up");
    profile.stacks.clear();
    profile.cpus.iter_mut().for_each(|cpu| (cpu.samples, cpu.idle) = (0, 0));
    assert!(flame(&document, false, WIDE).starts_with("No sample was taken"));
}

#[test]
fn the_short_text_has_the_whole_remedy() {
    let mut document = envelope();
    document.result.spots[0].remedy =
        format!("{}and this is its end.", "Give each thread a socket of its own, ".repeat(12));
    for style in [WIDE, NARROW] {
        let text = flame(&document, false, style);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("and this is its end."), "{text}");
    }
}

#[test]
fn the_page_has_spots_waits_and_cpus_and_escapes_host_text() {
    let mut document = envelope();
    let name = "<script>alert(1)</script>&\"";
    document.host.name = Some(name.to_owned());
    document.argv.push(name.to_owned());
    document.result.functions[0].function = name.to_owned();
    let profile = document.result.profile.as_mut().expect("made up");
    profile.frames[0].name = name.to_owned();
    profile.stacks[0].comm = name.to_owned();
    let page = html::page(&document.document()).expect("a page");
    for part in [
        "41 %",
        "socket.shared-by-threads",
        "__udp_enqueue_schedule_skb",
        "2.10 s",
        "ksoftirqd",
        "net/ipv4/udp.c",
        "class=\"scroll graph\"",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains("<script") && !page.contains("onload="), "{page}");
}
