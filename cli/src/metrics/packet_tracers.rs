//! Optional collectors that trace packets; they run as long as the exporter.

mod cost;
mod drops;
mod headroom;

pub(crate) use cost::CostCollector;
pub(crate) use drops::DropsCollector;
pub(crate) use headroom::HeadroomCollector;
