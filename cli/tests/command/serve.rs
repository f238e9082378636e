//! `linerate serve` with clients that Debian packages.

mod advice;
mod limits;
mod ntp;
mod radius;
mod sink;

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{ChildStderr, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::schema::conforms;
use crate::support::{self, TestChild, document_of, signal};

/// A running `linerate serve`.
pub(crate) struct ServeProcess {
    child: TestChild,
    /// Standard error, kept open because the server writes to it until it ends.
    errors: Lines<BufReader<ChildStderr>>,
    /// Addresses that it serves. The protocol's own address is last.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl ServeProcess {
    /// Starts `linerate serve PROTOCOL` on a free port of loopback and waits until it serves.
    pub(crate) fn start(protocol: &str, more: &[&str]) -> Self {
        let mut child = Command::new(support::program())
            .args(["serve", protocol, "--bind", "127.0.0.1:0", "--json", "-", "--workers", "1"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let (mut addresses, mut lines) = (Vec::new(), Vec::new());
        // The line that ends with these words is the last one before the server is ready.
        while !lines.last().is_some_and(|line: &String| line.ends_with("end with Ctrl-C")) {
            let line = errors.next().unwrap_or_else(|| panic!("it serves: {lines:?}")).expect("text");
            let address = line.strip_prefix("serving ").and_then(|line| line.split(' ').nth(2));
            addresses.extend(address.map(|address| address.parse::<SocketAddr>().expect("an address")));
            lines.push(line);
        }
        Self { child: TestChild(child), errors, addresses }
    }

    /// The address of the protocol itself.
    pub(crate) fn address(&self) -> SocketAddr {
        *self.addresses.last().expect("an address")
    }

    /// Sends SIGHUP. Returns the next line on standard error.
    pub(crate) fn hang_up(&mut self) -> String {
        signal(self.child.id(), Signal::HUP);
        self.errors.next().expect("a line").expect("text")
    }

    /// Ends the server and returns its counters.
    pub(crate) fn stop(mut self) -> Value {
        signal(self.child.id(), Signal::INT);
        let output = self.child.stdout.take().expect("a pipe");
        let document: Value = serde_json::from_reader(output).expect("a document");
        assert!(self.child.wait().expect("it ends").success());
        conforms(&document, "linerate.serve/2");
        document["result"].clone()
    }
}

fn assert_load_finds_no_corrupt_replies(server: ServeProcess, workload: &str) {
    let address = server.address().to_string();
    let time = ["--rate", "500", "--duration", "0.4", "--json", "-"];
    let output = support::linerate(&[&["load", &address, "--workload", workload][..], &time].concat());
    let load = &document_of(&output)["result"];
    assert!(load["answered"].as_u64() > Some(0) && load["corrupt"] == 0, "{load}");
    let counters = server.stop();
    assert!(counters["total"]["answered"].as_u64() >= load["answered"].as_u64(), "{counters}");
    assert_eq!(counters["total"]["dropped"], 0, "{counters}");
}
