//! A server for a few small pages that no client can block or make grow: one request per
//! connection, GET and HEAD only, with limits on the length and duration of a request and on the
//! number of connections.
//!
//! Servers of libraries read a request for as long as its client sends it, or require a runtime
//! that nothing else here uses.

mod page;
mod request;

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) use page::ExporterPages;
pub(crate) use request::{HttpRequest, RequestError};

/// Limits per client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientLimits {
    /// Simultaneous connections. Further connections get status 503 and are closed.
    pub(crate) connections: usize,
    // Longest request with its headers, bytes.
    pub(crate) request_bytes: usize,
    /// How long a client may take to send its request.
    pub(crate) request_time: Duration,
    /// How long a client may take to fetch the response.
    pub(crate) response_time: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections: 16,
            request_bytes: 8 << 10,
            request_time: Duration::from_secs(3),
            response_time: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    /// Status and reason, such as `200 OK`.
    pub(crate) status: &'static str,
    /// Media type of the body.
    pub(crate) content_type: &'static str,
    pub(crate) body: Arc<str>,
}

impl HttpResponse {
    /// A line of text.
    pub(crate) fn line(status: &'static str, text: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{text}\n").into() }
    }
}

/// Answers a request. Several threads call it at the same time.
pub(crate) type RequestHandler = dyn Fn(&HttpRequest) -> HttpResponse + Send + Sync;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct HttpServer {
    listener: TcpListener,
    limits: ClientLimits,
    open: Arc<AtomicUsize>,
}

impl HttpServer {
    /// Listens on an address; port 0 selects a free one.
    pub(crate) fn bind(address: SocketAddr, limits: ClientLimits) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, limits, open: Arc::default() })
    }

    /// The listening address.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    // Accepts the waiting connections, each on its own thread. Never blocks. Call it when
    // [`AsFd::as_fd`] is readable.
    pub(crate) fn accept(&self, handler: &Arc<RequestHandler>) {
        // Any error ends the loop. Connections that still wait are for the next call.
        while let Ok((stream, _)) = self.listener.accept() {
            let slot = ConnectionSlot::acquire(&self.open);
            if self.open.load(Ordering::Relaxed) > self.limits.connections {
                refuse(&stream);
                continue;
            }
            let (handler, limits) = (Arc::clone(handler), self.limits);
            let serve = move || {
                let _slot = slot;
                // Ignores the error of a client that leaves before the end of the response.
                let _ = serve(&stream, &limits, &handler);
            };
            // Without a thread the connection is closed, and the client gets an error.
            let _ = std::thread::Builder::new().name("http".to_owned()).spawn(serve);
        }
    }
}

impl AsFd for HttpServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Counts an open connection until it is dropped.
struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    fn acquire(open_connections: &Arc<AtomicUsize>) -> Self {
        open_connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open_connections))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

// Refuses a connection beyond the limit. The line fits any socket buffer, so the write does not
// wait.
fn refuse(mut stream: &TcpStream) {
    let text = head(&HttpResponse::line("503 Service Unavailable", ""), 0);
    // Best effort: the client may have closed the connection.
    let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(text.as_bytes()));
}

fn serve(stream: &TcpStream, limits: &ClientLimits, handler: &Arc<RequestHandler>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let (response, head_only) = match read(stream, limits)? {
        Ok(request) => (handler(&request), request.head_only),
        Err(request_error) => (request_error.response(), false),
    };
    let body = if head_only { "" } else { &*response.body };
    let text = format!("{}{body}", head(&response, response.body.len()));
    write(stream, text.as_bytes(), limits.response_time)?;
    stream.shutdown(Shutdown::Write)?;
    finish(stream)
}

fn head(response: &HttpResponse, length: usize) -> String {
    format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {length}\r\nConnection: close\r\n\
         X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\r\n",
        response.status, response.content_type
    )
}

/// The time until the deadline, or an error if it has passed.
fn remaining_time(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(remaining) }
}

/// Reads a request within the limits of time and length.
fn read(mut stream: &TcpStream, limits: &ClientLimits) -> io::Result<Result<HttpRequest, RequestError>> {
    let deadline = Instant::now() + limits.request_time;
    let mut buffer = vec![0; limits.request_bytes];
    let mut length = 0;
    loop {
        if let Some(request) = request::complete(&buffer[..length]) {
            return Ok(HttpRequest::parse(request));
        }
        if length == buffer.len() {
            return Ok(Err(RequestError::TooLong));
        }
        let Ok(remaining) = remaining_time(deadline) else { return Ok(Err(RequestError::TooSlow)) };
        stream.set_read_timeout(Some(remaining))?;
        match stream.read(&mut buffer[length..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => length += bytes,
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn write(mut stream: &TcpStream, mut text: &[u8], time: Duration) -> io::Result<()> {
    let deadline = Instant::now() + time;
    while !text.is_empty() {
        stream.set_write_timeout(Some(remaining_time(deadline)?))?;
        match stream.write(text) {
            Ok(bytes) => text = &text[bytes..],
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

// Waits a moment for the client to close: a close with unread data makes the kernel send a reset,
// and the response can be lost.
fn finish(mut stream: &TcpStream) -> io::Result<()> {
    const MOMENT: Duration = Duration::from_millis(500);
    let deadline = Instant::now() + MOMENT;
    loop {
        stream.set_read_timeout(Some(remaining_time(deadline)?))?;
        if stream.read(&mut [0; 512])? == 0 {
            return Ok(());
        }
    }
}

// A timeout, which the deadline handles, or a signal.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
