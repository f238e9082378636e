use super::*;
use crate::render::drops_text;

#[test]
fn the_page_shows_what_was_lost_and_fetches_nothing() {
    let ledger = drops_text::tests::ledger();
    let page = drops(&DropsDocument::new(Some(0), ledger, None, None)).expect("a page");
    assert!(page.contains("100 lost: a rule of netfilter dropped it"));
    assert!(page.contains(r#"<rect class="lost" x="900" width="100""#), "{page}");
    for outside in ["http:", "https:", "src=", "<script", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn little_is_not_nothing() {
    assert_eq!((thousandths(1, 1_000_000), thousandths(5, 5), thousandths(0, 0)), (0, 1000, 0));
}
