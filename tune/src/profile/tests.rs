use linerate_host::diagnosis::rules;

use super::*;

fn error(text: &str) -> String {
    TuneProfile::parse(text, "mine.toml").expect_err("wrong").to_string()
}

/// The text of the profile `udp-server` with one replacement.
fn profile_text_with(from: &str, to: &str) -> String {
    let text = BUILTIN[0].1;
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn builtin_profiles_parse_and_name_every_finding() {
    for (name, text) in TuneProfile::builtin() {
        let profile = TuneProfile::named(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((profile.name.as_str(), profile.text.as_str()), (name, text));
        for rule in rules() {
            assert_ne!(*profile.verdict(rule.id), FindingPolicy::Unnamed, "{name}: {}", rule.id);
        }
        for line in text.lines() {
            assert!(line.len() <= 400, "{name}: {line}");
        }
    }
}

#[test]
fn finding_id_overrides_its_stage_wildcard() {
    let text = profile_text_with("\"thread.*\" =", "\"thread.*\" = \"all\"\n\"thread.unpinned\" =");
    let profile = TuneProfile::parse(&text, "mine.toml").expect("a profile");
    assert_eq!(*profile.verdict("thread.far-node"), FindingPolicy::Ask("all".to_owned()));
    assert!(matches!(profile.verdict("thread.unpinned"), FindingPolicy::Ask(why) if why != "all"));
    assert_eq!(*profile.verdict("thread.audit"), FindingPolicy::Fix(Severity::Low));
    assert_eq!(*profile.verdict("nothing.at-all"), FindingPolicy::Unnamed);
}

#[test]
fn unknown_profile_error_lists_the_builtin_profiles() {
    assert_eq!(
        TuneProfile::named("web").expect_err("none").to_string(),
        "no profile 'web': there are udp-server, udp-server-with-tcp, hypervisor, low-latency; a file of your own is named \
         with a slash, as in ./web.toml"
    );
}

#[test]
fn parse_errors_name_the_line_and_fit_in_one_line() {
    let line = |from: &str| 1 + BUILTIN[0].1.split(from).next().map_or(0, |text| text.matches('\n').count());
    for (from, to, expected) in [
        ("name = \"udp-server\"", "name = \"a b\"", "'a b' is no name"),
        (
            "second_threads = \"last\"",
            "second_threads = \"first\"",
            "unknown variant `first`, expected `last` or `never`",
        ),
        ("free = \"\"", "free = \"3-1\"", "free: '3-1' is not a CPU number or a range such as 0-3"),
        ("free = \"\"", "fre = \"\"", "unknown field `fre`, expected one of"),
        ("\"irq.stacked\" = \"note\"", "\"irq.stackd\" = \"note\"", "'irq.stackd' is no finding"),
        ("\"irq.stacked\" = \"note\"", "\"irqs.*\" = \"note\"", "'irqs.*' is no finding"),
        ("\"irq.stacked\" = \"note\"", "\"irq.stacked\" = \"dire\"", "unknown variant `dire`"),
        ("\"irq.stacked\" = \"note\"", "\"irq.stacked\" =", ""),
        (
            "[[set]]\nsysctl = \"net.core.rmem_max\"",
            "[[set]]\nsysctl = \"rmem_max\"",
            "'rmem_max' is no sysctl",
        ),
        (
            "[[set]]\nsysctl = \"net.core.rmem_max\"",
            "[[set]]",
            "each [[set]] has one of `sysctl`, `interface` and `machine`",
        ),
        ("unless = [\"merged-datagrams\"", "unless = [\"monday\"", "unknown variant `monday`"),
    ] {
        let error = error(&profile_text_with(from, to));
        let begin = format!("mine.toml:{}: {expected}", line(from));
        assert!(error.starts_with(&begin) && !error.contains('\n'), "{begin}\n{error}");
    }
    assert_eq!(error(""), "mine.toml:1: missing field `name`");
    let duplicate = profile_text_with("\"irq.stacked\" = \"note\"", "\"machine.smt\" = \"note\"");
    assert!(
        error(&duplicate).ends_with(": 'machine.smt' is in [fix] and in [leave]"),
        "{}",
        error(&duplicate)
    );
}
