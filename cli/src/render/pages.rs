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
fn every_page_renders_without_faults_in_a_browser() {
    let mut browser = match TestBrowser::start() {
        Ok(browser) => browser,
        Err(reason) => {
            return linerate_testkit::skip("every_page_renders_without_faults_in_a_browser", reason);
        }
    };
    let temporary = tempfile::tempdir().expect("a directory");
    let output_directory = std::env::var_os("LINERATE_TEST_PAGES").map(PathBuf::from);
    let directory = output_directory.as_deref().unwrap_or(temporary.path());
    let mut faults = Vec::new();
    for (name, page) in fixtures::pages(temporary.path()) {
        let file = directory.join(format!("{name}.html"));
        fs::write(&file, page).expect("written");
        let page_faults = judge(&mut browser, &file, output_directory.is_some());
        faults.extend(page_faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn judge(browser: &mut TestBrowser, file: &Path, save_pictures: bool) -> Vec<String> {
    let url = format!("file://{}", file.display());
    let mut faults = Vec::new();
    let mut events = browser.load(&url);
    // A phone, and a window with two columns.
    for width in [400, 1280] {
        for scheme in ["light", "dark"] {
            browser.show(width, scheme);
            // Colours move no text.
            if scheme == "light" {
                faults.extend(script_faults(browser, OVERLAPS, &format!("{width} px")));
            }
            faults.extend(script_faults(browser, FAULTS, &format!("{width} px, {scheme}")));
            if save_pictures {
                picture(browser, &file.with_extension(format!("{width}.{scheme}.png")));
            }
        }
    }
    faults.extend(keyboard_faults(browser));
    events.extend(browser.take_events());
    faults.extend(events.iter().filter_map(|(method, event)| unexpected_event(&url, method, event)));
    faults
}

// The faults that a test script finds, with their place.
fn script_faults(browser: &mut TestBrowser, script: &str, context: &str) -> Vec<String> {
    let result = browser.evaluate(script);
    let texts = result.as_array().expect("a list").iter().filter_map(Value::as_str);
    texts.map(|fault| format!("{context}: {fault}")).collect()
}

// Events that must not happen: a request, an error, a line on the console.
fn unexpected_event(url: &str, method: &str, event: &Value) -> Option<String> {
    match method {
        "Network.requestWillBeSent" => {
            let requested_url = event["request"]["url"].as_str().unwrap_or_default();
            (requested_url != url && !requested_url.starts_with("data:"))
                .then(|| format!("requested {requested_url}"))
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
fn keyboard_faults(browser: &mut TestBrowser) -> Vec<String> {
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
    for index in 0..count.as_u64().unwrap_or(0) {
        browser.tab();
        let focus = browser.evaluate(FOCUSED);
        if focus[0] != json!(index) {
            faults.push(format!("Tab {index} focuses {focus}"));
            break;
        }
        if focus[1] != json!(true) {
            faults.push(format!("no mark around {focus}"));
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
