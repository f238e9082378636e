//! Bad input gets one clear line and exit status 2.

use crate::support;
use std::net::UdpSocket;

fn cases(files: &str) {
    // A program it does not find would make trycmd ignore the cases.
    trycmd::TestCases::new().register_bin("linerate", support::program()).case(files);
}

#[test]
fn bad_input() {
    cases("tests/cmd/*.toml");
}

#[test]
fn bad_input_to_a_lab() {
    let _machine = support::machine();
    if let Err(why) = support::labs_can_be_made() {
        return support::skip("bad_input_to_a_lab", &why);
    }
    cases("tests/cmd-lab/*.toml");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let output = support::linerate(&["serve", "echo", "--bind", &address]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(errors.contains(&address) && errors.contains("in use"), "{errors}");
}
