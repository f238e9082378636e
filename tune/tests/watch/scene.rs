//! A server with forked workers in a lab, its boost and its watch.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_host::{Host, Setting};
use linerate_lab::{Lab, LabChild};
use linerate_testkit::reflector::PreforkServer;
use linerate_tune::boost::discovery::{ObservationOptions, ServerQuery};
use linerate_tune::boost::plan::{self, BoostChoice};
use linerate_tune::boost::watch::{WatchEvent, watch};
use linerate_tune::boost::{BoostPlan, ObservedServer};
use linerate_tune::journal::StateStore;
use linerate_tune::journal::record::UndoReason;
use linerate_tune::transaction::{ChangeResult, TuneStart, TuneTransaction, UndoReport, undo};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::sched_getaffinity;

use crate::clients::{Client, workers};

const PORT: u16 = 5300;

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// The role of the server, in words: the address, the number of workers, the milliseconds until a
/// dead worker is replaced or `never`, and `own` or `shared` sockets.
pub(crate) fn serve(server: &str) -> ExitCode {
    let words: Vec<&str> = server.split(' ').collect();
    let [address, workers, refork, sockets] = words[..] else { return ExitCode::FAILURE };
    let prefork = PreforkServer {
        address: address.parse().unwrap(),
        workers: workers.parse().unwrap(),
        refork: refork.parse().ok().map(Duration::from_millis),
        own_sockets: sockets == "own",
    };
    let error = prefork.run(&mut std::io::stdout()).expect_err("the server runs until it is killed");
    eprintln!("{error}");
    ExitCode::FAILURE
}

/// A lab with a server of two workers, and clients on two CPUs. Fields are dropped in this order.
pub(crate) struct Scene {
    pub(crate) clients: [Client; 2],
    pub(crate) master: LabChild,
    lines: Lines<BufReader<ChildStdout>>,
    /// The master and the workers, except those that were killed.
    living: Vec<u32>,
    pub(crate) lab: Lab,
    directory: tempfile::TempDir,
}

impl Scene {
    /// Sets up the scene, or returns the reason why that is not possible here.
    pub(crate) fn set(refork: &str, sockets: &str) -> Result<Self, String> {
        let cpus = sched_getaffinity(None).unwrap();
        if !(cpus.is_set(0) && cpus.is_set(1)) {
            return Err("requires CPUs 0 and 1".to_owned());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("requires root to steer and pin another process".to_owned());
        }
        let lab = Lab::builder().start().map_err(|error| error.to_string())?;
        let directory = tempfile::tempdir().unwrap();
        // The server runs from a copy of this program, so that boost does not take this process for
        // a part of the server.
        let program = directory.path().join("prefork");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let address = SocketAddr::new(lab.links()[0].receiver.ipv4[0].into(), PORT);
        let mut command = Command::new(program);
        command.args(["role", "prefork", &format!("{address} 2 {refork} {sockets}")]).stdout(Stdio::piped());
        let mut master = lab.receiver().spawn(command).unwrap();
        let mut lines = BufReader::new(master.stdout.take().unwrap()).lines();
        let worker = |line: String| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
        let mut living = vec![master.id()];
        living.extend(lines.by_ref().take(2).map(|line| worker(line.unwrap())));
        let clients = [0, 1].map(|cpu| Client::start(&lab.senders()[0], cpu, address));
        Ok(Self { clients, master, lines, living, lab, directory })
    }

    pub(crate) fn store(&self) -> StateStore {
        StateStore::at(self.directory.path().join("state"))
    }

    fn host(&self) -> Host {
        Host::live_with_sys(self.lab.receiver().sys_path().unwrap())
    }

    /// Runs `work` in the server's network namespace.
    fn inside<T: Send>(&self, work: impl FnOnce(&Host) -> T + Send) -> T {
        let host = self.host();
        self.lab.receiver().run(|| work(&host)).unwrap()
    }

