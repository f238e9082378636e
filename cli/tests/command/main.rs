//! The command, run as a user runs it.

mod bad_input;
mod boost;
mod boost_servers;
mod compare;
mod cost;
mod doctor;
mod documents;
mod drops;
mod export;
mod flame;
mod flame_input;
mod host_wide;
mod kill;
mod lab_server;
mod ladder;
mod load;
mod remote;
mod replicas;
mod report;
mod schema;
mod schema_coverage;
mod serve;
mod support;
mod sys;
mod top;
mod tune;
