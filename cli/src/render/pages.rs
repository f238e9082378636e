//! All pages as a real browser shows them: narrow and wide, light and dark, by keyboard.
//!
//! `LINERATE_TEST_PAGES=DIR` keeps the pages there, with a picture of each.

mod browser;
mod fixtures;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use browser::TestBrowser;

const FAULTS: &str = include_str!("pages/faults.js");
const OVERLAPS: &str = include_str!("pages/overlaps.js");

#[test]
fn every_page_is_fit_to_be_read_in_a_browser() {
    let mut browser = match TestBrowser::start() {
        Ok(browser) => browser,
        Err(why) => {
            use std::io::Write as _;
            let told = format!("SKIP every_page_is_fit_to_be_read_in_a_browser: {why}\n");
            return std::io::stderr().write_all(told.as_bytes()).expect("standard error");
        }
    };
    let temporary = tempfile::tempdir().expect("a directory");
    let kept = std::env::var_os("LINERATE_TEST_PAGES").map(PathBuf::from);
    let directory = kept.as_deref().unwrap_or(temporary.path());
    let mut faults = Vec::new();
    for (name, page) in fixtures::pages(temporary.path()) {
        let file = directory.join(format!("{name}.html"));
        fs::write(&file, page).expect("written");
        let found = judge(&mut browser, &file, kept.is_some());
        faults.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn judge(browser: &mut TestBrowser, file: &Path, keep: bool) -> Vec<String> {
    let url = format!("file://{}", file.display());
    let mut faults = Vec::new();
    let mut happened = browser.load(&url);
    // A phone, and a window with two columns.
    for width in [400, 1280] {
        for scheme in ["light", "dark"] {
            browser.show(width, scheme);
            faults.extend(told(browser, OVERLAPS, &format!("{width} px")));
            faults.extend(told(browser, FAULTS, &format!("{width} px, {scheme}")));
            if keep {
                picture(browser, &file.with_extension(format!("{width}.{scheme}.png")));
            }
        }
    }
    faults.extend(by_keyboard(browser));
    happened.extend(browser.happened());
    faults.extend(happened.iter().filter_map(|(method, event)| trouble(&url, method, event)));
    faults
}

// The faults that a script of ours finds, with their place.
fn told(browser: &mut TestBrowser, script: &str, place: &str) -> Vec<String> {
    let found = browser.evaluate(script);
    let found = found.as_array().expect("a list").iter().filter_map(Value::as_str);
    found.map(|fault| format!("{place}: {fault}")).collect()
}

// Events that must not happen: a request, an error, a line on the console.
fn trouble(url: &str, method: &str, event: &Value) -> Option<String> {
    match method {
        "Network.requestWillBeSent" => {
            let asked = event["request"]["url"].as_str().unwrap_or_default();
            (asked != url && !asked.starts_with("data:")).then(|| format!("asked for {asked}"))
        }
        "Runtime.consoleAPICalled"
        | "Runtime.exceptionThrown"
        | "Log.entryAdded"
        | "Page.javascriptDialogOpening" => Some(format!("{method}: {event}")),
        _ => None,
    }
}

// Elements that can be operated but are not reached with the key Tab, in order and with a focus
// mark.
fn by_keyboard(browser: &mut TestBrowser) -> Vec<String> {
    const FOCUSED: &str = "(() => {
        const element = document.activeElement;
        const style = getComputedStyle(element);
        const marked = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
        return [window.focusable.indexOf(element), marked, element.className || element.tagName];
    })()";
    let count = browser.evaluate(
        "(() => {
            const wanted = 'a[href], button, input, select, summary, [tabindex=\"0\"]';
            window.focusable = [...document.querySelectorAll(wanted)].filter((element) => element.checkVisibility());
            document.activeElement.blur();
            window.getSelection().removeAllRanges();
            return window.focusable.length;
        })()",
    );
    let mut faults = Vec::new();
    for wanted in 0..count.as_u64().unwrap_or(0) {
        browser.tab();
        let focused = browser.evaluate(FOCUSED);
        if focused[0] != json!(wanted) {
            faults.push(format!("Tab {wanted} comes to {focused}"));
            break;
        }
        if focused[1] != json!(true) {
            faults.push(format!("no mark around {focused}"));
        }
    }
    faults
}

fn picture(browser: &mut TestBrowser, file: &Path) {
    let picture =
        browser.call("Page.captureScreenshot", &json!({"format": "png", "captureBeyondViewport": true}));
    let name = file.with_extension("png.base64");
    fs::write(name, picture["data"].as_str().unwrap_or_default()).expect("written");
}
