//! A table of nftables, through the `nft` program.

use super::Value;
use crate::{Host, HostError};

/// The table as `nft` prints it, empty when there is none of that name.
pub(super) fn read(host: &Host, table: &str) -> Result<Value, HostError> {
    let tables = host.program("nft", &["list", "tables", "inet"], "")?;
    let line = format!("table inet {table}");
    if tables.lines().any(|printed| printed.trim() == line) {
        host.program("nft", &["list", "table", "inet", table], "").map(Value::new)
    } else {
        Ok(Value::new(""))
    }
}

/// Replaces the table by the one in `value` in one transaction; an empty value removes it.
pub(super) fn write(host: &Host, table: &str, value: &Value) -> Result<(), HostError> {
    // Adding before deleting makes the deletion good whether or not the table was there.
    let script = format!("table inet {table} {{}}\ndelete table inet {table}\n{value}\n");
    host.program("nft", &["-f", "-"], &script).map(|_| ())
}
