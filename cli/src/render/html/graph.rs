//! A flame graph in a page that may contain several: its ids and style rules get a prefix.

use crate::render::page::ResultPosition;

// Elements with an id in a graph. Several graphs share a page, so each id gets a prefix.
const NAMED: [&str; 7] = ["background", "title", "subtitle", "details", "unzoom", "matched", "frames"];

// The graph with unique ids in the page, and with style rules that apply only to it.
pub(super) fn placed(svg: &str, place: &ResultPosition) -> String {
    let own = place.id("graph");
    let mut placed = svg.replacen("<svg ", &format!("<svg id=\"{own}\" "), 1);
    for name in NAMED.into_iter().chain(["legend"]) {
        placed = placed.replace(&format!(" id=\"{name}\""), &format!(" id=\"{own}-{name}\""));
    }
    placed = placed.replace("\"url(#background)\"", &format!("\"url(#{own}-background)\""));
    let Some((before, style, after)) = style_of(&placed) else { return placed };
    let mut rules = style.replace("\ntext {", &format!("\n#{own} text {{"));
    for name in NAMED {
        rules = rules.replace(&format!("#{name}"), &format!("#{own}-{name}"));
    }
    format!("{before}{rules}{after}")
}

// Splits the text into the part before the style rules, the rules, and the rest.
fn style_of(svg: &str) -> Option<(&str, &str, &str)> {
    let begin = svg.find("<style")?;
    let end = begin + svg[begin..].find("</style>")?;
    Some((&svg[..begin], &svg[begin..end], &svg[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_ids_of_a_graph_are_its_own() {
        let svg = "<svg width=\"9\"><style type=\"text/css\">\ntext { x }\n#title { y }</style>\
                   <rect fill=\"url(#background)\"/><text id=\"title\">#title of text</text></svg>";
        assert_eq!(
            placed(svg, &ResultPosition::nested("r2")),
            "<svg id=\"r2-graph\" width=\"9\"><style type=\"text/css\">\n#r2-graph text { x }\n#r2-graph-title { y }</style>\
             <rect fill=\"url(#r2-graph-background)\"/><text id=\"r2-graph-title\">#title of text</text></svg>"
        );
        assert_eq!(placed("<g/>", &ResultPosition::standalone()), "<g/>");
    }
}
