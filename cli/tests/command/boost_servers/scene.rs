//! A lab: servers run on the receiver, and the other host sends load.

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use linerate_lab::program::{RecipeValues, ServerRecipe};
use linerate_testkit::reflector::installed::find;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    TestChild, await_line, checked_document, checked_text, document_of, has_two_cpus, is_installed, program,
    read_document, signal, skip, text_of, within,
};
use crate::tune::scene::TuneTestLab;

/// The receiver's address on the link.
pub(crate) const ADDRESS: &str = "198.18.0.1";

/// Requests per second at which the server's threads rarely sleep. The kernel wakes a sleeping
/// thread on the CPU where the packet arrives, so a boost would change nothing.
pub(crate) const BUSY_RATE: f64 = 20_000.0;

/// Time limit for the start of a server, in seconds.
const PATIENCE: u64 = 20;

/// The lab's receiver. Its servers end before the lab does.
pub(crate) struct BoostServersTestHost {
    servers: Vec<TestChild>,
    pub(crate) scene: TuneTestLab,
}

/// A `linerate load` that runs in the background.
pub(crate) struct BackgroundLoad {
    child: TestChild,
    document: PathBuf,
}

impl BoostServersTestHost {
    /// Prints a SKIP line and returns `None` if no lab can be created, there is only one CPU or a
    /// program is missing.
    pub(crate) fn up(programs: &[&str]) -> Option<Self> {
        if !programs.iter().all(|program| is_installed(program)) || !has_two_cpus() {
            return None;
        }
        Some(Self { servers: Vec::new(), scene: TuneTestLab::up()? })
    }

    /// Assigns the queues to CPUs 0 and 1 in turn (RPS). The flow then decides on which CPU a
    /// packet arrives, as with a NIC's interrupts.
    pub(crate) fn spread(&self) {
        for queue in 0..4 {
            let file = format!("/sys/class/net/eth0/queues/rx-{queue}/rps_cpus");
            self.scene.shell(&format!("echo {} > {file}", 1 << (queue % 2)));
        }
    }

    /// Compiles `replicas/server.c` to `server` in the test's directory. Prints a SKIP line and
    /// returns `None` if that fails.
    pub(crate) fn compile_server(&self) -> Option<PathBuf> {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/replicas/server.c");
        let (mut compiler, server) = (Command::new(find("gcc")?), self.scene.path("server"));
        let compiled = compiler.args(["-O2", "-w", source, "-o"]).arg(&server).status();
        if compiled.is_ok_and(|status| status.success()) {
            return Some(server);
        }
        skip("gcc cannot compile a program");
        None
    }

    /// Starts a server and waits until it has a socket on the port. Returns its process.
    pub(crate) fn serve(&mut self, port: u16, server: impl AsRef<Path>, arguments: &[&str]) -> u32 {
        let log = std::fs::File::create(self.scene.path("log")).expect("a log");
        let mut command = self.scene.on_host(server.as_ref());
        command.args(arguments).stdout(log.try_clone().expect("a log")).stderr(log);
        let mut child = command.spawn().expect("the command starts");
        let pid = child.id();
        let count_sockets = format!("ss -Hulpn 'sport = :{port}' | grep -c users: || true");
        within(PATIENCE, "a socket on the port", || {
            let status = child.try_wait().expect("a child");
            let log = || std::fs::read_to_string(self.scene.path("log")).unwrap_or_default();
            assert!(status.is_none(), "{:?} ends: {}", server.as_ref(), log());
            self.scene.shell(&count_sockets) != "0"
        });
        self.servers.push(TestChild(child));
        pid
    }

    /// Starts `linerate serve echo` with two workers. Returns its process.
    pub(crate) fn serve_echo(&mut self, port: u16, arguments: &[&str]) -> u32 {
        let bind = format!("{ADDRESS}:{port}");
        let words = ["serve", "echo", "--bind", &bind, "--workers", "2"];
        self.serve(port, program(), &[&words[..], arguments].concat())
    }

    /// Starts a server with two workers from its recipe. Returns the recipe and the value for
    /// `--workload`. Prints a SKIP line and returns `None` if the program is missing.
    pub(crate) fn serve_recipe(&mut self, name: &str, program: &str) -> Option<(ServerRecipe, String)> {
        if !is_installed(program) {
            return None;
        }
        let server = find(program)?;
        let recipe = ServerRecipe::find(name, None, None).expect("a recipe");
        let directory = self.scene.path(name);
        std::fs::create_dir(&directory).expect("created");
        let address = (ADDRESS.parse::<IpAddr>().expect("an address"), recipe.port).into();
        let values = RecipeValues { address, workers: 2, directory: &directory };
        let (_, arguments) = recipe.write(&values).expect("written");
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.serve(recipe.port, server, &arguments);
        let workload = values.fill(&recipe.workload);
        Some((recipe, workload))
    }

