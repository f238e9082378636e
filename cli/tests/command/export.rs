//! `linerate export`: by itself, in a lab, and scraped by a real Prometheus.

mod alone;
mod lab;
mod prometheus;
mod rules;
mod scraped;
mod steady;
