//! Prints the table of families, as docs/export.md has it.

fn main() {
    print!("{}", linerate_metrics::table());
}