    pub(crate) fn end_servers(&mut self) {
        self.servers.clear();
    }

    /// `linerate boost` on the receiver, with the journal of this test.
    pub(crate) fn boost(&self, arguments: &[&str]) -> Command {
        let mut command = self.scene.on_host(program());
        command.arg("boost").args(arguments).arg("--state-dir").arg(self.scene.state());
        if arguments.contains(&"apply") {
            // The tests of `tune` cover measurements.
            command.arg("--measure=never");
        }
        command
    }

    /// Runs `linerate boost` to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.boost(arguments).output().expect("the command starts")
    }

    /// Runs `linerate boost` and checks its exit status. Returns standard output and standard
    /// error.
    #[track_caller]
    pub(crate) fn expect(&self, status: i32, arguments: &[&str]) -> (String, String) {
        checked_text(&self.run(arguments), status, format_args!("boost {arguments:?}"))
    }

    /// The `result` of the command's JSON document, which has to match its schema.
    pub(crate) fn document(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json", "-"]].concat());
        let mut document = match arguments {
            _ if arguments.contains(&"status") => checked_document(&output, 0, "linerate.boost-status/2"),
            _ if arguments.contains(&"apply") => checked_document(&output, 0, "linerate.boost-apply/2"),
            _ => checked_document(&output, 0, "linerate.boost/2"),
        };
        document["result"].take()
    }

    /// Runs `linerate doctor` for the server on a port of the receiver.
    pub(crate) fn doctor(&self, port: u16, arguments: &[&str]) -> Output {
        let mut doctor = self.scene.on_host(program());
        doctor.args(["doctor", "--port", &port.to_string(), "--json", "-"]).args(arguments);
        doctor.output().expect("the command starts")
    }

    /// `linerate load` from the other host to this port, on CPUs 0 and 1.
    pub(crate) fn load(&self, port: u16, arguments: &[&str]) -> Command {
        let mut command = self.scene.on("sender0", program());
        command.arg("load").arg(format!("{ADDRESS}:{port}")).args(arguments);
        // Frames of the xdp backend would arrive on the CPU of the sending thread.
        command.args(["--backend", "socket", "--threads", "2", "--cpus", "0-1", "--flows", "64", "--quiet"]);
        command
    }

    /// Runs `linerate load` to its end. Returns the `result` of its document.
    pub(crate) fn run_load(&self, port: u16, arguments: &[&str]) -> Value {
        let output = self.load(port, arguments).args(["--json", "-"]).output().expect("it starts");
        document_of(&output)["result"].take()
    }

    /// Datagrams that both hosts dropped because a socket buffer was full (UdpRcvbufErrors).
    pub(crate) fn full_buffers(&self) -> u64 {
        ["receiver", "sender0"].into_iter().map(|host| self.counter(host, "RcvbufErrors")).sum()
    }

    /// A counter of UDP over IPv4 (`/proc/net/snmp`).
    fn counter(&self, host: &str, name: &str) -> u64 {
        let snmp = text_of(&self.scene.on(host, "cat").arg("/proc/net/snmp").output().expect("cat"));
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
        let at = names.split(' ').position(|column| column == name).expect("the counter");
        values.split(' ').nth(at).and_then(|value| value.parse().ok()).expect("a count")
    }

    /// Starts a load that runs until `end`, and waits for its first interval.
    pub(crate) fn start_load(&self, port: u16, rate: f64, arguments: &[&str]) -> BackgroundLoad {
        let document = self.scene.path("load.json");
        let _ = std::fs::remove_file(&document);
        let rate = format!("{rate:.0}");
        let mut command = self.load(port, &["--rate", &rate, "--duration", "600", "--interval", "0.1"]);
        command.args(arguments).arg("--json").arg(&document).arg("--json-stream").arg("-");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the command starts");
        await_line(&mut child.stdout, |line| line.contains("\"interval\"").then_some(()));
        BackgroundLoad { child: TestChild(child), document }
    }
}

impl BackgroundLoad {
    /// Whether the load still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Ends the load and returns the `result` of its document.
    pub(crate) fn end(mut self) -> Value {
        signal(self.child.id(), Signal::INT);
        self.child.wait().expect("a child");
        read_document(&self.document)["result"].take()
    }
}

/// Prints a figure on standard error, past the test runner's capture.
pub(crate) fn print_figure(figure: &str) {
    let _ = std::io::stderr().write_all(format!("\n{figure}\n").as_bytes());
}
