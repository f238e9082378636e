//! A duration as seconds in JSON, for `#[serde(with)]`.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| D::Error::custom(format!("{seconds} is no duration in seconds")))
}
