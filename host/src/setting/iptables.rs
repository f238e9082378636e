//! Rules of iptables, through its programs.
//!
//! Listing a missing table of iptables-legacy creates it, with hooks that every packet passes;
//! therefore missing tables are not listed.

mod rule;

use std::io;

pub(super) use rule::IptablesRule;

use crate::root::run;
use crate::sys::iptables::IpFamily;
use crate::{Host, HostError};

fn program(family: IpFamily) -> &'static str {
    match family {
        IpFamily::Ip => "iptables",
        IpFamily::Ip6 => "ip6tables",
    }
}

/// Whether the table exists, or listing does not create it.
fn can_list(host: &Host, family: IpFamily, table: &str) -> Result<bool, HostError> {
    let program = program(family);
    let version = host.call(&format!("{program}/version"), &format!("asking {program} for its kind"), || {
        run(program, &["--version"], "").map_err(io::Error::other)
    });
    match version {
        Ok(text) if text.contains("nf_tables") && host.is_live() => {
            return Ok(is_nftable(family, table).unwrap_or(true));
        }
        Ok(_) | Err(HostError::NotLive { .. }) => {}
        Err(error) => return Err(error),
    }
    match host.read(&names_path(family)) {
        Ok(names) => Ok(names.lines().any(|name| name.trim() == table)),
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error),
    }
}

// Whether nftables has the table of iptables-nft; `None` if nft fails.
fn is_nftable(family: IpFamily, table: &str) -> Option<bool> {
    let tables = run("nft", &["list", "tables"], "").ok()?;
    Some(tables.lines().any(|line| line.trim() == format!("table {family} {table}")))
}

fn names_path(family: IpFamily) -> String {
    format!("/proc/net/{family}_tables_names")
}

// The reason why `word` cannot be the name of a table or chain.
fn word_error(word: &str, kind: &str) -> Option<String> {
    const LONGEST: usize = 29;
    let has_valid_letters =
        word.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter));
    let is_valid = has_valid_letters && !word.is_empty() && word.len() <= LONGEST && !word.starts_with('-');
    (!is_valid).then(|| format!("'{word}' is no name of a {kind}"))
}
