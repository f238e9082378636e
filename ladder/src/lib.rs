//! The rungs, the climb and its report: engine, host, lab and measure put together.
