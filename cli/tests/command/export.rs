//! `linerate export`, by itself and scraped by a real Prometheus.

mod alone;
mod prometheus;
mod scraped;
