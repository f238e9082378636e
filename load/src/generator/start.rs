//! Starts a generator.

use super::Generator;
use super::builder::{GeneratorBackend, GeneratorBuilder};
use super::socket::SocketGenerator;
use super::xdp::XdpGenerator;
use crate::error::GeneratorError;

impl GeneratorBuilder {
    /// Opens sockets or loads programs, and starts threads, in the calling thread's network
    /// namespace. The generator stays there, whichever thread uses it later. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Settings out of range, a destination that was not allowed, a payload over the MTU, too few
    /// open files, or a system call that failed: one line each.
    pub fn start(self) -> Result<Box<dyn Generator>, GeneratorError> {
        match self.backend {
            GeneratorBackend::Xdp => Ok(Box::new(self.start_xdp()?)),
            GeneratorBackend::Socket => Ok(Box::new(self.start_socket()?)),
            GeneratorBackend::Auto => {
                self.check()?;
                match XdpGenerator::start(&self) {
                    Ok(generator) => Ok(Box::new(generator)),
                    Err(reason @ GeneratorError::Xdp { .. }) => {
                        let mut generator = SocketGenerator::start(&self)?;
                        generator.add_fallback(reason.to_string());
                        Ok(Box::new(generator))
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Like [`GeneratorBuilder::start`], always with live XDP frames.
    ///
    /// # Errors
    ///
    /// As [`GeneratorBuilder::start`], and [`GeneratorError::Xdp`] with the missing requirement.
    pub fn start_xdp(self) -> Result<XdpGenerator, GeneratorError> {
        self.check()?;
        XdpGenerator::start(&self)
    }

    /// Like [`GeneratorBuilder::start`], always with sockets.
    ///
    /// # Errors
    ///
    /// As [`GeneratorBuilder::start`].
    pub fn start_socket(self) -> Result<SocketGenerator, GeneratorError> {
        self.check()?;
        SocketGenerator::start(&self)
    }
}
