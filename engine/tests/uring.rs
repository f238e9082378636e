//! What only the io_uring backend does.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use linerate_engine::{Action, Backend, Echo, Overload, Request, Server, Shed, Uring};
use support::{Outcome, PATIENCE, client, lacking, skip};

/// The settings as a backend, unless io_uring cannot be had here, which is said then.
fn here(test: &str, settings: Uring) -> Option<Backend> {
    let backend = Backend::Uring(settings);
    match lacking(backend) {
        None => Some(backend),
        Some(why) => {
            skip(test, why);
            None
        }
    }
}

fn send(client: &UdpSocket, to: SocketAddr, count: u32) -> std::io::Result<()> {
    (0..count).try_for_each(|index| client.send_to(&index.to_be_bytes(), to).map(drop))
}

/// Fewer buffers than requests: none is lost, and the receive is armed anew each time.
#[test]
fn requests_wait_in_the_socket_while_all_buffers_are_taken() -> Outcome {
    let settings = Uring { buffers: 4, ..Uring::default() };
    let Some(backend) = here("requests_wait_in_the_socket_while_all_buffers_are_taken", settings) else {
        return Ok(());
    };
    let server = Server::builder().bind("127.0.0.1:0".parse()?).workers(1).backend(backend).prepare()?;
    let client = client("127.0.0.1:0")?;
    send(&client, server.local_addr(), 100)?;
    let running = server.start(|_| Echo)?;
    for index in 0..100u32 {
        let mut answer = [0; 4];
        assert_eq!(client.recv(&mut answer)?, 4);
        assert_eq!(u32::from_be_bytes(answer), index, "in another order");
    }
    let total = running.stop()?.total();
    assert_eq!((total.received, total.answered), (100, 100), "{total:?}");
    assert!(total.starved > 0, "{total:?}");
    Ok(())
}

/// Both ways of the data: a queue of requests takes fewer calls than there are requests, and one at a time takes one each.
#[test]
fn the_call_that_sends_is_the_one_that_waits() -> Outcome {
    let Some(backend) = here("the_call_that_sends_is_the_one_that_waits", Uring::default()) else {
        return Ok(());
    };
    let server = Server::builder().bind("127.0.0.1:0".parse()?).workers(1).backend(backend).prepare()?;
    let client = client("127.0.0.1:0")?;
    send(&client, server.local_addr(), 64)?;
    let running = server.start(|_| Echo)?;
    let mut answer = [0; 4];
    for _ in 0..64 {
        client.recv(&mut answer)?;
    }
    let queued = running.total();
    assert!(queued.syscalls <= 16, "{queued:?}");
    for _ in 0..100 {
        send(&client, running.local_addr(), 1)?;
        client.recv(&mut answer)?;
    }
    let total = running.stop()?.total();
    assert_eq!(total.answered, 164);
    // What starting and ending takes is in it.
    assert!(total.syscalls - queued.syscalls <= 100 + 16, "{queued:?}, {total:?}");
    Ok(())
}

/// Each reply is held by the kernel until it has let go of it; more of them than may be held are copied.
#[test]
fn replies_without_a_copy_arrive_whole() -> Outcome {
    let settings = Uring { zero_copy_bytes: Some(1000), ..Uring::default() };
    let Some(backend) = here("replies_without_a_copy_arrive_whole", settings) else {
        return Ok(());
    };
    for bind in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        let running = Server::builder().bind(bind.parse()?).workers(1).backend(backend).start(|_| {
            |request: &Request<'_>, reply: &mut [u8]| match request.payload() {
                [fill, ..] if fill % 2 == 0 => {
                    let length = 200 + usize::from(*fill) * 7;
                    reply[..length].fill(*fill);
                    Action::Reply(length)
                }
                _ => Action::Echo,
            }
        })?;
        let to = SocketAddr::from(([127, 0, 0, 1], running.local_addr().port()));
        let client = client("127.0.0.1:0")?;
        let mut answer = [0; 4096];
        for _ in 0..25 {
            // Few enough for the client's receive buffer, whatever the kernel reckons a page of them to take.
            for fill in 0..16u8 {
                client.send_to(&vec![fill * 15; 1500], to)?;
            }
            for fill in 0..16u8 {
                let fill = fill * 15;
                let length = client.recv(&mut answer)?;
                let expected = if fill % 2 == 0 { 200 + usize::from(fill) * 7 } else { 1500 };
                assert_eq!(length, expected, "{bind}");
                assert!(answer[..length].iter().all(|byte| *byte == fill), "{bind}");
            }
        }
        let total = running.stop()?.total();
        assert_eq!((total.received, total.answered), (400, 400), "{total:?}");
    }
    Ok(())
}

#[test]
fn a_device_may_be_polled_while_waiting() -> Outcome {
    let settings = Uring { busy_poll_us: Some(50), prefer_busy_poll: true, ..Uring::default() };
    let Some(backend) = here("a_device_may_be_polled_while_waiting", settings) else {
        return Ok(());
    };
    let running =
        Server::builder().bind("127.0.0.1:0".parse()?).workers(1).backend(backend).start(|_| Echo)?;
    let (answer, _) = support::ask(&client("127.0.0.1:0")?, running.local_addr(), b"polled")?;
    assert_eq!(answer, b"polled");
    assert_eq!(running.stop()?.total().answered, 1);
    Ok(())
}

/// The thread that builds a server makes calls that wait; what asking for io_uring leaves to be torn down must not end them.
#[test]
fn who_builds_a_server_is_not_interrupted() -> Outcome {
    let Some(backend) = here("who_builds_a_server_is_not_interrupted", Uring::default()) else {
        return Ok(());
    };
    let quiet = UdpSocket::bind("127.0.0.1:0")?;
    quiet.set_read_timeout(Some(PATIENCE / 100))?;
    for _ in 0..20 {
        drop(Server::builder().bind("127.0.0.1:0".parse()?).backend(backend).prepare()?);
        let waited = quiet.recv(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(waited, Err(std::io::ErrorKind::WouldBlock));
    }
    Ok(())
}

/// What a server does above its capacity it does over io_uring too.
#[test]
fn what_waited_too_long_is_shed() -> Outcome {
    let Some(backend) = here("what_waited_too_long_is_shed", Uring::default()) else {
        return Ok(());
    };
    let overload =
        Overload { shed: Shed::Oldest, shed_after: Duration::from_millis(50), ..Overload::default() };
    let (taken, is_taken) = mpsc::channel();
    let running =
        Server::builder().bind("127.0.0.1:0".parse()?).workers(1).backend(backend).overload(overload).start(
            move |_| {
                let taken = taken.clone();
                move |_: &Request<'_>, _: &mut [u8]| {
                    let _ = taken.send(());
                    // The fault under test: what comes meanwhile waits longer than it may.
                    std::thread::sleep(Duration::from_millis(100));
                    Action::Echo
                }
            },
        )?;
    let client = client("127.0.0.1:0")?;
    // The kernel begins to note arrivals some time after it is first asked for them.
    for _ in 0..20 {
        send(&client, running.local_addr(), 1)?;
        // It may be shed itself.
        let _ = is_taken.recv_timeout(PATIENCE / 10);
        if running.total().shed > 0 {
            break;
        }
        send(&client, running.local_addr(), 4)?;
    }
    let total = running.stop()?.total();
    assert!(total.shed > 0 && total.answered > 0, "{total:?}");
    assert_eq!(total.received, total.answered + total.shed, "{total:?}");
    Ok(())
}
