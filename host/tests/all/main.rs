//! Tests on this host and on fixtures, in one program.

mod filter;
mod fixtures;
mod link;
mod netlink;
mod queues;
mod services;
mod settings;
mod steering;

use linerate_lab::Lab;

/// A lab; `None`, after printing SKIP, if the host does not allow it.
fn lab(test: &str) -> Option<Lab> {
    Lab::builder().start().map_err(|error| linerate_testkit::skip(test, error)).ok()
}
