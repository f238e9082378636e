//! Counters of the packet path as OpenMetrics with stable names, and the dashboard and alerts that use them.
//!
//! `FAMILIES` is the one table of exported families: encoder, documentation, and the checks of
//! dashboard and rules all use it. An [`Exporter`] reads a host and keeps the state that outlives a
//! reading: totals of counters whose sources come and go, and the set of series of each family.
//! [`text`] formats the gathered values, and [`http`] serves that text. Nothing here prints.

mod exporter;
mod families;
mod family;
mod gather;
pub(crate) mod http;
mod packet_tracers;
pub(crate) mod text;
mod totals;

pub(crate) use exporter::{Exporter, ExporterOptions, OptionalMetrics};
pub(crate) use text::ExpositionFormat;

#[cfg(test)]
mod tests {
    mod expositions;
    #[path = "../../../tests/command/export/rules.rs"]
    mod rules;
    mod shipped;

    use super::families::{FAMILIES, family, table};
    use super::family::MetricKind;
    use super::totals::Exposition;
    use super::{Exporter, ExporterOptions, ExpositionFormat, OptionalMetrics, text};
}
