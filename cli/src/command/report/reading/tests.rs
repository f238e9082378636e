use super::*;

fn refused(text: &str) -> UnusableDocument {
    parse(text).expect_err("refused")
}

#[test]
fn what_is_no_result_says_why() {
    assert!(refused("{").why.starts_with("no JSON document: "));
    assert_eq!(refused("[1]"), refused("{\"version\": 1}"));
    assert_eq!(refused("{}").why, "no result of linerate: it does not name its schema");
    assert_eq!(refused("{\"schema\": \"other/1\"}").why, "other/1 is no schema of linerate");
}

#[test]
fn another_version_and_what_has_no_page_are_told_apart() {
    let newer = refused("{\"schema\": \"linerate.drops/3\", \"version\": \"3.1.0\"}");
    assert_eq!(newer.schema.as_deref(), Some("linerate.drops/3"));
    assert!(
        newer.why.contains("of version 3.1.0; this one") && newer.why.ends_with("reads linerate.drops/2"),
        "{newer:?}"
    );
    let other = refused("{\"schema\": \"linerate.labs/1\"}");
    assert!(other.why.starts_with("linerate.labs/1 has no page"), "{other:?}");
}

#[test]
fn a_result_that_is_cut_short_is_named() {
    let half = refused("{\"schema\": \"linerate.ladder/2\", \"version\": \"0.1.0\"}");
    assert!(half.why.starts_with("not a whole linerate.ladder/2 document: missing field"), "{half:?}");
}

#[test]
fn a_report_of_reports_is_none() {
    assert!(matches!(parse("{\"schema\": \"linerate.report/2\"}"), Ok(None)));
}

#[test]
fn no_text_makes_it_panic() {
    for schema in READERS.map(|(schema, _)| schema) {
        for rest in ["", ", \"argv\": 1", ", \"findings\": [1]", ", \"steps\": {}"] {
            assert!(parse(&format!("{{\"schema\": \"{schema}\"{rest}}}")).is_err(), "{schema}{rest}");
        }
    }
}
