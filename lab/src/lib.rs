//! Throw-away hosts from network namespaces and veth pairs.
