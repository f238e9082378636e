//! `linerate cost` compares two results. Its accuracy has a test program of its own.

mod compared;
