//! RADIUS: FreeRADIUS with one user.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_load::workload::PreparedExchange;
use linerate_load::workload::radius::{self, PasswordMethod};
use linerate_load::{LoadSlot, PacingMode};

use crate::scene::{Scene, assert_sound, code};

const PORT: u16 = 1812;
const SECRET: &[u8] = b"testing123";

fn configuration(scene: &Scene) -> String {
    let directory = scene.directory.path().display();
    let address = scene.address();
    format!(
        "prefix = /usr
libdir = /usr/lib/freeradius
logdir = {directory}
run_dir = {directory}
db_dir = {directory}
raddbdir = {directory}
pidfile = {directory}/pid
max_requests = 65536
cleanup_delay = 2
log {{
  destination = stdout
}}
security {{
  reject_delay = 0
  status_server = no
}}
thread pool {{
  start_servers = 2
  max_servers = 2
  min_spare_servers = 1
  max_spare_servers = 2
  max_requests_per_server = 0
}}
client lab {{
  ipaddr = 198.18.0.0/15
  secret = testing123
  require_message_authenticator = yes
}}
modules {{
  pap {{
  }}
  chap {{
  }}
}}
server lab {{
  listen {{
    type = auth
    ipaddr = {address}
    port = {PORT}
  }}
  authorize {{
    if (&User-Name == \"bob\") {{
      update control {{
        &Cleartext-Password := \"hello\"
      }}
    }}
    chap
    pap
  }}
  authenticate {{
    Auth-Type PAP {{
      pap
    }}
    Auth-Type CHAP {{
      chap
    }}
  }}
}}
"
    )
}

fn requests(secret: &[u8], password: &[u8], method: PasswordMethod) -> PreparedExchange {
    radius::access_requests(secret, "bob", password, method).unwrap()
}

#[test]
fn freeradius_accepts_right_and_rejects_wrong_passwords() {
    let Some(mut scene) = Scene::set("freeradius_accepts_right_and_rejects_wrong_passwords", "freeradius")
    else {
        return;
    };
    scene.write("radiusd.conf", &configuration(&scene));
    let directory = scene.directory.path().display().to_string();
    let address = SocketAddr::new(scene.address(), PORT);
    let first = requests(SECRET, b"hello", PasswordMethod::Pap).requests.remove(0);
    scene.serve("freeradius", &["-f", "-l", "stdout", "-d", &directory], address, &first);

    for (password, method, kind) in [
        (&b"hello"[..], PasswordMethod::Pap, "Access-Accept"),
        (b"wrong", PasswordMethod::Pap, "Access-Reject"),
        (b"hello", PasswordMethod::Chap, "Access-Accept"),
    ] {
        scene.load(requests(SECRET, password, method), address, 8, |generator| {
            for mode in [PacingMode::Rate { per_second: 500.0 }, PacingMode::Window { outstanding: 4 }] {
                let outcome = generator.run(&LoadSlot::new(mode, Duration::from_millis(500))).unwrap();
                assert_sound(&outcome);
                assert!(outcome.answered > 0);
                assert_eq!(code(&outcome, kind), outcome.answered, "{outcome:?}");
                assert_eq!(outcome.lost, 0, "{outcome:?}");
            }
        });
    }
}

#[test]
fn freeradius_drops_requests_with_another_secret() {
    let Some(mut scene) = Scene::set("freeradius_drops_requests_with_another_secret", "freeradius") else {
        return;
    };
    scene.write("radiusd.conf", &configuration(&scene));
    let directory = scene.directory.path().display().to_string();
    let address = SocketAddr::new(scene.address(), PORT);
    let first = requests(SECRET, b"hello", PasswordMethod::Pap).requests.remove(0);
    scene.serve("freeradius", &["-f", "-l", "stdout", "-d", &directory], address, &first);
    // The Message-Authenticator of these requests is wrong, because they use another secret.
    scene.load(requests(b"other", b"hello", PasswordMethod::Pap), address, 2, |generator| {
        let outcome = generator.run(&LoadSlot::rate(100.0, Duration::from_millis(200))).unwrap();
        assert!(outcome.sent > 0);
        assert_eq!((outcome.answered, outcome.lost), (0, outcome.sent), "{outcome:?}");
    });
}
