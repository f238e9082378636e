//! Drawings of fixture profiles.

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
    let (mut open, mut rest) = (Vec::new(), xml);
    while let Some(begin) = rest.find('<') {
        let (text, tag) = rest.split_at(begin);
        if text
            .split('&')
            .skip(1)
            .any(|entity| entity.split_once(';').is_none_or(|(name, _)| name.len() >= 8))
        {
            return Err(format!("a bare & in {text:.80}"));
        }
        let end = if tag.starts_with("<![CDATA[") {
            "]]>"
        } else if tag.starts_with("<!--") {
            "-->"
        } else {
            ">"
        };
        let length = tag.find(end).ok_or("a tag without an end")? + end.len();
        let (tag, after) = tag.split_at(length);
        rest = after;
        let name =
            |tag: &str| tag.trim_matches(['<', '/', '>']).split([' ', '\n']).next().unwrap_or("").to_owned();
        if tag.starts_with("</") {
            if open.pop() != Some(name(tag)) {
                return Err(format!("{tag} ends nothing"));
            }
        } else if !tag.starts_with("<!") && !tag.starts_with("<?") && !tag.ends_with("/>") {
            if tag[1..].contains('<') {
                return Err(format!("a bare < in {tag:.80}"));
            }
            open.push(name(tag));
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("without an end: {open:?}")) }
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
