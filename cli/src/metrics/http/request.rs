//! The parts of an HTTP request that the server uses.

use super::HttpResponse;

/// A request for a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    /// The path, without the query.
    pub(crate) path: String,
    /// The accepted formats from the `Accept` header; empty without one.
    pub(crate) accept: String,
    /// Whether the client wants headers only.
    pub(crate) head_only: bool,
}

/// Reasons to refuse a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// The request is not HTTP/1.
    Garbled,
    /// The method is not GET or HEAD.
    Method,
    // The request is too long.
    TooLong,
    // The request took too long to arrive.
    TooSlow,
}

impl RequestError {
    pub(super) fn response(self) -> HttpResponse {
        let (status, text) = match self {
            RequestError::Garbled => ("400 Bad Request", "this is no request of HTTP/1"),
            RequestError::Method => {
                ("405 Method Not Allowed", "pages can be read with GET and HEAD, nothing else")
            }
            RequestError::TooLong => ("431 Request Header Fields Too Large", "the request is too long"),
            RequestError::TooSlow => ("408 Request Timeout", "the request did not come in time"),
        };
        HttpResponse::line(status, text)
    }
}

/// The request's line and headers, if all of them have arrived.
pub(super) fn complete(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(&bytes[..end])
}

impl HttpRequest {
    /// Reads line and headers.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let text = std::str::from_utf8(bytes).map_err(|_| RequestError::Garbled)?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(RequestError::Garbled);
        };
        // The form of the target for proxies is accepted, too.
        let path = target.strip_prefix("http://").map_or(target, |authority| {
            authority.find('/').map_or("/", |path_start| &authority[path_start..])
        });
        if !version.starts_with("HTTP/1.") || !path.starts_with('/') {
            return Err(RequestError::Garbled);
        }
        let head_only = match method {
            "GET" => false,
            "HEAD" => true,
            _ => return Err(RequestError::Method),
        };
        let accept: Vec<&str> = lines
            .filter_map(|line| line.split_once(':'))
            .filter(|(name, _)| name.eq_ignore_ascii_case("accept"))
            .map(|(_, value)| value.trim())
            .collect();
        let path = path.split(['?', '#']).next().unwrap_or_default().to_owned();
        Ok(Self { path, accept: accept.join(", "), head_only })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_prometheus_request_parses() {
        let text = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\nACCEPT:*/*\r\n\r\n";
        let request = HttpRequest::parse(complete(text).expect("complete")).expect("a request");
        assert_eq!((request.path.as_str(), request.head_only), ("/metrics", false));
        assert_eq!(request.accept, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5, */*");
        assert_eq!(complete(&text[..text.len() - 1]), None);
    }

    #[test]
    fn proxy_requests_parse_and_malformed_requests_are_refused() {
        let parse = |text: &str| HttpRequest::parse(text.as_bytes()).map(|request| request.path);
        assert_eq!(parse("GET http://proxy:1/metrics HTTP/1.0"), Ok("/metrics".to_owned()));
        assert_eq!(parse("HEAD http://proxy:1 HTTP/1.1"), Ok("/".to_owned()));
        assert_eq!(parse("POST / HTTP/1.1"), Err(RequestError::Method));
        for garbled in
            ["", "GET", "GET /", "GET / HTTP/2", "GET  / HTTP/1.1", "GET x HTTP/1.1", "\u{16}\u{3}"]
        {
            assert_eq!(parse(garbled), Err(RequestError::Garbled), "{garbled}");
        }
    }

    proptest! {
        #[test]
        fn parsing_arbitrary_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = HttpRequest::parse(&bytes);
            let _ = complete(&bytes).map(HttpRequest::parse);
        }

        #[test]
        fn parsed_paths_start_with_a_slash_and_have_no_query(text in "(GET|HEAD|PUT|) ?/?[a-z?#:/]{0,9} ?(HTTP/1.1)?(\r\n[aA]ccept:? ?[a-z]{0,3}){0,3}(\r\n\r\n)?") {
            if let Ok(request) = HttpRequest::parse(text.as_bytes()) {
                prop_assert!(request.path.starts_with('/') && !request.path.contains('?'));
            }
        }
    }
}
