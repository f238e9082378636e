use std::error::Error;

/// The reason why a reflector cannot run, one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReflectorError(pub(crate) String);

impl ReflectorError {
    // The causes follow, from the outermost to the innermost.
    pub(crate) fn new(operation: &str, why: impl Into<Box<dyn Error>>) -> Self {
        let why = why.into();
        let mut line = why.to_string();
        let mut cause = why.source();
        while let Some(error) = cause {
            line = format!("{line}: {error}");
            cause = error.source();
        }
        // The verifier's log has many lines, but an error has one.
        ReflectorError(format!("{operation}: {}", line.trim_end().replace('\n', "; ")))
    }
}
