//! Optional collectors that trace packets; they run as long as the exporter.

mod cost;
mod drops;
mod headroom;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use linerate_host::Host;
use linerate_trace::TraceError;

use crate::metrics::gather::GatheredSamples;
pub(crate) use cost::CostCollector;
pub(crate) use drops::DropsCollector;
pub(crate) use headroom::HeadroomCollector;

/// A collector that runs next to the reading of the host.
pub(crate) trait MetricCollector: Debug + Send {
    /// Adds the values since the start. The error says why the collector has ended.
    fn gather(&mut self, host: &Host, samples: &mut GatheredSamples) -> Result<(), String>;
}

/// A thread that measures until it is dropped, and its values so far.
#[derive(Debug)]
struct MeasuringThread<T> {
    values: Arc<Mutex<T>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), TraceError>>>,
}

impl<T: Default + Send + 'static> MeasuringThread<T> {
    /// Starts a thread that updates the values until the function returns true.
    fn start(
        measure: impl FnOnce(&Mutex<T>, &dyn Fn() -> bool) -> Result<(), TraceError> + Send + 'static,
    ) -> Self {
        let (values, stop) = (Arc::<Mutex<T>>::default(), Arc::<AtomicBool>::default());
        let (thread_values, thread_stop) = (Arc::clone(&values), Arc::clone(&stop));
        let thread =
            std::thread::spawn(move || measure(&thread_values, &|| thread_stop.load(Ordering::Relaxed)));
        Self { values, stop, thread: Some(thread) }
    }
}

impl<T> MeasuringThread<T> {
    fn values(&mut self) -> Result<MutexGuard<'_, T>, String> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            return Err(match thread.join() {
                Ok(Err(error)) => error.to_string(),
                _ => "the thread that measures has ended".to_owned(),
            });
        }
        Ok(self.values.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> Drop for MeasuringThread<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // At the end, nothing reads the thread's result.
            let _ = thread.join();
        }
    }
}
