use super::*;
use crate::render::made_up_flame;

#[test]
fn a_page_has_the_spots_the_waits_and_the_cpus() {
    let page = flame(&made_up_flame::run()).expect("a page");
    for part in [
        "41 %",
        "socket.shared-by-threads",
        "__udp_enqueue_schedule_skb",
        "2.10 s",
        "ksoftirqd",
        "net/ipv4/udp.c",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains("<script") && !page.contains("http://") || page.contains("xmlns"), "{page}");
}

#[test]
fn text_of_the_host_cannot_become_markup() {
    let mut document = made_up_flame::run();
    let name = "<script>alert(1)</script>&\"";
    document.host.name = name.to_owned();
    document.warnings.push(name.to_owned());
    document.argv.push(name.to_owned());
    document.functions[0].function = name.to_owned();
    let profile = document.profile.as_mut().expect("made up");
    profile.frames[0].name = name.to_owned();
    profile.stacks[0].comm = name.to_owned();
    let page = flame(&document).expect("a page");
    assert!(!page.contains("<script") && !page.contains("onload="), "{page}");
}
