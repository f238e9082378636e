//! Keeps connections alive: a question about the time every other second.
//!
//! It lets a far generator know that somebody is there, and its clock is compared with ours all along.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::link::{HostLink, OrderLine};

/// Well within the silence after which a far generator ends.
const EVERY: Duration = Duration::from_secs(2);

/// A thread that asks; it ends when this is dropped.
#[derive(Debug, Default)]
pub(super) struct KeepalivePinger {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl KeepalivePinger {
    /// Asks over the lines of these links.
    pub(super) fn of(links: &[HostLink]) -> Self {
        let lines: Vec<OrderLine> = links.iter().map(|link| link.line().clone()).collect();
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut number = 0;
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                number += 1;
                for line in &lines {
                    // A line that is broken is noticed by who reads the answers.
                    let _ = line.ping(number);
                }
            }
        });
        KeepalivePinger { running: Some((end, thread)) }
    }
}

impl Drop for KeepalivePinger {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}
