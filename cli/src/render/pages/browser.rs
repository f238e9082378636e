//! A headless Chromium, spoken to over a pipe in the DevTools protocol.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use linerate_testkit::reflector::installed::find;
use serde_json::{Value, json};

// How long one answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one tab. The browser ends when this is dropped.
pub(super) struct TestBrowser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    events: VecDeque<Value>,
    session: Option<String>,
    last: u64,
    /// The browser profile, which is removed at the end.
    _home: tempfile::TempDir,
}

impl TestBrowser {
    /// Starts the browser. The error is the reason why there is none.
    pub(super) fn start() -> Result<Self, String> {
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let program = names.into_iter().find_map(find).ok_or("chromium is not installed")?;
        let home = tempfile::tempdir().map_err(|error| error.to_string())?;
        // The protocol's pipe is descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .arg(&program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--remote-debugging-pipe",
                "--disable-gpu",
                "--no-first-run",
            ])
            .args(["--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking"])
            .args([
                "--disable-component-update",
                "--disable-sync",
                "--force-color-profile=srgb",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let commands = child.stdin.take().ok_or("no pipe to chromium")?;
        let output = child.stdout.take().ok_or("no pipe from chromium")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if sender.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let (events, session) = (VecDeque::new(), None);
        let mut browser = Self { child, commands, answers, events, session, last: 0, _home: home };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attachment =
            browser.call("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attachment["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Ok(browser)
    }

    /// Sends a command, and waits for the answer.
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).expect("chromium reads");
        loop {
            let mut answer = self.next(method);
            if answer["id"] == json!(self.last) {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push_back(answer);
        }
    }

    fn next(&self, method: &str) -> Value {
        self.answers
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("chromium does not answer, waited for {method}: {error}"))
    }

    /// Loads a page. Returns the events until then as (method, parameters).
    pub(super) fn load(&mut self, url: &str) -> Vec<(String, Value)> {
        self.events.clear();
        self.call("Page.navigate", &json!({"url": url}));
        let start = Instant::now();
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(is_loaded) {
            assert!(start.elapsed() < PATIENCE, "{url} does not load");
            let event = self.next("Page.loadEventFired");
            self.events.push_back(event);
        }
        self.take_events()
    }

    // Events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<(String, Value)> {
        let events = self.events.drain(..);
        events
            .map(|mut event| {
                (event["method"].as_str().unwrap_or_default().to_owned(), event["params"].take())
            })
            .collect()
    }

    /// A window of this width, as high as the page, in a scheme.
    pub(super) fn show(&mut self, width: u32, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", &json!({"media": "screen", "features": features}));
        let mut size = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size);
        size["height"] = self.evaluate("Math.ceil(document.documentElement.getBoundingClientRect().height)");
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// The value of an expression in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let mut answer = self.call(
            "Runtime.evaluate",
            &json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(answer.get("exceptionDetails").is_none(), "{}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// Presses the key Tab.
    pub(super) fn tab(&mut self) {
        for kind in ["rawKeyDown", "keyUp"] {
            let key = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            self.call("Input.dispatchKeyEvent", &key);
        }
    }
}

impl Drop for TestBrowser {
    fn drop(&mut self) {
        // An error means that the browser has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
