//! The packet path of one host: reads and settings. Never prints.
