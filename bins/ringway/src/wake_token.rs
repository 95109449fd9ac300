//! Sources that wake a loop, as the 64 bits that `epoll` gives back: a kind, and a number of its
//! own.

use ringway_switch::PortId;

/// The number of a source.
pub trait TokenNumber: Sized {
    fn to_number(self) -> u32;
    /// `None`: no source has it.
    fn of_number(number: u32) -> Option<Self>;
}

impl TokenNumber for u32 {
    fn to_number(self) -> u32 {
        self
    }

    fn of_number(number: u32) -> Option<Self> {
        Some(number)
    }
}

impl TokenNumber for PortId {
    fn to_number(self) -> u32 {
        self.0.into()
    }

    fn of_number(number: u32) -> Option<Self> {
        u16::try_from(number).ok().map(Self)
    }
}

/// An enum of sources, each with its kind: `3 ControlClient(client: u32)`.
macro_rules! wake_sources {
    ($($(#[$comment:meta])* $kind:literal $source:ident $(($number:ident: $type:ty))?,)*) => {
        /// The source that woke the loop.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Wake {
            $($(#[$comment])* $source $(($type))?,)*
        }

        impl Wake {
            pub fn token(self) -> u64 {
                use $crate::wake_token::TokenNumber as _;
                let (kind, number): (u64, u32) = match self {
                    $(Self::$source $(($number))? => ($kind, 0 $(+ $number.to_number())?),)*
                };
                kind << 32 | u64::from(number)
            }

            pub fn from_token(token: u64) -> Option<Self> {
                use $crate::wake_token::TokenNumber as _;
                let number = (token & 0xffff_ffff) as u32;
                let _ = number;
                Some(match token >> 32 {
                    $($kind => Self::$source $((<$type>::of_number(number)?))?,)*
                    _ => return None,
                })
            }
        }
    };
}

pub(crate) use wake_sources;

#[cfg(test)]
mod tests {
    use ringway_switch::PortId;

    wake_sources! {
        0 Signal,
        1 Port(port: PortId),
        2 Client(client: u32),
    }

    #[test]
    fn each_source_comes_back_and_others_are_none() {
        for wake in [Wake::Signal, Wake::Port(PortId(u16::MAX)), Wake::Client(u32::MAX)] {
            assert_eq!(Wake::from_token(wake.token()), Some(wake));
        }
        assert_eq!(Wake::from_token(1 << 32 | 1 << 16), None, "there is no such port");
        assert_eq!(Wake::from_token(3 << 32), None);
    }
}
