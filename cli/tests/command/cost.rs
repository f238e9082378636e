//! `linerate cost` as root runs it: frames that nobody wants, on the CPU of somebody who wants to compute.

mod accord;
mod compared;
mod refused;
mod scene;
mod traces;
