//! A lab that loses packets while `linerate drops` runs on its receiver.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linerate_lab::{Lab, LabChild, LabHost};
use linerate_testkit::reflector::RunningReflector;
use serde_json::Value;

use crate::schema::conforms;
use crate::support::{TestDirectory, count, program, shell, start_echo, start_root_lab, within};

/// The receiver's address on its first link.
pub(super) const ADDRESS: &str = "198.18.0.1";
/// The server's UDP port.
pub(super) const PORT: u16 = 4053;

/// Time limit for each wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// The line that the traced command prints once it runs.
const READY: &str = "ready";

/// A trace handles every packet of the machine and slows down other traces, so only one test runs
/// at a time.
static TRACES: Mutex<()> = Mutex::new(());

/// A receiver and its senders.
pub(super) struct DropsTestLab {
    lab: Lab,
    directory: TestDirectory,
    _guard: MutexGuard<'static, ()>,
}

/// The result of `linerate drops`.
pub(super) struct DropsOutput {
    pub(super) document: Value,
    pub(super) status: Option<i32>,
    /// Standard error.
    pub(super) errors: String,
}

/// A running `linerate drops`.
pub(super) struct DropsProcess {
    child: LabChild,
    errors: BufReader<std::process::ChildStderr>,
    document: std::path::PathBuf,
}

impl DropsTestLab {
    /// Prints a SKIP line and returns `None` without root or if no lab can be created.
    pub(super) fn up(senders: usize) -> Option<Self> {
        let guard = TRACES.lock().unwrap_or_else(PoisonError::into_inner);
        let lab = start_root_lab(Lab::builder().senders(senders))?;
        Some(Self { lab, directory: TestDirectory::new(), _guard: guard })
    }

    pub(super) fn receiver(&self) -> &LabHost {
        self.lab.receiver()
    }

    pub(super) fn sender(&self) -> &LabHost {
        &self.lab.senders()[0]
    }

    pub(super) fn other_sender(&self) -> &LabHost {
        &self.lab.senders()[1]
    }

    /// The path of a file in the test's directory.
    pub(super) fn path(&self, name: &str) -> String {
        self.directory.file(name)
    }

    /// Runs a shell script on the receiver. Returns standard output.
    pub(super) fn shell(&self, script: &str) -> String {
        shell(self.receiver(), script)
    }

    /// Packets that the qdisc of an interface of the receiver dropped.
    pub(super) fn dropped_by_qdisc(&self, interface: &str) -> u64 {
        let text = self.shell(&format!("tc -s qdisc show dev {interface} | grep -o 'dropped [0-9]*'"));
        text.trim_start_matches("dropped ").parse().expect("a count")
    }

    /// A socket on a lab host, with a read timeout.
    pub(super) fn socket(&self, host: &LabHost, address: &str) -> UdpSocket {
        let socket = host.run(|| UdpSocket::bind(address)).expect("the host runs").expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }

    /// A socket on the receiver at the port.
    pub(super) fn server(&self) -> UdpSocket {
        self.socket(self.receiver(), &format!("{ADDRESS}:{PORT}"))
    }

    /// An echo server on the receiver at the port.
    pub(super) fn echo(&self) -> RunningReflector {
        start_echo(self.receiver(), target())
    }

    /// A socket on the sender.
    pub(super) fn client(&self) -> UdpSocket {
        self.socket(self.sender(), "0.0.0.0:0")
    }

    /// Starts `linerate drops` on the receiver and waits until it counts.
    pub(super) fn start_drops(&self, arguments: &[&str]) -> DropsProcess {
        let document = self.directory.path().join("drops.json");
        let mut command = Command::new(program());
        command.arg("drops").args(arguments).arg("--json").arg(&document);
        // drops counts until its standard input is closed, which ends `cat`.
        command.args(["--", "sh", "-c", &format!("echo {READY}; exec cat")]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.receiver().spawn(command).expect("the command starts");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut output = String::new();
        while !output.ends_with(&format!("{READY}\n")) {
            assert!(errors.read_line(&mut output).expect("text") > 0, "it ends: {output}");
        }
        DropsProcess { child, errors, document }
    }

    /// Runs `linerate drops` on the port during `traffic`.
    pub(super) fn run_during(&self, traffic: impl FnOnce()) -> DropsOutput {
        let drops = self.start_drops(&["--port", &PORT.to_string()]);
        traffic();
        drops.end()
    }

    /// A counter of `/proc/net/snmp` or `/proc/net/netstat` on the receiver.
    pub(super) fn counter(&self, group: &str, name: &str) -> u64 {
        // The thread's own files: /proc/net belongs to the network namespace of the process's first
        // thread.
        let read = || {
            let thread = rustix::thread::gettid().as_raw_nonzero();
            ["snmp", "netstat"]
                .map(|file| std::fs::read_to_string(format!("/proc/self/task/{thread}/net/{file}")))
        };
        let files = self.receiver().run(read).expect("the host runs");
        let text: String = files.into_iter().map(|file| file.expect("counters")).collect();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(&format!("{group}: ")));
        let pairs = std::iter::from_fn(|| lines.next().zip(lines.next()));
        pairs
            .flat_map(|(names, values)| names.split(' ').zip(values.split(' ')).collect::<Vec<_>>())
            .find(|(column, _)| *column == name)
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or_else(|| panic!("no {group} {name}"))
    }
}

