//! Drawings of fixture profiles.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;
use crate::flame::fixture::profile;

const STACKS: &str = "\
40 openssl task main;aes<&>\"'
30 openssl softirq main;asm_common_interrupt;handle_softirqs;net_rx_action;dev_gro_receive
20 ksoftirqd/0 ksoftirqd kthread;run_ksoftirqd;handle_softirqs.2;nf_hook_slow
10 swapper idle do_idle
";

fn drawing() -> DrawOptions {
    DrawOptions {
        title: "A <title> & more".to_owned(),
        subtitle: Some("below".to_owned()),
        ..DrawOptions::default()
    }
}

/// Checks that elements nest correctly, and text has no bare `&` or `<`.
pub(in crate::flame) fn well_formed(xml: &str) -> Result<(), String> {
    let mut reader = Reader::from_str(xml);
    let mut depth = 0;
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            Event::Eof if depth == 0 => return Ok(()),
            Event::Eof => return Err("an element without an end".to_owned()),
            _ => {}
        }
    }
}

#[test]
fn flame_graph_is_well_formed_and_reproducible() {
    let profile = profile(STACKS);
    for interactive in [false, true] {
        let drawing = DrawOptions { interactive, ..drawing() };
        let picture = svg(&profile, &drawing).unwrap().unwrap();
        well_formed(&picture).unwrap();
        assert_eq!(picture.contains("<script") || picture.contains("onload"), interactive);
        assert_eq!(picture.starts_with("<svg"), !interactive);
        assert_eq!(svg(&profile, &drawing).unwrap().unwrap(), picture);
        assert!(
            picture.contains("A &lt;title&gt; &amp; more") && picture.contains("id=\"legend\""),
            "{picture}"
        );
    }
}

#[test]
fn percentages_are_shares_of_the_selection() {
    let profile = profile(STACKS);
    let all = svg(&profile, &drawing()).unwrap().unwrap();
    assert!(all.contains("dev_gro_receive (30 samples, 33.33%)"), "{all}");
    assert!(!all.contains("do_idle"));
    let irq = DrawOptions { shown: FlameSelection { irq_only: true, per_cpu: false }, ..drawing() };
    let irq = svg(&profile, &irq).unwrap().unwrap();
    assert!(irq.contains("softirq in ksoftirqd (20 samples, 40.00%)"), "{irq}");
    assert!(!irq.contains("aes") && !irq.contains("asm_common_interrupt"));
}

#[test]
fn legend_fits_into_the_picture_height() {
    let picture = svg(&profile(STACKS), &drawing()).unwrap().unwrap();
    let height = attribute(&picture, "height").unwrap();
    assert!(picture.contains(&format!("viewBox=\"0 0 1200 {height}\"")), "{picture:.300}");
    let lowest = picture.rsplit_once(" y=\"").unwrap().1.split_once('"').unwrap().0.parse::<usize>().unwrap();
    assert!(lowest < height);
}