    /// Boosts the server, so that each CPU has its own worker. Returns the reason if the kernel
    /// refuses.
    pub(crate) fn boost(&self) -> Result<(), String> {
        for client in &self.clients {
            client.answered_after(Instant::now(), 10);
        }
        let (_, boost) = self.look();
        let plan = boost.plan;
        assert!(!plan.changes.is_empty(), "{:?}", boost.refusals);
        let store = self.store();
        self.inside(|host| {
            let mut writer = store.lock().unwrap();
            let begin = TuneStart { plan: Some(&plan), ..TuneStart::new(&plan.goal, Vec::new()) };
            let mut transaction = TuneTransaction::begin(&mut writer, host, begin).unwrap();
            for change in &plan.changes {
                let result =
                    transaction.change_from(host, &change.setting, &change.from, &change.to).unwrap();
                if let ChangeResult::Refused { why } = result {
                    assert!(why.contains("CAP_"), "{why}");
                    return Err(why);
                }
            }
            transaction.end(None).unwrap();
            Ok(())
        })?;
        let since = Instant::now();
        let answers = self.clients.each_ref().map(|client| workers(&client.answered_after(since, 100)));
        assert!(answers.iter().all(|workers| workers.len() == 1) && answers[0] != answers[1], "{answers:?}");
        Ok(())
    }

    pub(crate) fn look(&self) -> (ObservedServer, BoostPlan) {
        self.inside(|host| {
            let look = ObservationOptions { duration: Duration::from_millis(500), datagrams: true };
            let (server, path) = ObservedServer::observe(host, &query(), look, &|| false).unwrap();
            let plan = plan::make(&server, &path, &BoostChoice::default());
            (server, plan)
        })
    }

    /// The worker that answers the requests from a CPU.
    pub(crate) fn worker_of(&self, cpu: usize) -> u32 {
        let recent = self.clients[cpu].answered_after(Instant::now(), 20);
        let [worker] = workers(&recent)[..] else { panic!("{recent:?}") };
        worker
    }

    /// Kills a worker and returns the time.
    pub(crate) fn kill(&mut self, pid: u32) -> Instant {
        self.living.retain(|living| *living != pid);
        let at = Instant::now();
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
        at
    }

    /// The next line that the master prints.
    pub(crate) fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    /// Watches the server that tune 1 boosted. Returns when the watch has a pidfd of each process.
    pub(crate) fn watch(&self) -> Watching {
        let (sender, events) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (host, store, stopped) = (self.host(), self.store(), Arc::clone(&stop));
        let work = move || {
            let on_event = &mut |event| drop(sender.send(event));
            let result = watch(
                &host,
                &store,
                1,
                (&query(), &BoostChoice::default()),
                &|| stopped.load(Ordering::Relaxed),
                on_event,
            );
            result.unwrap();
        };
        let thread = self.lab.receiver().run(move || std::thread::spawn(work)).unwrap();
        eventually("the watch waits for the processes", || self.living.iter().all(|pid| is_waited_for(*pid)));
        Watching { events, stop, thread: Some(thread) }
    }

    pub(crate) fn undo(&self) -> UndoReport {
        let store = self.store();
        // The watch may hold the lock.
        self.inside(|host| {
            undo(&mut store.lock_waiting().unwrap(), host, Some(1), UndoReason::Asked).unwrap()
        })
    }

    /// The steering of the server's first reuseport group.
    pub(crate) fn steering(&self) -> String {
        let (server, _) = self.look();
        let group = &server.groups[0];
        let setting =
            Setting::Steering { namespace: server.namespace, protocol: group.protocol, local: group.local };
        self.inside(|host| setting.read(host).unwrap().to_string())
    }
}

/// A running watch, which is stopped when this is dropped.
pub(crate) struct Watching {
    events: Receiver<WatchEvent>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    pub(crate) fn event(&self) -> WatchEvent {
        let event = self.events.recv_timeout(PATIENCE).expect("an event");
        eprintln!("{event:?}");
        event
    }

    /// Waits until the watch ends without being stopped.
    pub(crate) fn wait_until_ended(mut self) {
        let thread = self.thread.take().unwrap();
        eventually("the watch ends", || thread.is_finished());
        thread.join().unwrap();
        assert_eq!(self.events.try_recv().ok(), None);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn query() -> ServerQuery {
    ServerQuery { port: Some(PORT), ..ServerQuery::default() }
}

/// Whether this process has a pidfd of `pid` (proc_pid_fdinfo(5)).
fn is_waited_for(pid: u32) -> bool {
    let line = format!("Pid:\t{pid}\n");
    let open = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    open.filter_map(|file| std::fs::read_to_string(file.path()).ok()).any(|text| text.contains(&line))
}

/// Whether a process may run on CPU 0 and on CPU 1.
pub(crate) fn cpus(pid: u32) -> [bool; 2] {
    let cpus = sched_getaffinity(Pid::from_raw(pid.cast_signed())).unwrap();
    [0, 1].map(|cpu| cpus.is_set(cpu))
}

/// Waits until a condition is true that depends on other processes.
pub(crate) fn eventually(condition: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
