//! What is seen by tracing, where that was asked for: collectors that run as long as the exporter.

mod cost;
mod drops;

pub(crate) use cost::CostCollector;
pub(crate) use drops::DropsCollector;
