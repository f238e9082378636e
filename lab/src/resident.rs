//! The thread that holds a host.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use rustix::thread::{Pid, gettid};

use crate::error::{LabError, Result};
use crate::namespace::NetworkNamespace;

/// A thread that stays in the network namespace of a host and forks the host's programs.
///
/// The programs inherit the namespace, and the kernel counts this thread as the parent whose death
/// ends them (PR_SET_PDEATHSIG).
#[derive(Debug)]
pub(crate) struct ResidentThread {
    thread_id: Pid,
    requests: Option<Sender<SpawnRequest>>,
    thread: Option<JoinHandle<()>>,
}

/// A program to start, and where to send the process.
type SpawnRequest = (Command, SyncSender<io::Result<Child>>);

impl ResidentThread {
    /// Starts the thread in a new network namespace.
    pub(crate) fn start(name: &str) -> Result<(Self, NetworkNamespace)> {
        let (requests, request_receiver) = channel::<SpawnRequest>();
        let (entered_sender, entered_receiver) = sync_channel(1);
        let start_error = |error| LabError::system(format!("start the thread {name}"), error);
        let thread = Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let entered = NetworkNamespace::enter_new().map(|namespace| (gettid(), namespace));
                if entered_sender.send(entered).is_ok() {
                    for (mut command, child_sender) in request_receiver {
                        let _ = child_sender.send(command.spawn());
                    }
                }
            })
            .map_err(start_error)?;
        let (thread_id, namespace) = entered_receiver.recv().map_err(|_| start_error(has_ended()))??;
        Ok((Self { thread_id, requests: Some(requests), thread: Some(thread) }, namespace))
    }

    pub(crate) fn thread_id(&self) -> i32 {
        self.thread_id.as_raw_nonzero().get()
    }

    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (child_sender, child_receiver) = sync_channel(1);
        let requests = self.requests.as_ref().ok_or_else(has_ended)?;
        requests.send((command, child_sender)).map_err(|_| has_ended())?;
        child_receiver.recv().map_err(|_| has_ended())?
    }
}

impl Drop for ResidentThread {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn has_ended() -> io::Error {
    io::Error::other("the thread has ended")
}
