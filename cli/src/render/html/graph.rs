//! A flame graph in a page that may contain several: its ids and style rules get a prefix.

use crate::render::page::ResultPosition;

// Elements with an id in a graph. Several graphs share a page, so each id gets a prefix.
const NAMED: [&str; 7] = ["background", "title", "subtitle", "details", "unzoom", "matched", "frames"];

// The graph with unique ids in the page, and with style rules that apply only to it.
pub(super) fn rename_ids(svg: &str, position: &ResultPosition) -> String {
    let id_prefix = position.id("graph");
    let mut renamed_svg = svg.replacen("<svg ", &format!("<svg id=\"{id_prefix}\" "), 1);
    for name in NAMED.into_iter().chain(["legend"]) {
        renamed_svg = renamed_svg.replace(&format!(" id=\"{name}\""), &format!(" id=\"{id_prefix}-{name}\""));
    }
    renamed_svg = renamed_svg.replace("\"url(#background)\"", &format!("\"url(#{id_prefix}-background)\""));
    let Some((before, style, after)) = style_of(&renamed_svg) else { return renamed_svg };
    let mut rules = style.replace("\ntext {", &format!("\n#{id_prefix} text {{"));
    for name in NAMED {
        rules = rules.replace(&format!("#{name}"), &format!("#{id_prefix}-{name}"));
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
    fn graph_ids_and_css_rules_have_the_prefix_of_the_result() {
        let svg = "<svg width=\"9\"><style type=\"text/css\">\ntext { x }\n#title { y }</style>\
                   <rect fill=\"url(#background)\"/><text id=\"title\">#title of text</text></svg>";
        assert_eq!(
            rename_ids(svg, &ResultPosition::nested("r2")),
            "<svg id=\"r2-graph\" width=\"9\"><style type=\"text/css\">\n#r2-graph text { x }\n#r2-graph-title { y }</style>\
             <rect fill=\"url(#r2-graph-background)\"/><text id=\"r2-graph-title\">#title of text</text></svg>"
        );
        assert_eq!(rename_ids("<g/>", &ResultPosition::standalone()), "<g/>");
    }
}
