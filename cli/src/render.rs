//! Results as text and HTML.
