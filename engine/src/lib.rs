//! A UDP transaction server inside your process, and steering for your own event loop.