impl DropsProcess {
    /// Ends `linerate drops` and returns its result.
    pub(super) fn end(mut self) -> DropsOutput {
        drop(self.child.stdin.take());
        let mut errors = String::new();
        std::io::Read::read_to_string(&mut self.errors, &mut errors).expect("text");
        let status = self.child.wait().expect("it ends").code();
        let file = File::open(&self.document).unwrap_or_else(|error| panic!("{error}: {errors}"));
        let mut document: Value = serde_json::from_reader(BufReader::new(file)).expect("JSON");
        conforms(&document, "linerate.drops/2");
        let document = document["result"].take();
        DropsOutput { document, status, errors }
    }
}

impl DropsOutput {
    /// All losses of these packets: the name and the number of packets.
    pub(super) fn losses(&self, direction: &str) -> Vec<(String, u64)> {
        let losses = self.stages(direction).iter().flat_map(|stage| list(stage, "losses"));
        losses.map(|loss| (text(loss, "name"), count(loss, "packets"))).collect()
    }

    /// Stages with unaccounted packets, and the number of packets.
    pub(super) fn unaccounted(&self) -> Vec<(String, i64)> {
        let stages =
            ["requests", "replies", "forwarded"].into_iter().flat_map(|direction| self.stages(direction));
        stages
            .filter_map(|stage| Some((text(stage, "stage"), stage["unaccounted"].as_i64()?)))
            .filter(|(_, packets)| *packets != 0)
            .collect()
    }

    /// Requests that were forwarded to another device.
    pub(super) fn forwarded(&self) -> u64 {
        self.stages("requests").iter().map(|stage| count(stage, "forwarded")).sum()
    }

    /// Places of the request losses with this name, sorted.
    pub(super) fn places(&self, name: &str) -> Vec<String> {
        let losses = self.stages("requests").iter().flat_map(|stage| list(stage, "losses"));
        let mut places: Vec<String> =
            losses.filter(|loss| loss["name"] == name).map(|loss| text(loss, "place")).collect();
        places.sort();
        places
    }

    /// The first loss with this name among the requests, replies or forwarded packets.
    pub(super) fn loss(&self, direction: &str, name: &str) -> &Value {
        let mut losses = self.stages(direction).iter().flat_map(|stage| list(stage, "losses"));
        losses.find(|loss| loss["name"] == name).unwrap_or_else(|| panic!("no {name}: {:#}", self.document))
    }

    /// This has to be the only loss, and all other packets have to be accounted for.
    pub(super) fn assert_only_loss(&self, direction: &str, name: &str, packets: u64) {
        let mut lost = self.losses("requests");
        lost.extend(self.losses("replies"));
        lost.retain(|(_, packets)| *packets > 0);
        assert_eq!(lost, [(name.to_owned(), packets)], "{:#}", self.document);
        let loss = self.loss(direction, name);
        assert_eq!((count(loss, "packets"), &loss["exactness"]), (packets, &"exact".into()));
        assert_eq!(self.unaccounted(), [], "{:#}", self.document);
        assert_eq!(self.status, Some(1), "{}", self.errors);
    }

    fn stages(&self, direction: &str) -> &[Value] {
        list(&self.document[direction], "stages")
    }
}

/// The server's address and port.
pub(super) fn target() -> SocketAddr {
    SocketAddr::new(ADDRESS.parse().expect("an address"), PORT)
}

/// Sends this number of datagrams to the port.
pub(super) fn send(client: &UdpSocket, packets: u64) {
    for number in 0..packets {
        // A send may report the ICMP error of the previous datagram, so it is repeated.
        while client.send_to(&[number as u8; 100], target()).is_err() {}
    }
}

/// Sends `requests` datagrams and reads `replies` replies.
pub(super) fn exchange(client: &UdpSocket, requests: u64, replies: u64) {
    send(client, requests);
    for _ in 0..replies {
        client.recv(&mut [0; 200]).expect("a reply");
    }
}

/// Reads all waiting datagrams and returns their number.
pub(super) fn drain(socket: &UdpSocket) -> u64 {
    socket.set_nonblocking(true).expect("it does not wait");
    let mut read = 0;
    while socket.recv(&mut [0; 200]).is_ok() {
        read += 1;
    }
    read
}

/// Reads datagrams until all that were sent are either read or among the `lost`.
pub(super) fn drain_until(socket: &UdpSocket, sent: u64, lost: impl Fn() -> u64) {
    let mut read = 0;
    within(20, "all are lost or read", || {
        read += drain(socket);
        read + lost() == sent
    });
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or_else(|| panic!("no list '{key}' in {value:#}"), Vec::as_slice)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("no text '{key}' in {value:#}")).to_owned()
}
