//! Optional collectors that trace packets; they run as long as the exporter.

mod cost;
mod drops;

pub(crate) use cost::CostCollector;
pub(crate) use drops::DropsCollector;
