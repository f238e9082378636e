//! Load generation, rates, latency, cost and statistics.
