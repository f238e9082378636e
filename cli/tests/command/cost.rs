//! `linerate cost` compares results and names missing capabilities. Its accuracy has a test program of its own.

mod compared;
mod refused;
