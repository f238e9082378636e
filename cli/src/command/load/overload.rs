//! `--overload`: what is still answered above capacity.

use std::process::ExitCode;

use anyhow::Result;
use linerate_measure::capacity::{self, Overload};
use linerate_measure::{Description, Mode};
use serde::Serialize;

use super::run::{Run, exit};
use super::workload;
use crate::render::{load_html, load_text};

/// The result: schema `linerate.load-overload/1`.
#[derive(Debug, Serialize)]
pub(crate) struct OverloadDocument {
    pub(crate) schema: &'static str,
    pub(crate) version: &'static str,
    pub(crate) argv: Vec<String>,
    pub(crate) generator: Description,
    pub(crate) capacity_per_second: f64,
    pub(crate) overload: Vec<Overload>,
    pub(crate) warnings: Vec<String>,
}

impl Run {
    /// Offers multiples of a capacity known from elsewhere, and reports what was answered.
    pub(crate) fn overload(&mut self, capacity: f64) -> Result<ExitCode> {
        self.outputs.started(&self.generator.describe())?;
        let overload = self.goodput(capacity)?;
        let document = OverloadDocument {
            schema: "linerate.load-overload/1",
            version: env!("CARGO_PKG_VERSION"),
            argv: workload::argv(),
            generator: self.generator.describe(),
            capacity_per_second: capacity,
            overload,
            warnings: self.notes.clone(),
        };
        self.outputs.finished(
            &document,
            || load_text::overload(&document),
            || load_html::overload(&document),
        )?;
        Ok(exit(
            document.overload.iter().any(|one| one.goodput_ratio.value().is_some_and(|ratio| *ratio > 0.0)),
        ))
    }

    /// What is answered at each multiple asked for.
    pub(crate) fn goodput(&mut self, capacity: f64) -> Result<Vec<Overload>> {
        let slot = self.times.step(Mode::Flood, false).duration;
        let mut all = Vec::new();
        for factor in &self.bounds.overload {
            all.extend(capacity::overload(&mut *self.generator, capacity, &[*factor], slot)?);
            if let Some(one) = all.last() {
                self.outputs.event("overload", one);
            }
        }
        Ok(all)
    }
}
