use super::*;

fn parse_error(text: &str) -> UnreadFile {
    parse("a.json", text).expect_err("refused")
}

#[test]
fn documents_that_are_no_result_have_a_reason() {
    assert!(parse_error("{").why.starts_with("no JSON document: "));
    assert_eq!(parse_error("[1]"), parse_error("{\"version\": 1}"));
    assert_eq!(parse_error("{}").why, "no result of linerate: it does not name its schema");
    assert_eq!(parse_error("{\"schema\": \"other/1\"}").why, "other/1 is no schema of linerate");
}

#[test]
fn newer_versions_and_schemas_without_a_page_have_separate_reasons() {
    let newer = parse_error("{\"schema\": \"linerate.drops/3\", \"version\": \"3.1.0\"}");
    assert_eq!(newer.schema.as_deref(), Some("linerate.drops/3"));
    assert!(
        newer.why.contains("of version 3.1.0; this one") && newer.why.ends_with("reads linerate.drops/2"),
        "{newer:?}"
    );
    let other = parse_error("{\"schema\": \"linerate.labs/1\"}");
    assert!(other.why.starts_with("linerate.labs/1 has no page"), "{other:?}");
    let valid_schemas =
        ["linerate.labs/1", "linerate.calc/2", "linerate.calc/3", "linerate.drops/3", "other/1"];
    assert_eq!(valid_schemas.map(is_valid), [true, true, false, false, false]);
}

#[test]
fn incomplete_results_report_the_missing_field() {
    let half = parse_error("{\"schema\": \"linerate.ladder/2\", \"version\": \"0.1.0\"}");
    assert!(half.why.starts_with("not a whole linerate.ladder/2 document: missing field"), "{half:?}");
}

#[test]
fn a_report_document_parses_to_none() {
    assert!(matches!(parse("a.json", "{\"schema\": \"linerate.report/2\"}"), Ok(None)));
}

#[test]
fn malformed_documents_of_every_schema_are_errors() {
    for schema in READERS.iter().map(|reader| reader.schema) {
        for rest in ["", ", \"argv\": 1", ", \"findings\": [1]", ", \"steps\": {}"] {
            assert!(
                parse("a.json", &format!("{{\"schema\": \"{schema}\"{rest}}}")).is_err(),
                "{schema}{rest}"
            );
        }
    }
}
