use super::*;
use crate::render::made_up_flame;

const WIDE: TextStyle = TextStyle { width: 100, colour: false };
const NARROW: TextStyle = TextStyle { width: 80, colour: false };

#[test]
fn a_run_in_a_hundred_columns() {
    insta::assert_snapshot!(flame(&made_up_flame::run(), false, WIDE));
}

#[test]
fn a_run_in_full_and_narrow() {
    insta::assert_snapshot!(flame(&made_up_flame::run(), true, NARROW));
}

#[test]
fn lines_end_in_time_and_colour_is_asked_for() {
    for style in [WIDE, NARROW] {
        for full in [false, true] {
            let text = flame(&made_up_flame::run(), full, style);
            assert!(text.lines().all(|line| line.chars().count() <= style.width), "{text}");
            assert!(!text.contains('\u{1b}'));
        }
    }
    assert!(
        flame(&made_up_flame::run(), false, TextStyle { colour: true, ..WIDE }).contains("\u{1b}[31m41 %")
    );
}

#[test]
fn waits_are_the_verdict_where_no_sample_shows_them() {
    let mut document = made_up_flame::run();
    let first = |document: &FlameDocument| flame(document, false, WIDE).lines().next().map(str::to_owned);
    assert_eq!(
        first(&document).as_deref(),
        Some(
            "41 % of packet processing: CPUs wait for the lock of one socket's queue (socket.shared-by-threads)."
        )
    );
    document.spots.clear();
    let waits = "35 % of the time that CPUs are busy they wait for locks; most of that where CPUs and";
    assert!(first(&document).is_some_and(|line| line.starts_with(waits)), "{:?}", first(&document));
    document.contention = None;
    assert_eq!(
        first(&document).as_deref(),
        Some("No known hot spot; 53 % of the busy time is in interrupt context.")
    );
    document.profile = None;
    assert_eq!(first(&document).as_deref(), Some("Nothing was looked at."));
}

#[test]
fn waits_come_first_where_they_take_much_time_and_not_where_they_take_little() {
    let mut document = made_up_flame::run();
    // What samples show is the work of waking up, under whose lock the others wait.
    document.spots[0].id = "wake-ups".to_owned();
    let order = |document: &FlameDocument| {
        let text = flame(document, false, WIDE);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what}: {text}"));
        (text.contains("they wait for locks"), at("\nLocks:") < at("\nHot spots"))
    };
    assert_eq!(order(&document), (true, true));
    let contention = document.contention.as_mut().expect("made up");
    contention.locks[0].spot = None;
    let text = flame(&document, false, WIDE);
    assert!(
        text.starts_with("35 % of the time that CPUs are busy they wait for locks; the callers are below.")
    );
    document.contention.as_mut().expect("made up").spinning_ns /= 100;
    assert_eq!(order(&document), (false, false));
}

#[test]
fn idle_cpus_are_told() {
    let mut document = made_up_flame::run();
    document.spots.clear();
    document.functions.clear();
    let profile = document.profile.as_mut().expect("made up");
    profile.stacks.retain(|stack| stack.context == linerate_trace::flame::CpuContext::Idle);
    profile.cpus.iter_mut().for_each(|cpu| cpu.samples = cpu.idle);
    assert!(flame(&document, false, WIDE).starts_with("All samples are idle: the CPUs had nothing to do."));
    let profile = document.profile.as_mut().expect("made up");
    profile.stacks.clear();
    profile.cpus.iter_mut().for_each(|cpu| (cpu.samples, cpu.idle) = (0, 0));
    assert!(flame(&document, false, WIDE).starts_with("No sample was taken"));
}

#[test]
fn a_remedy_is_whole_in_the_short_form_too() {
    let mut document = made_up_flame::run();
    document.spots[0].remedy =
        format!("{}and this is its end.", "Give each thread a socket of its own, ".repeat(12));
    for style in [WIDE, NARROW] {
        let text = flame(&document, false, style);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("and this is its end."), "{text}");
    }
}
