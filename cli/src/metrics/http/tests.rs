use super::*;
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::atomic::AtomicBool;
use std::thread::{JoinHandle, spawn};

/// An HTTP server that responds with the request path and a given number of bytes.
struct TestHttpServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestHttpServer {
    fn start(limits: ClientLimits, bytes: usize) -> Self {
        let server = HttpServer::bind(([127, 0, 0, 1], 0).into(), limits).expect("the server listens");
        let (address, stop) = (server.address().expect("an address"), Arc::<AtomicBool>::default());
        let stop_flag = Arc::clone(&stop);
        let handler: Arc<RequestHandler> = Arc::new(move |request: &HttpRequest| HttpResponse {
            status: "200 OK",
            content_type: "text/plain",
            body: format!("{}{}", request.path, "x".repeat(bytes)).into(),
        });
        let thread = spawn(move || {
            while !stop_flag.load(Ordering::Relaxed) {
                poll(&mut [PollFd::new(&server, PollFlags::IN)], None).expect("polled");
                server.accept(&handler);
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream
    }

    fn response_to(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        read_response(stream)
    }
}

impl Drop for TestHttpServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread ends");
        }
    }
}

/// The response, until the server closes the connection.
fn read_response(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    text
}

const GET: &str = "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn get_returns_headers_and_body_and_head_only_headers() {
    let server = TestHttpServer::start(ClientLimits::default(), 3);
    let text = server.response_to(GET);
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"),
        "{text}"
    );
    assert!(text.ends_with("\r\n\r\n/axxx"), "{text}");
    let text = server.response_to("HEAD /a HTTP/1.1\r\n\r\n");
    assert!(text.contains("Content-Length: 5\r\n") && text.ends_with("\r\n\r\n"), "{text}");
}

#[test]
fn bad_requests_get_status_400_405_or_431() {
    let server = TestHttpServer::start(ClientLimits::default(), 0);
    assert!(server.response_to("nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(server.response_to("DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(9000));
    assert!(server.response_to(&long).starts_with("HTTP/1.1 431 "));
    // The server still answers.
    assert!(server.response_to(GET).starts_with("HTTP/1.1 200 "));
}

#[test]
fn an_incomplete_request_times_out_with_408() {
    let limits = ClientLimits { request_time: Duration::from_millis(100), ..ClientLimits::default() };
    let server = TestHttpServer::start(limits, 0);
    let mut slow = server.connect();
    slow.write_all(b"GET / HT").expect("sent");
    assert!(read_response(slow).starts_with("HTTP/1.1 408 "));
}

#[test]
fn connections_over_the_limit_get_503_until_slow_clients_time_out() {
    let limits =
        ClientLimits { connections: 3, request_time: Duration::from_millis(300), ..ClientLimits::default() };
    let server = TestHttpServer::start(limits, 0);
    let slow: Vec<TcpStream> = (0..3).map(|_| server.connect()).collect();
    // Clients are accepted in order, so this one comes after the slow ones.
    assert!(read_response(server.connect()).starts_with("HTTP/1.1 503 "));
    slow.into_iter().for_each(|stream| assert!(read_response(stream).starts_with("HTTP/1.1 408 ")));
    // A connection becomes free when its thread ends, which a client cannot see.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !server.response_to(GET).starts_with("HTTP/1.1 200 ") {
        assert!(Instant::now() < deadline, "no connection is free again");
    }
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let limits =
        ClientLimits { connections: 1, response_time: Duration::from_millis(100), ..ClientLimits::default() };
    let server = TestHttpServer::start(limits, 32 << 20);
    let mut stalled = server.connect();
    stalled.write_all(GET.as_bytes()).expect("sent");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut next = server.connect();
        let mut begin = [0; 12];
        // A refused client may find the connection closed before it has sent its request.
        let _ = next.write_all(GET.as_bytes());
        if next.read_exact(&mut begin).is_ok() && &begin == b"HTTP/1.1 200" {
            break;
        }
        assert!(Instant::now() < deadline, "the connection is not free again");
    }
}
