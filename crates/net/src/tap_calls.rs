//! How packets are carried to taps and from them, as a user says it.

use core::str::FromStr;

/// How packets are carried to taps, or from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TapCalls {
    /// As measured at the start.
    #[default]
    Auto,
    /// One system call per packet.
    Plain,
    /// With io_uring from two packets on, if there is io_uring.
    IoUring,
}

/// The text is none of `auto`, `plain` and `io_uring`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapCallsError;

impl FromStr for TapCalls {
    type Err = TapCallsError;

    fn from_str(text: &str) -> Result<Self, TapCallsError> {
        match text {
            "auto" => Ok(Self::Auto),
            "plain" => Ok(Self::Plain),
            "io_uring" => Ok(Self::IoUring),
            _ => Err(TapCallsError),
        }
    }
}
